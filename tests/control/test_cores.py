"""CPU quotas, as the kernel and container runtimes lay them out, in trees of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.control.cores import cpu_quota, usable_cores, whole_cores

V1 = "sys/fs/cgroup/cpu,cpuacct"


def tree(root: Path, **files: str) -> Path:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def second(root: Path, group: str, **limits: str) -> Path:
    """Version 2: `cpu.max` of folders below the mount."""
    files = {f"sys/fs/cgroup/{path}/cpu.max": text for path, text in limits.items()}
    return tree(root, **{"proc/self/cgroup": f"0::{group}", **files})


def first(root: Path, group: str, **limits: tuple[int, int]) -> Path:
    """Version 1, with controllers that are mounted together."""
    files = {}
    for path, (quota_us, period_us) in limits.items():
        files[f"{V1}/{path}/cpu.cfs_quota_us"] = str(quota_us)
        files[f"{V1}/{path}/cpu.cfs_period_us"] = str(period_us)
    lines = f"5:memory:{group}\n4:cpu,cpuacct:{group}\n1:name=systemd:{group}"
    return tree(root, **{"proc/self/cgroup": lines, **files})


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert cpu_quota(second(tmp_path, "/user", user="max 100000")) is None


def test_a_quota_of_version_two_is_a_share_of_its_period(tmp_path: Path) -> None:
    assert cpu_quota(second(tmp_path, "/pod", pod="150000 100000")) == 1.5


def test_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    limits = {"a": "50000 100000", "a/b": "max 100000", "a/b/c": "400000 100000"}
    assert cpu_quota(second(tmp_path, "/a/b/c", **limits)) == 0.5


def test_a_quota_of_version_one_is_read_and_minus_one_is_none(tmp_path: Path) -> None:
    assert cpu_quota(first(tmp_path / "one", "/x", x=(200_000, 50_000))) == 4.0
    assert cpu_quota(first(tmp_path / "two", "/x", x=(-1, 100_000))) is None


@pytest.mark.parametrize("make", [first, second])
def test_in_a_container_the_mount_itself_is_the_group(tmp_path: Path, make: object) -> None:
    """The path is then one of the host's, or goes up from the container's own."""
    for number, group in enumerate(("/docker/0123abcd", "/../other")):
        root = tmp_path / str(number)
        if make is second:
            assert cpu_quota(second(root, group, **{".": "250000 100000"})) == 2.5
        else:
            assert cpu_quota(first(root, group, **{".": (250_000, 100_000)})) == 2.5


def test_this_machine_has_cores() -> None:
    assert usable_cores() > 0
    assert whole_cores() >= 1
