"""What processes get of the machine while they run: CPU time, and the speed of their cores."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tailrace.planner.yardstick import reading_ns

_EVERY_S = 0.01
_PATIENCE = 8
"""How many times longer than on a free machine is waited for CPU time."""


@dataclass(frozen=True)
class Pace:
    """What some processes got between two times, by process."""

    begin_ns: int
    end_ns: int
    cpu: tuple[float, ...]
    """Of a core."""
    speed: tuple[float, ...]
    """Of the core that it was on, in the mean; 1 is a yardstick of `full_ns`."""


def watch(pids: Sequence[int], cpu_s: float, full_ns: float) -> Pace:
    """Watch processes until the busiest of them has used so much CPU time.

    Itself it uses 1 or 2 % of their cores.
    """
    allowed = os.sched_getaffinity(0)
    speeds: list[list[float]] = [[] for _ in pids]
    before_s, begin_ns = [_cpu_s(pid) for pid in pids], time.monotonic_ns()
    used_s = [0.0] * len(pids)
    try:
        while max(used_s) < cpu_s and time.monotonic_ns() - begin_ns < _PATIENCE * cpu_s * 1e9:
            for pid, speed in zip(pids, speeds, strict=True):
                os.sched_setaffinity(0, {_core_of(pid)})
                speed.append(full_ns / reading_ns())
            time.sleep(_EVERY_S)
            used_s = [_cpu_s(pid) - before for pid, before in zip(pids, before_s, strict=True)]
    finally:
        os.sched_setaffinity(0, allowed)
    end_ns = time.monotonic_ns()
    seconds = (end_ns - begin_ns) / 1e9
    cpu = tuple(round(one / seconds, 3) for one in used_s)
    return Pace(begin_ns, end_ns, cpu, tuple(round(mean(speed), 3) for speed in speeds))


def _cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _core_of(pid: int) -> int:
    # Its name may hold anything, blanks and brackets too; the fields behind it are numbers.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[36])
