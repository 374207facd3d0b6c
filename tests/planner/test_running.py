"""Profiles refreshed from what a job tells of itself."""

from dataclasses import replace

import pytest

import tailrace as tr
from tailrace.control.progress.summary import OperatorProgress, StreamProgress, Summary
from tailrace.graph.model import Graph
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.planner.running import observed_profile
from tailrace.runtime.histogram import Histogram


def words() -> Graph:
    """sentences + split, to all of twice; split and twice by key to count + sink."""
    topology = tr.Topology("words")
    split = topology.source(["a b"], name="sentences").flat_map(str.split, name="split")
    twice = split.broadcast().map(str.upper, name="twice", parallelism=2)
    counted = split.merge(twice).key_by().scan(lambda n, _: n, name="count", parallelism=2)
    counted.sink(print, name="sink")
    return topology.graph


def summary(scale: int = 1, count_us: float = 2.0) -> Summary:
    def operator(records: int, execute_us: float) -> OperatorProgress:
        return OperatorProgress(records * scale, 0, 0, 0, execute_us, execute_us, execute_us)

    def stream(sent: int) -> StreamProgress:
        return StreamProgress(sent * scale, sent * scale, 0, 0, 0, 0)

    return Summary(
        at_ns=0,
        phase="running",
        emitted={"sentences": 100 * scale},
        operators={
            "sentences": operator(100, 0.0),
            "split": operator(100, 5.0),
            "twice": operator(2000, 1.0),
            "count": operator(3000, count_us),
            "sink": operator(3000, 0.1),
        },
        streams={
            "split -> twice": stream(2000),
            "split -> count": stream(1000),
            "twice -> count": stream(2000),
        },
        latency=Histogram(),
        queued={},
        room={},
        throttled=(),
        workers={},
    )


def test_times_and_selectivities_come_from_counts() -> None:
    found = observed_profile(summary(), words())
    assert found.of("split").work.execute_ns == pytest.approx(5000)
    assert found.of("split").work.selectivity == {"main": 10.0}
    assert found.of("twice").work.selectivity == {"main": 1.0}
    assert found.of("count").work.selectivity == {"main": 1.0}  # inside its chain


def test_only_what_happened_since_counts() -> None:
    # Half of the records are new; 2 us on average over all and 1 us before make 3 us now.
    found = observed_profile(summary(2, 2.0), words(), since=summary(1, 1.0))
    assert found.of("count").work.execute_ns == pytest.approx(3000)
    assert found.of("split").work.selectivity == {"main": 10.0}


def test_what_a_job_does_not_tell_stays_as_it_was() -> None:
    base = Profile(
        {
            "sentences": OperatorProfile(Work(321.0), {"main": 50.0}),
            "split": OperatorProfile(Work(1000.0, percentiles_ns={50: 1000.0, 95: 2000.0})),
        }
    )
    found = observed_profile(summary(), words(), base)
    assert found.of("sentences").work.execute_ns == 321
    assert found.of("sentences").record_bytes == {"main": 50.0}
    assert found.of("split").work.percentiles_ns == pytest.approx({50: 5000, 95: 10_000})


def test_inputs_change_in_proportion() -> None:
    # 1000 records of 400 ns and 2000 of 1300 ns are 1000 ns on average, and now it is 2000.
    base = Profile(
        {
            "count": OperatorProfile(
                Work(1000.0), by_input={"split": Work(400.0), "twice": Work(1300.0)}
            )
        }
    )
    count = observed_profile(summary(), words(), base).of("count")
    assert count.work.execute_ns == pytest.approx(2000)
    assert count.by_input["split"].execute_ns == pytest.approx(800)
    assert count.by_input["twice"].execute_ns == pytest.approx(2600)


def test_operators_that_got_nothing_stay() -> None:
    base = Profile({name: OperatorProfile(Work(7.0)) for name in summary().operators})
    found = observed_profile(summary(), words(), base, since=summary())
    assert {profile.work.execute_ns for profile in found.operators.values()} == {7.0}


def test_copies_of_a_broadcast_count_once() -> None:
    topology = tr.Topology()
    source = topology.source([1], name="numbers")
    source.broadcast().map(str, name="texts", parallelism=2).sink(print, name="sink")
    told = replace(
        summary(),
        operators={
            "numbers": OperatorProgress(100, 0, 0, 0, 0.0, 0.0, 0.0),
            "texts": OperatorProgress(200, 0, 0, 0, 1.0, 1.0, 1.0),
            "sink": OperatorProgress(200, 0, 0, 0, 1.0, 1.0, 1.0),
        },
        streams={"numbers -> texts": StreamProgress(200, 200, 0, 0, 0, 0)},
    )
    found = observed_profile(told, topology.graph)
    assert found.of("numbers").work.selectivity == {"main": 1.0}
