"""The test kit: deterministic, in virtual time, and honest when nothing can go on."""

from collections.abc import Callable
from threading import Lock
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.core import Limits
from tailrace.testing import StuckError, collect, run
from tests.runtime.ticks import Ticks


class _Forever(tr.Reader):
    """A record each second of the clock, without an end."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._next = 0

    def poll(self, most: int) -> list[int] | None:
        if self._clock_ns() < self.due_ns():
            return []
        self._next += 1
        return [self._next]

    def due_ns(self) -> int:
        return self._next * 1_000_000_000


class Forever(tr.Source):
    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> tr.Reader:
        return _Forever(clock_ns)


class Waiting(tr.Source, tr.Reader):
    def open(self, *_: Any) -> tr.Reader:
        return self

    def poll(self, most: int) -> list[int] | None:
        return []

    def due_ns(self) -> int | None:
        return None


def busy_topology() -> tuple[tr.Topology, list[Any]]:
    topology = tr.Topology()
    stream = topology.source(range(200), parallelism=3).shuffle().map(abs, parallelism=4)
    return topology, collect(stream.shuffle())


def test_one_seed_gives_one_run() -> None:
    runs = []
    for _ in range(2):
        topology, results = busy_topology()
        report = run(topology, workers=3, seed=7, limits=Limits(gathered_records=3))
        runs.append((report, results))
    assert runs[0] == runs[1]


def test_seeds_give_different_orders_of_the_same_records() -> None:
    orders = set()
    for seed in range(5):
        topology, results = busy_topology()
        run(topology, workers=3, seed=seed, limits=Limits(poll_records=2), channel_messages=2)
        assert sorted(results) == list(range(200))
        orders.add(tuple(results))
    assert len(orders) > 1


def test_a_topology_may_run_again() -> None:
    topology, results = busy_topology()
    run(topology)
    run(topology)
    assert sorted(results) == sorted([*range(200), *range(200)])


def test_time_passes_only_when_there_is_nothing_to_do() -> None:
    topology = tr.Topology()
    results = collect(topology.source(Ticks([[1], [2], [3]], gap_s=1000)))
    assert run(topology).virtual_s == 2000
    assert results == [1, 2, 3]


def test_a_source_without_end_is_drained_after_the_time_given() -> None:
    topology = tr.Topology()
    results = collect(topology.source(Forever()).shuffle().map(abs, parallelism=2).gather())
    report = run(topology, virtual_s=5.5)
    assert sorted(results) == [1, 2, 3, 4, 5, 6]
    assert report.virtual_s == 5.5
    assert report.sent == report.received


def test_an_input_that_waits_for_ever_is_told() -> None:
    topology = tr.Topology()
    collect(topology.source(Waiting()))
    with pytest.raises(StuckError, match=r"nothing can go on after 1 rounds \(seed 3\)"):
        run(topology, seed=3)


def test_the_report_balances() -> None:
    topology = tr.Topology()
    stream = topology.source(range(10), name="in")
    kept = stream.shuffle().map(lambda n: 1 // (n % 5), name="divide", on_error="skip")
    collect(kept)
    report = run(topology, workers=2)
    assert report.records_in == {"in": 10, "divide": 10, "sink": 8}
    assert report.skipped == {"in": 0, "divide": 2, "sink": 0}
    assert report.sent == report.received == {"in -> divide": 10}


@pytest.mark.parametrize(
    "name", ["window_records", "gathered_records", "poll_records", "round_messages"]
)
def test_limits_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
        Limits(**{name: 0})


def test_more_workers_than_instances_is_fine() -> None:
    topology = tr.Topology()
    results = collect(topology.source([1]))
    run(topology, workers=5)
    assert results == [1]


def test_a_record_that_went_to_another_worker_is_a_copy() -> None:
    """So what one worker's operators do to it the others do not see."""
    records = [[1], [2]]
    topology = tr.Topology()
    source = topology.source(records)
    spoiled = collect(source.gather().map(lambda one: one.append(9)))
    seen = collect(source.gather().map(list))
    run(topology, workers=3)
    assert len(spoiled) == 2
    assert seen == records == [[1], [2]]


def test_records_that_cannot_travel_go_by_their_policy_between_pretended_workers() -> None:
    topology = tr.Topology()
    made = topology.source([1, 2, 3]).map(
        lambda n: Lock() if n == 2 else n, name="made", on_error="skip"
    )
    results = collect(made.gather().map(abs))
    report = run(topology, workers=2)
    assert results == [1, 3]
    assert report.skipped["made"] == 1
