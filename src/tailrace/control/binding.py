"""A worker on a core of its own, its ring's memory beside it."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.transport.ring import Ring

SYSTEM = Path("/sys/devices/system")


class Binding:
    """The calling thread runs on one core until `release`. Spark uses the process again later."""

    def __init__(self, core: int) -> None:
        self._before = os.sched_getaffinity(0)
        if core not in self._before:
            raise RuntimeError(
                f"the plan binds this worker (pid {os.getpid()}) to core {core}; it may use"
                f" {sorted(self._before)} only. Make a plan for these cores, or leave core_of empty"
            )
        os.sched_setaffinity(0, {core})

    def release(self) -> None:
        """As it was before."""
        os.sched_setaffinity(0, self._before)


def settle(ring: Ring, core: int, folder: Path = SYSTEM) -> int | None:
    """Have the ring's memory on the core's NUMA node, and say which; None if there is but one."""
    if len(list(folder.glob("node/node[0-9]*"))) < 2:
        return None
    homes = [int(path.name[4:]) for path in folder.glob(f"cpu/cpu{core}/node[0-9]*")]
    for node in homes[:1]:
        ring.settle(node)
    return homes[0] if homes else None
