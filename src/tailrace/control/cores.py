"""How many cores this process may use: by its affinity, and by the CPU quota of its container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath


@cache
def usable_cores() -> float:
    """The cores of our affinity mask, or the quota if that is less: 1.5 is one and a half.

    Read once. Who spins with less than a core to spare is stopped for the rest of every period.
    """
    return usable(len(os.sched_getaffinity(0)), cpu_quota())


def usable(cores: int, quota: float | None) -> float:
    """What is left of so many cores under a quota.

    >>> usable(8, 1.5), usable(2, 4.0), usable(4, None)
    (1.5, 2.0, 4.0)
    """
    return float(cores) if quota is None else min(float(cores), quota)


def whole_cores() -> int:
    """How many workers can each have a core; at least one."""
    return max(1, int(usable_cores()))


def cpu_quota(root: Path | str = "/") -> float | None:
    """How many cores' time the control groups above us allow; None: they set no limit.

    Groups are nested, and the tightest counts. Both versions of control groups are read. Inside a
    container the path of a group may be one of the host's, which is not there; then the root of
    what is mounted is the container's own. `root` is where /proc and /sys are found.
    """
    root = Path(root)
    found = [*_second(root), *_first(root)]
    return min(found, default=None)


def _groups(root: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """For each hierarchy its controllers (none: version 2) and our group in it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield controllers, PurePosixPath(path)


def _second(root: Path) -> Iterator[float]:
    """Limits of version 2: `cpu.max` has quota and period, or "max"."""
    for controllers, group in _groups(root):
        if controllers:
            continue
        for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
            for folder in _upward(root / mount, group):
                words = _text(folder / "cpu.max").split()
                if len(words) == 2 and words[0] != "max":
                    yield int(words[0]) / int(words[1])


def _first(root: Path) -> Iterator[float]:
    """Limits of version 1: a quota of -1 is none."""
    for controllers, group in _groups(root):
        if "cpu" not in controllers.split(","):
            continue
        for mount in dict.fromkeys(("cpu", controllers)):
            for folder in _upward(root / "sys/fs/cgroup" / mount, group):
                quota = _text(folder / "cpu.cfs_quota_us")
                period = _text(folder / "cpu.cfs_period_us")
                if quota and period and int(quota) > 0:
                    yield int(quota) / int(period)


def _upward(mount: Path, group: PurePosixPath) -> Iterator[Path]:
    """The group's folder and all above it, down to where the hierarchy is mounted."""
    parts = [part for part in group.parts if part not in ("/", "..")]
    for length in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:length])


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
