from collections import Counter
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Stream, Topology
from tailrace.graph.validate import TopologyError
from tailrace.runtime.core import Limits
from tailrace.runtime.times import to_ns
from tailrace.runtime.windows import (
    Session,
    Sliding,
    Window,
    Windowed,
    WindowResult,
    append,
    session,
    sliding,
    tumbling,
)
from tailrace.testing import collect, run
from tests.runtime.feeding import feed
from tests.runtime.timed import Bench, Timed

Event = tuple[str, float, int]
"""Key, time, number."""
ONE_BY_ONE = Limits(poll_records=1)
"""Every record moves time before the next one comes."""


def key_of(event: Event) -> str:
    return event[0]


def time_of(event: Event) -> float:
    return event[1]


# Quarters are exact in floating point, so that the plain computation needs no tolerance.
times = st.integers(-40, 400).map(lambda quarters: quarters / 4)
event_lists = st.lists(st.tuples(st.sampled_from("abc"), times), max_size=40).map(
    lambda found: [(key, time, number) for number, (key, time) in enumerate(found)]
)
seconds = st.sampled_from([0.25, 1, 2.5, 7])
fixed_windows = st.one_of(
    seconds.map(tumbling),
    st.tuples(seconds, seconds).map(lambda two: sliding(max(two), min(two))),
)


def windows_around(window: Sliding, time: float) -> list[tuple[float, float]]:
    first = int((time - window.size_s) // window.every_s)
    starts = [n * window.every_s for n in range(first, first + 100)]
    return [(s, s + window.size_s) for s in starts if s <= time < s + window.size_s]


def canonical(results: list[WindowResult]) -> Counter[Any]:
    return Counter((r.key, r.start, r.end, tuple(sorted(r.value))) for r in results)


def windowed(
    events: list[Event], window: Window, *, sources: int = 1, parallelism: int = 1, **how: Any
) -> tuple[Topology, Stream]:
    topology = Topology()
    delay_s = how.pop("max_delay_s", 1000)
    stream = topology.source(events, parallelism=sources).event_time(time_of, max_delay_s=delay_s)
    return topology, stream.key_by(key_of).window(window, **how).collect(parallelism=parallelism)


@given(event_lists, fixed_windows)
def test_fixed_windows_hold_the_records_of_their_time(events: list[Event], window: Sliding) -> None:
    topology, stream = windowed(events, window)
    results = collect(stream)
    run(topology)
    expected: dict[tuple[str, float, float], list[Event]] = {}
    for event in events:
        for start, end in windows_around(window, event[1]):
            expected.setdefault((event[0], start, end), []).append(event)
    assert canonical(results) == Counter((*w, tuple(sorted(v))) for w, v in expected.items())
    assert [r.end for r in results] == sorted(r.end for r in results)


def sessions_of(events: list[Event], gap_s: float) -> list[WindowResult]:
    found: list[WindowResult] = []
    for event in sorted(events):
        if found and found[-1].key == event[0] and event[1] < found[-1].end:
            last = found.pop()
            found.append(last._replace(end=event[1] + gap_s, value=[*last.value, event]))
        else:
            found.append(WindowResult(event[0], event[1], event[1] + gap_s, [event]))
    return found


@given(event_lists, seconds)
def test_sessions_end_where_there_is_a_gap(events: list[Event], gap_s: float) -> None:
    topology, stream = windowed(events, session(gap_s))
    results = collect(stream)
    run(topology)
    assert canonical(results) == canonical(sessions_of(events, gap_s))


@given(
    event_lists,
    fixed_windows,
    st.sampled_from([0, 1, 10]),
    st.sampled_from([0, 0.25, 3, 20]),
    st.integers(1, 3),
    st.integers(0, 1000),
)
def test_late_records_update_their_windows_until_those_are_forgotten(
    events: list[Event],
    window: Sliding,
    max_delay_s: float,
    lateness_s: float,
    workers: int,
    seed: int,
) -> None:
    topology, stream = windowed(
        events, window, parallelism=2, max_delay_s=max_delay_s, lateness_s=lateness_s
    )
    results, late = collect(stream), collect(stream.late())
    report = run(topology, workers=workers, seed=seed, limits=ONE_BY_ONE)

    watermark = -inf
    states: dict[tuple[str, float, float], list[Event]] = {}
    expected: list[WindowResult] = []
    expected_late = []
    fired = set()
    for event in [*events, None]:
        if event is not None:
            around = windows_around(window, event[1])
            live = [w for w in around if w[1] + lateness_s > watermark]
            if not live:
                expected_late.append(event)
            for start, end in live:
                place = event[0], start, end
                states.setdefault(place, []).append(event)
                if end <= watermark:
                    fired.add(place)
                    expected.append(WindowResult(*place, list(states[place])))
        watermark = inf if event is None else max(watermark, event[1] - max_delay_s)
        for place, state in states.items():
            if place[2] <= watermark and place not in fired:
                fired.add(place)
                expected.append(WindowResult(*place, list(state)))
    assert canonical(results) == canonical(expected)
    assert sorted(late) == sorted(expected_late)
    assert report.late["window"] == len(expected_late)


@given(event_lists, seconds, st.sampled_from([0, 3]), st.sampled_from([0, 5]))
def test_every_record_is_in_one_session_or_late(
    events: list[Event], gap_s: float, max_delay_s: float, lateness_s: float
) -> None:
    topology, stream = windowed(
        events, session(gap_s), max_delay_s=max_delay_s, lateness_s=lateness_s
    )
    results, late = collect(stream), collect(stream.late())
    run(topology, limits=ONE_BY_ONE)
    final: list[WindowResult] = []  # a result replaces those whose records it holds
    for result in results:
        final = [one for one in final if not set(one.value) <= set(result.value)] + [result]
    assert sorted([e for one in final for e in one.value] + late) == sorted(events)
    for one in final:
        spans = sorted(time for _, time, _ in one.value)
        assert (one.start, one.end) == (spans[0], spans[-1] + gap_s)
        assert all(b - a < gap_s for a, b in pairwise(spans))


def test_a_late_record_joins_two_sessions_that_were_over() -> None:
    events: list[Event] = [
        ("a", 0, 0),
        ("a", 8, 1),
        ("a", 30, 2),
        ("a", 4, 3),
        ("a", 60, 4),
        ("a", 1, 5),
    ]
    topology, stream = windowed(events, session(5), max_delay_s=0, lateness_s=26)
    results, late = collect(stream), collect(stream.late())
    run(topology, limits=ONE_BY_ONE)
    assert [(r.start, r.end, [event[2] for event in r.value]) for r in results] == [
        (0, 5, [0]),
        (8, 13, [1]),
        (0, 13, [0, 1, 3]),
        (30, 35, [2]),
        (60, 65, [4]),
    ]
    assert late == [("a", 1, 5)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", [tumbling(5), sliding(10, 4), session(0.5)])
def test_many_sources_and_workers_change_nothing(window: Window, seed: int) -> None:
    events = [("abcdefgh"[n * 7 % 8], (n * 37 % 500) / 4, n) for n in range(2000)]
    expected_topology, expected_stream = windowed(events, window)
    expected = collect(expected_stream)
    run(expected_topology)
    topology, stream = windowed(events, window, sources=3, parallelism=4)
    results = collect(stream)
    limits = Limits(window_records=64, gathered_records=16, poll_records=8, round_messages=4)
    report = run(topology, workers=3, seed=seed, limits=limits, channel_messages=2)
    assert canonical(results) == canonical(expected)
    assert report.late["window"] == 0


@pytest.mark.parametrize("window", [tumbling(1), sliding(2, 1), session(1)])
def test_nothing_is_kept_of_windows_that_are_over(window: Window) -> None:
    bench = Bench()
    merge = (lambda a, b: a + b) if isinstance(window, Session) else None
    logic = Windowed(window, key_of, time_of, 2, append, merge=merge, copy=list)
    step: Any = logic.start(bench.context())
    for n in range(100):
        feed(step, [(f"key {n}", n, n), ("always", n, n)])
        step.advance(to_ns(n - 1))
        assert len(step._open) <= 8
        assert len(step._due) <= 12
    step.advance(to_ns(200))
    assert not step._open
    assert not step._due
    assert bench.counts.late == 0


def test_aggregates_start_from_the_initial_value_in_each_window() -> None:
    topology = Topology()
    events = topology.source([("a", n, n) for n in range(10)]).event_time(time_of, max_delay_s=0)
    sums = events.key_by(key_of).window(tumbling(4)).aggregate(lambda sum, e: sum + e[2], 100)
    results = collect(sums)
    run(topology)
    assert results == [("a", 0, 4, 106), ("a", 4, 8, 122), ("a", 8, 12, 117)]


def test_a_record_that_raises_is_in_no_window() -> None:
    def add_up(total: int, event: Event) -> int:
        return total + 10 // (event[2] - total)

    topology = Topology()
    events = topology.source([("a", 1, 1), ("a", 5, 10), ("a", 6, 1)])
    keyed = events.event_time(time_of, max_delay_s=100).key_by(key_of)
    sums = keyed.window(sliding(8, 4)).aggregate(add_up, 0, on_error="skip", name="sum")
    results = collect(sums)
    report = run(topology)
    # [0, 8) has 10 and then 10 // (10 - 10) raises, though [4, 12) could take that record.
    assert results == [("a", -4, 4, 10), ("a", 0, 8, 8), ("a", 4, 12, 10)]
    assert report.skipped["sum"] == 1


def test_results_can_be_windowed_again_by_the_end_of_their_window() -> None:
    topology, counts = windowed([("a", n, n) for n in range(20)], tumbling(2), max_delay_s=0)
    again = counts.key_by(lambda result: result.key).window(tumbling(10))
    results = collect(again.aggregate(lambda total, result: total + len(result.value), 0))
    report = run(topology, limits=ONE_BY_ONE)
    assert results == [("a", 0, 10, 8), ("a", 10, 20, 10), ("a", 20, 30, 2)]
    assert sum(report.late.values()) == 0


def test_time_goes_on_for_records_that_have_changed() -> None:
    topology = Topology()
    events = topology.source([("a", 1, 0), ("a", 3, 1)]).event_time(time_of, max_delay_s=5)
    changed = events.map(lambda event: {"key": event[0], "time": event[1]})
    stream = changed.event_time(lambda record: record["time"]).key_by(lambda r: r["key"])
    results = collect(stream.window(tumbling(2)).aggregate(lambda n, record: n + 1, 0))
    run(topology)
    assert results == [("a", 0, 2, 1), ("a", 2, 4, 1)]


@given(
    st.lists(st.tuples(st.integers(0, 200).map(lambda q: q / 4), st.sampled_from("ab"))),
    fixed_windows,
    st.integers(1, 3),
)
def test_windows_in_processing_time_follow_the_clock(
    arrivals: list[tuple[float, str]], window: Sliding, workers: int
) -> None:
    topology = Topology()
    stream = topology.source(Timed(arrivals)).key_by().window(window, time="processing")
    results = collect(stream.aggregate(lambda count, _: count + 1, 0, parallelism=2))
    run(topology, workers=workers)
    expected: Counter[Any] = Counter()
    for time, key in arrivals:
        for start, end in windows_around(window, time):
            expected[key, start, end] += 1
    assert sorted(results) == sorted((*place, count) for place, count in expected.items())


@given(st.lists(st.integers(0, 200).map(lambda quarters: quarters / 4)), seconds)
def test_sessions_in_processing_time_follow_the_clock(arrivals: list[float], gap_s: float) -> None:
    topology = Topology()
    keyed = topology.source(Timed([(time, "a") for time in arrivals])).key_by()
    stream = keyed.window(session(gap_s), time="processing")
    results = collect(stream.aggregate(lambda n, _: n + 1, 0, merge=lambda a, b: a + b))
    run(topology)
    plain = sessions_of([("a", time, 0) for time in arrivals], gap_s)
    assert results == [one._replace(value=len(one.value)) for one in plain]


def test_a_window_in_processing_time_ends_while_the_source_is_silent() -> None:
    topology = Topology()
    source = topology.source(Timed([(0, "a"), (100, "b")]))
    counts = source.key_by().window(tumbling(10), time="processing").aggregate(lambda n, _: 1)
    everything = collect(counts.map(lambda result: result.key * 2).merge(source))
    run(topology)
    assert everything == ["a", "aa", "b", "bb"]


@pytest.mark.parametrize(("idle_s", "first"), [(None, "b"), (5, "a")])
def test_an_idle_source_holds_time_back_no_longer_than_said(
    idle_s: float | None, first: str
) -> None:
    topology = Topology()
    busy = topology.source(Timed([(n, ("a", n, n)) for n in range(30)]), name="busy")
    quiet = topology.source(Timed([(0, ("b", 0, 0)), (100, ("b", 100, 1))]), name="quiet")
    timed = [
        source.event_time(time_of, max_delay_s=0, idle_s=idle_s, name=f"time {n}")
        for n, source in enumerate([busy, quiet])
    ]
    results = collect(
        timed[0].merge(timed[1]).key_by(key_of).window(tumbling(10)).collect().merge(quiet)
    )
    report = run(topology, workers=2)
    order = [one.key if isinstance(one, WindowResult) else one[0] for one in results[1:]]
    assert order[0] == first
    assert report.late["window"] == 0
    assert Counter(order) == {"a": 3, "b": 3}


def test_a_source_that_never_starts_is_not_waited_for() -> None:
    topology = Topology()
    busy = topology.source(Timed([(n, ("a", n, n)) for n in range(30)]), name="busy")
    never = topology.source(Timed([(100, ("b", 100, 1))]), name="never")
    both = busy.event_time(time_of, max_delay_s=0, name="one").merge(
        never.event_time(time_of, max_delay_s=0, idle_s=3, name="other")
    )
    results = collect(both.key_by(key_of).window(tumbling(10)).collect())
    run(topology)
    assert [r.start for r in results] == [0, 10, 20, 100]


def keyed_stream() -> Any:
    return Topology().source([1]).event_time(float, max_delay_s=0).key_by()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tumbling(0), r"size_s of tumbling\(\) is 0; .* more than zero"),
        (lambda: tumbling(True), "is True"),
        (lambda: session(inf), "gap_s of session.* is inf"),
        (lambda: sliding(1, 2), "every_s of sliding.* is 2, but size_s is 1"),
        (lambda: keyed_stream().window(5), r"window\(\) got 5"),
        (lambda: keyed_stream().window(tumbling(5), time="wall"), "time of a window is 'wall'"),
        (lambda: keyed_stream().window(tumbling(5), lateness_s=-1), "lateness_s .* is -1"),
        (
            lambda: keyed_stream().window(tumbling(5), time="processing", lateness_s=1),
            "nothing is late in processing time",
        ),
        (lambda: keyed_stream().window(session(5)).aggregate(max), "merge="),
        (lambda: Topology().source([1]).key_by().window(tumbling(5)), "call .event_time"),
        (
            lambda: keyed_stream().map(abs).key_by().window(tumbling(5)),
            "have changed since it was declared",
        ),
        (lambda: Topology().source([1]).event_time(float), "needs max_delay_s"),
        (
            lambda: Topology().source([1]).event_time(float, max_delay_s=-1),
            "max_delay_s of event_time is -1; .* zero or more",
        ),
        (lambda: keyed_stream().map(abs).late(), "'map' has no late records"),
    ],
)
def test_what_cannot_work_is_refused_when_the_topology_is_built(build: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        build()


def test_a_time_that_is_no_time_is_an_error_of_its_record() -> None:
    topology = Topology()
    stream = topology.source([1.0, inf, None, 2.0]).event_time(
        lambda record: record, max_delay_s=0, on_error="skip"
    )
    results = collect(stream)
    report = run(topology)
    assert results == [1.0, 2.0]
    assert report.skipped["event_time"] == 2
