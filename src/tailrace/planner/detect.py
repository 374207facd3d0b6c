"""The machine that this runs on, as Linux describes it.

A socket is a NUMA node with cores. Of hardware threads that share a core the first counts: two
workers on one core would each get little more than half of it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable
from math import inf
from pathlib import Path

from tailrace.control.cores import cpu_quota
from tailrace.plan.model.machine import FREE, Machine, Node, Socket

SYSTEM = Path("/sys/devices/system")


def detect(
    folder: Path | str = SYSTEM,
    allowed: Collection[int] | None = None,
    quota: float | None = None,
) -> Machine:
    """This machine as one node: its sockets and caches, how far apart they are, cores we may use.

    Costs and bandwidths are left free; `calibrate` measures the costs, and nothing the bandwidths:
    a Python worker is far from filling a memory or a channel, and who knows them can write them
    into the saved machine. `folder` is where the system says it, `allowed` the cores of our
    affinity mask. Of a container that may use the time of fewer cores, its `quota`, so many count,
    the first ones; both are this process's own unless given.
    """
    folder = Path(folder)
    if allowed is None:
        allowed, quota = os.sched_getaffinity(0), quota or cpu_quota()
    first_threads = {min(_threads(folder, core) & set(allowed)) for core in allowed}
    if quota is not None:
        first_threads = set(sorted(first_threads)[: max(1, int(quota))])
    found: list[tuple[int, Socket]] = []
    for number, cores in _sockets(folder, allowed):
        usable = sorted(first_threads & cores)
        if usable:
            caches = _caches(folder, usable[0])
            found.append((number, Socket(tuple(usable), cache_bytes=caches)))
    raw = {number: _distances(folder, number) for number, _ in found}
    numbers = [number for number, _ in found]
    order = _numa_order(folder)
    apart = [[raw[a][order.index(b)] if raw[a] else 10 for b in numbers] for a in numbers]
    steps = sorted({apart[i][j] for i in range(len(found)) for j in range(len(found)) if i != j})
    distances = tuple(
        tuple(0 if i == j else 1 + steps.index(far) for j, far in enumerate(row))
        for i, row in enumerate(apart)
    )
    name = socket.gethostname()
    node = Node(name, tuple(one for _, one in found), distances)
    return Machine(
        name,
        (node,),
        other_socket=(FREE,) * len(steps),
        channel_bytes_per_s=(inf,) * len(steps),
    )


def _sockets(folder: Path, allowed: Collection[int]) -> list[tuple[int, set[int]]]:
    """Number and threads of each; without NUMA in the kernel there is one that has all."""
    order = _numa_order(folder)
    if not order:
        return [(0, set(allowed))]
    return [(n, numbers_in((folder / f"node/node{n}/cpulist").read_text())) for n in order]


def _numa_order(folder: Path) -> list[int]:
    """The NUMA nodes, in the order in which distances are listed."""
    online = folder / "node/online"
    return sorted(numbers_in(online.read_text())) if online.exists() else []


def _distances(folder: Path, number: int) -> list[int]:
    path = folder / f"node/node{number}/distance"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def _threads(folder: Path, core: int) -> set[int]:
    path = folder / f"cpu/cpu{core}/topology/thread_siblings_list"
    return numbers_in(path.read_text()) if path.exists() else {core}


def _caches(folder: Path, core: int) -> tuple[int, ...]:
    """Sizes of a core's data caches by level; empty if the system does not say."""
    sizes: dict[int, int] = {}
    for index in (folder / f"cpu/cpu{core}/cache").glob("index*"):
        if (index / "size").exists() and (index / "type").read_text().strip() != "Instruction":
            sizes[int((index / "level").read_text())] = _bytes_in((index / "size").read_text())
    return tuple(sizes[level] for level in sorted(sizes))


def _bytes_in(text: str) -> int:
    """A size as the kernel writes it: 32K, 8M."""
    text = text.strip()
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def numbers_in(text: str) -> set[int]:
    """The numbers of a list as the kernel writes it.

    >>> sorted(numbers_in("0-2,8"))
    [0, 1, 2, 8]
    """
    parts: Iterable[list[str]] = (part.split("-") for part in text.split(",") if part.strip())
    return {n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)}
