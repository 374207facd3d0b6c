"""The machine as the system describes it: trees of machines with one, two and eight sockets."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tailrace.planner.detect import detect, numbers_in

Tree = dict[str, str]


def tree(sockets: list[str], distances: list[str], siblings: dict[int, str]) -> Tree:
    """What the system's files say."""
    files = {"node/online": f"0-{len(sockets) - 1}\n" if len(sockets) > 1 else "0\n"}
    for n, (cores, row) in enumerate(zip(sockets, distances, strict=True)):
        files[f"node/node{n}/cpulist"] = f"{cores}\n"
        files[f"node/node{n}/distance"] = f"{row}\n"
    for core, threads in siblings.items():
        files[f"cpu/cpu{core}/topology/thread_siblings_list"] = f"{threads}\n"
    return files


SMALL = tree(["0-1"], ["10"], {0: "0", 1: "1"})
# Two threads on each core, numbered as Intel's servers number them.
TWO = tree(
    ["0-1,4-5", "2-3,6-7"], ["10 21", "21 10"], {c: f"{c % 4},{c % 4 + 4}" for c in range(8)}
)
# Two trays of four sockets: 16 inside, 28 to the other.
EIGHT = tree(
    [f"{4 * n}-{4 * n + 3}" for n in range(8)],
    [
        " ".join("10" if i == j else "16" if i // 4 == j // 4 else "28" for j in range(8))
        for i in range(8)
    ],
    {},
)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Tree], Path]:
    def save(files: Tree) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return save


Save = Callable[[Tree], Path]


def cores_of(folder: Path, allowed: Collection[int]) -> list[tuple[int, ...]]:
    (node,) = detect(folder, allowed).nodes
    return [socket.cores for socket in node.sockets]


def test_one_socket(saved: Save) -> None:
    machine = detect(saved(SMALL), {0, 1})
    assert [socket.cores for socket in machine.nodes[0].sockets] == [(0, 1)]
    assert machine.nodes[0].distances == ((0,),)
    assert machine.other_socket == ()


def test_threads_of_one_core_count_once(saved: Save) -> None:
    assert cores_of(saved(TWO), range(8)) == [(0, 1), (2, 3)]


def test_a_quota_counts_as_so_many_cores_and_at_least_one(saved: Save) -> None:
    folder = saved(TWO)
    for quota, cores in ((3.9, 3), (0.5, 1), (64.0, 4)):
        assert detect(folder, range(8), quota).cores == cores


def test_two_sockets_are_one_step_apart(saved: Save) -> None:
    machine = detect(saved(TWO), range(8))
    assert machine.nodes[0].distances == ((0, 1), (1, 0))
    assert len(machine.other_socket) == len(machine.channel_bytes_per_s) == 1


def test_eight_sockets_in_two_trays(saved: Save) -> None:
    machine = detect(saved(EIGHT), range(32))
    assert machine.cores == 32
    assert machine.nodes[0].distances[0] == (0, 1, 1, 1, 2, 2, 2, 2)
    assert machine.nodes[0].distances[5] == (2, 2, 2, 2, 1, 0, 1, 1)
    assert len(machine.other_socket) == 2


def test_only_cores_of_the_affinity_mask_count(saved: Save) -> None:
    assert cores_of(saved(TWO), {5, 6}) == [(5,), (6,)]


def test_a_socket_that_we_may_not_use_is_left_out(saved: Save) -> None:
    machine = detect(saved(EIGHT), {0, 1, 30})
    assert [socket.cores for socket in machine.nodes[0].sockets] == [(0, 1), (30,)]
    assert machine.nodes[0].distances == ((0, 1), (1, 0))


def test_memory_without_cores_is_no_socket(saved: Save) -> None:
    files = tree(["0-1", ""], ["10 20", "20 10"], {})
    assert cores_of(saved(files), {0, 1}) == [(0, 1)]


def test_a_kernel_without_numa_has_one_socket(tmp_path: Path) -> None:
    assert cores_of(tmp_path, {0, 1, 2}) == [(0, 1, 2)]


def test_data_caches_are_told_by_level(saved: Save) -> None:
    caches = {
        "index0": ("1", "Data", "48K"),
        "index1": ("1", "Instruction", "32K"),
        "index2": ("2", "Unified", "2048K"),
        "index3": ("3", "Unified", "30M"),
    }
    files = {
        f"cpu/cpu0/cache/{index}/{name}": f"{value}\n"
        for index, values in caches.items()
        for name, value in zip(("level", "type", "size"), values, strict=True)
    }
    (socket,) = detect(saved({**SMALL, **files}), {0, 1}).nodes[0].sockets
    assert socket.cache_bytes == (48 << 10, 2 << 20, 30 << 20)


def test_this_machine_can_be_detected() -> None:
    assert detect().cores >= 1


def test_lists_as_the_kernel_writes_them() -> None:
    assert numbers_in("0-2,8\n") == {0, 1, 2, 8}
    assert numbers_in("\n") == set()
