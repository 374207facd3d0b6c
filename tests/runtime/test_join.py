from collections import Counter
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Topology
from tailrace.graph.validate import TopologyError
from tailrace.runtime.core import Limits
from tailrace.runtime.join import Join, JoinKind
from tailrace.runtime.times import to_ns
from tailrace.testing import collect, run
from tests.runtime.feeding import feed
from tests.runtime.timed import Bench, Timed

Event = tuple[str, float, int]
"""Key, time, number."""


def key_of(event: Event) -> str:
    return event[0]


def time_of(event: Event) -> float:
    return event[1]


times = st.integers(0, 80).map(lambda quarters: quarters / 4)
event_lists = st.lists(st.tuples(st.sampled_from("ab"), times), max_size=25).map(
    lambda found: [(key, time, number) for number, (key, time) in enumerate(found)]
)
bounds = st.sampled_from([0, 0.25, 2, 7])


def joined(
    left: list[Event], right: list[Event], within_s: float, how: str = "inner"
) -> Counter[Any]:
    pairs = [(x, y) for x in left for y in right if x[0] == y[0] and abs(x[1] - y[1]) <= within_s]
    if how in ("left", "outer"):
        pairs += [(x, None) for x in left if x not in {pair[0] for pair in pairs}]  # type: ignore[misc]
    if how == "outer":
        pairs += [(None, y) for y in right if y not in {pair[1] for pair in pairs}]  # type: ignore[misc]
    return Counter(pairs)


def topology_of(
    left: list[Event], right: list[Event], sources: int = 1, **options: Any
) -> tuple[Topology, list[Any]]:
    topology = Topology()
    keyed = [
        topology.source(events, name=name, parallelism=sources)
        .event_time(time_of, max_delay_s=1000, name=f"time of {name}")
        .key_by(key_of)
        for name, events in (("left", left), ("right", right))
    ]
    return topology, collect(keyed[0].join(keyed[1], **options))


@given(
    event_lists,
    event_lists,
    bounds,
    st.sampled_from(["inner", "left", "outer"]),
    st.integers(1, 3),
    st.integers(0, 1000),
)
def test_all_pairs_within_the_bound_come_out_once(
    left: list[Event], right: list[Event], within_s: float, how: str, workers: int, seed: int
) -> None:
    topology, results = topology_of(left, right, within_s=within_s, how=how, parallelism=2)
    report = run(topology, workers=workers, seed=seed, limits=Limits(poll_records=3))
    assert Counter(results) == joined(left, right, within_s, how)
    assert report.late["join"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_many_sources_and_workers_change_nothing(seed: int) -> None:
    left = [("abcd"[n % 4], (n * 37 % 400) / 4, n) for n in range(400)]
    right = [("bcde"[n % 4], (n * 91 % 400) / 4, n) for n in range(400)]
    topology, results = topology_of(left, right, sources=3, within_s=2, parallelism=4)
    limits = Limits(window_records=64, gathered_records=16, poll_records=8, round_messages=4)
    run(topology, workers=3, seed=seed, limits=limits, channel_messages=2)
    assert Counter(results) == joined(left, right, 2)


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), times, times)), bounds)
def test_records_that_are_not_late_find_all_their_partners_and_are_then_forgotten(
    moves: list[tuple[int, str, float, float]], within_s: float
) -> None:
    bench = Bench()
    logic = Join((key_of, key_of), (time_of, time_of), within_s, kind=JoinKind.OUTER)
    step: Any = logic.start(bench.context())
    taken: tuple[list[Event], list[Event]] = ([], [])
    watermark = -inf
    for number, (port, key, ahead, progress) in enumerate(moves):
        event = key, max(watermark, 0) + ahead, number
        taken[port].append(event)
        feed(step, [event], port)
        watermark = max(watermark, 0) + progress / 4
        step.advance(to_ns(watermark))
        kept = [one.time for both in step._open.values() for side in both for one in side]
        assert all(time + to_ns(within_s) >= to_ns(watermark) for time in kept)
    step.finish()
    assert not step._open
    assert Counter(bench.out.get("main", [])) == joined(*taken, within_s, "outer")
    assert bench.counts.late == 0


@pytest.mark.parametrize("seed", range(10))
def test_records_right_at_the_bound_are_paired_in_whatever_order_they_come(seed: int) -> None:
    topology = Topology()
    left = topology.source([("a", 1.3, 0)], name="left").event_time(time_of, max_delay_s=0)
    right = topology.source([("a", 0.3, 1)], name="right").event_time(time_of, max_delay_s=0)
    results = collect(left.key_by(key_of).join(right.key_by(key_of), within_s=1))
    run(topology, workers=2, seed=seed)
    assert results == [(("a", 1.3, 0), ("a", 0.3, 1))]


def test_a_record_that_comes_too_late_to_be_kept_is_late() -> None:
    bench = Bench()
    step = Join((key_of, key_of), (time_of, time_of), 2).start(bench.context())
    feed(step, [("a", 10, 0)])
    step.advance(to_ns(11))
    feed(step, [("a", 8, 1), ("a", 9, 2)], 1)
    assert bench.out["late"] == [("a", 8, 1)]
    assert bench.out["main"] == [(("a", 10, 0), ("a", 9, 2))]
    assert bench.counts.late == 1


arrivals = st.lists(st.tuples(times, st.sampled_from("ab")), max_size=25).map(
    lambda found: [(time, (key, time, number)) for number, (time, key) in enumerate(found)]
)


@given(arrivals, arrivals, bounds, st.sampled_from(["inner", "outer"]), st.integers(1, 3))
def test_in_processing_time_arrival_is_what_counts(
    left: list[tuple[float, Event]],
    right: list[tuple[float, Event]],
    within_s: float,
    how: str,
    workers: int,
) -> None:
    topology = Topology()
    lefts = topology.source(Timed(left), name="left").key_by(key_of)
    rights = topology.source(Timed(right), name="right").key_by(key_of)
    results = collect(lefts.join(rights, within_s=within_s, how=how, time="processing"))
    run(topology, workers=workers)
    plain = joined([event for _, event in left], [event for _, event in right], within_s, how)
    assert Counter(results) == plain


def test_a_stream_can_be_joined_with_itself() -> None:
    topology = Topology()
    events = topology.source([("a", 1, 0), ("a", 2, 1)]).event_time(time_of, max_delay_s=0)
    keyed = events.key_by(key_of)
    results = collect(keyed.join(keyed, within_s=1, function=lambda x, y: (x[2], y[2])))
    run(topology)
    assert sorted(results) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_record_whose_function_raises_is_skipped_with_all_its_pairs() -> None:
    def divide(left: Event, right: Event | None) -> float:
        return left[2] / (0 if right is None else right[2])

    bench = Bench()
    logic = Join((key_of, key_of), (time_of, time_of), 5, divide, JoinKind.LEFT)
    step = logic.start(bench.context())
    feed(step, [("a", 1, 6), ("b", 1, 7)])
    with pytest.raises(ZeroDivisionError):
        feed(step, [("a", 1, 0)], 1)
    feed(step, [("a", 1, 2)], 1)
    step.finish()
    assert bench.out == {"main": [3.0]}
    [(_, (record, error))] = [entry for entry in bench.log if entry[0] == "fail"]
    assert record == ("b", 1, 7)
    assert isinstance(error, ZeroDivisionError)


def keyed_stream() -> Any:
    return Topology().source([1.0]).event_time(float, max_delay_s=0).key_by()


def self_joined(stream: Any, **options: Any) -> Any:
    return stream.join(stream, **{"within_s": 1, **options})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: self_joined(keyed_stream(), within_s=-1), "within_s of a join is -1"),
        (lambda: self_joined(keyed_stream(), how="full"), "how of a join is 'full'"),
        (lambda: self_joined(keyed_stream(), time="wall"), "time of a join .* is 'wall'"),
        (lambda: keyed_stream().join(keyed_stream(), within_s=1), "different topologies"),
        (
            lambda: keyed_stream().join(keyed_stream().map(abs), within_s=1),
            r"right side of a join must come from .key_by",
        ),
        (
            lambda: self_joined(Topology().source([1]).partial_key_by()),
            r"left side of a join must come from .key_by",
        ),
        (lambda: self_joined(Topology().source([1]).key_by()), "call .event_time"),
    ],
)
def test_what_cannot_work_is_refused_when_the_topology_is_built(build: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        build()
