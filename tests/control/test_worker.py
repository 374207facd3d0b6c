"""Workers with their coordinator, without Spark: each in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import tailrace as tr
from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settings
from tailrace.control.worker import Worker
from tailrace.runtime.core import DEFAULT_LIMITS

PATIENCE_S = 60.0


def work(
    topology: tr.Topology, placement: tuple[int, ...], leave: bool = False, node: str = "memory"
) -> list[str]:
    """Run it on two workers; the errors that they end with. Rank 1 may leave after a turn."""
    coordinator = Coordinator(2, "127.0.0.1", lambda: None)
    settings = Settings(2, coordinator.address, coordinator.secret, b"", node=node)
    errors = ["it has not ended"] * 2

    def run(rank: int) -> None:
        worker = Worker(settings, rank, "here", (topology.graph, placement, DEFAULT_LIMITS))
        if leave and rank == 1:
            turns = worker.turns()
            next(turns)
            turns.close()
        else:
            worker.run()
        errors[rank] = worker.error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    coordinator.join(PATIENCE_S)
    return errors


def pipeline(function: Callable[[int], object]) -> tr.Topology:
    topology = tr.Topology()
    topology.source(range(10)).gather().map(function, name="step").sink(lambda _: None)
    return topology


def test_a_job_that_ends_well_leaves_no_error() -> None:
    assert work(pipeline(abs), (0, 1)) == ["", ""]


@pytest.mark.parametrize("node", ["memory", "worker"])
@pytest.mark.parametrize("placement", [(0, 1), (1, 0)])
def test_all_workers_know_why_the_job_failed(placement: tuple[int, int], node: str) -> None:
    for error in work(pipeline(lambda n: 1 / (n - 7)), placement, node=node):
        assert "operator 'step' failed on 7" in error
        assert "ZeroDivisionError: division by zero" in error


def test_a_worker_that_leaves_early_fails_the_job_for_all() -> None:
    topology = tr.Topology()
    topology.source(tr.sources.rate(100)).gather().map(abs).sink(lambda _: None)
    assert all("GeneratorExit" in error for error in work(topology, (0, 1), leave=True))


def test_instances_run_where_the_workers_of_their_node_sit() -> None:
    """Place 0 is alone on its node, so the worker that is alone takes it."""
    seen: dict[str, int] = {}
    topology = tr.Topology("seated")
    numbers = topology.source([1], name="numbers").shuffle()
    numbers.map(_note("alone", seen), name="alone").shuffle().sink(_note("out", seen), name="out")
    coordinator = Coordinator(3, "127.0.0.1", lambda: None, (0, 1, 1), "executor")
    settings = Settings(3, coordinator.address, coordinator.secret, b"", node="executor")
    job = (topology.graph, (1, 0, 2), DEFAULT_LIMITS)

    def run(rank: int) -> None:
        threading.current_thread().name = str(rank)
        Worker(settings, rank, "AAB"[rank], job).run()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    coordinator.join(PATIENCE_S)
    assert coordinator.roster.phase == "stopped"
    assert coordinator.roster.seats == (2, 0, 1)
    assert coordinator.roster.seated((1, 0, 2)) == (0, 2, 1)
    assert seen == {"alone": 2, "out": 1}


def _note(name: str, seen: dict[str, int]) -> Callable[[int], int]:
    def note(record: int) -> int:
        seen[name] = int(threading.current_thread().name)
        return record

    return note
