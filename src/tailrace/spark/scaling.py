"""More workers for a running job, or fewer: Spark's part, and the wait for what comes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tailrace.control.coordinator import Coordinator
from tailrace.control.joining import ScaleError
from tailrace.graph.validate import whole_number
from tailrace.graph.wiring import Wiring
from tailrace.spark.cluster import Cluster
from tailrace.spark.launch import Stages
from tailrace.spark.slots import more_slots

_LOOK_S = 0.005
_COUNT_S = 10.0
"""How long it may take to count Spark's slots; where that is a query it needs one itself."""


def scale(
    coordinator: Coordinator,
    stages: Stages,
    cluster: Cluster,
    workers: int,
    fed: Sequence[str],
    runs_in: Callable[[int], list[str]],
    timeout_s: float,
) -> None:
    """Have so many workers; see `Job.scale_workers`.

    `fed` names the sources that need a slot besides, `runs_in` the instances of a worker.
    """
    whole_workers(workers)
    present = coordinator.roster.workers
    if workers > present:
        _check_slots(cluster, present, workers, fed)
        number = coordinator.grow(workers - present, timeout_s)
        stages.grow(number, present, workers)
        try:
            _await(coordinator, number, present, None)
        except BaseException:
            coordinator.give_up(number, "it was interrupted")
            stages.cancel(number)
            raise
    elif workers < present:
        check_empty(workers, present, runs_in)
        number = coordinator.shrink(present - workers, timeout_s)
        _await(coordinator, number, present, time.monotonic() + timeout_s)


def whole_workers(workers: int) -> None:
    """Raise if that is no number of workers."""
    if whole_number(workers) is None:
        raise TypeError(f"workers is {workers!r}; it must be a whole number")
    if workers < 1:
        raise ValueError(f"workers is {workers}; it must be at least 1")


def check_empty(workers: int, present: int, runs_in: Callable[[int], list[str]]) -> None:
    """Raise if something runs in a worker that would have to leave."""
    busy = {rank: found for rank in range(workers, present) if (found := runs_in(rank))}
    if busy:
        told = "; ".join(f"worker {rank} runs {', '.join(one)}" for rank, one in busy.items())
        raise ValueError(
            f"{workers} workers were asked for, and of the {present} that there are those with the"
            f" highest ranks leave; nothing may run in them: {told}"
        )


def runs_in(wiring: Wiring, placement: Sequence[int], rank: int) -> list[str]:
    """What runs in a worker, for people: chains with the indices of their instances."""
    return [
        f"{chain.label}[{index}]"
        for chain in wiring.chains
        for index, instance in enumerate(chain.instances)
        if placement[instance] == rank
    ]


def _check_slots(cluster: Cluster, present: int, workers: int, fed: Sequence[str]) -> None:
    needed, most = workers + bool(fed), cluster.most()
    slots = most if most is not None and needed > most else _slots(cluster, needed)
    if slots is not None and needed <= slots:
        return
    told = f"this Spark has {slots} task slots" if slots is not None else "no task slot is free"
    besides = f", and the DataFrame of {fed[0]!r} needs one, too" if fed else ""
    raise ScaleError(
        f"{workers} workers were asked for, {workers - present} more than there are; {told}"
        f"{besides}. The job goes on with {present}. Ask for fewer, or"
        f" {more_slots(cluster, needed)}"
    )


def _slots(cluster: Cluster, wanted: int) -> int | None:
    """Spark's slots; None if it does not say, because none is free to count them in."""
    counted: list[int] = []
    group = f"tailrace-slots-{time.monotonic_ns()}"

    def count() -> None:
        cluster.name(group, "tailrace: counts task slots")
        counted.append(cluster.slots(wanted))

    counting = threading.Thread(target=count, name="tailrace-slots", daemon=True)
    counting.start()
    counting.join(_COUNT_S)
    if not counted:
        cluster.cancel(group)
    return counted[0] if counted else None


def _await(coordinator: Coordinator, number: int, present: int, until_s: float | None) -> None:
    while (told := coordinator.outcome(number)) is None:
        if until_s is not None and time.monotonic() > until_s:
            raise TimeoutError(
                "the workers that leave have not ended yet; they will as soon as those that stay"
                " have closed their ways to them"
            )
        time.sleep(_LOOK_S)
    if told:
        raise ScaleError(f"{told}. The number of workers stays {present}")
