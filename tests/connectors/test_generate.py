from __future__ import annotations

import pickle
from collections import Counter
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import sources
from tailrace.connectors.generate import Generate, Poisson
from tailrace.testing import VirtualClock
from tests.connectors.reading import read_all, read_share, read_timed, serve

SECOND = 1_000_000_000


def timed(source: Generate, index: int = 0, parallelism: int = 1) -> list[tuple[int, Any]]:
    clock = VirtualClock()
    return read_timed(serve(source, index, parallelism, clock), clock)


def test_a_constant_rate_has_even_distances() -> None:
    assert timed(sources.rate(4, "abc".__getitem__, count=3)) == [
        (0, "a"),
        (SECOND // 4, "b"),
        (SECOND // 2, "c"),
    ]


def test_a_rate_that_does_not_divide_a_second_does_not_drift() -> None:
    offsets = sources.rate(3).pace.offsets_ns(0, 1, 3_000_000_000)  # type: ignore[union-attr]
    assert next(offsets) == SECOND * SECOND


@given(parallelism=st.integers(1, 5), count=st.integers(0, 50), per_s=st.floats(0.01, 1e6))
def test_the_shares_of_all_instances_are_the_whole(
    parallelism: int, count: int, per_s: float
) -> None:
    source = sources.rate(per_s, count=count)
    shares = [timed(source, index, parallelism) for index in range(parallelism)]
    assert sorted(record for share in shares for record in share) == timed(source)
    assert len(timed(source)) == count


def test_a_late_poll_gets_all_that_was_due_and_the_time_of_the_first() -> None:
    clock = VirtualClock(5 * SECOND)
    reader = serve(sources.rate(10), 0, 1, clock)
    assert reader.poll(100) == [0]
    clock.now_ns += SECOND
    assert reader.poll(100) == list(range(1, 11))
    assert reader.emitted_ns == 5 * SECOND + SECOND // 10
    assert reader.due_ns() == 6 * SECOND + SECOND // 10


def test_a_small_poll_leaves_the_rest_of_what_is_due() -> None:
    clock = VirtualClock()
    reader = serve(sources.rate(10), 0, 1, clock)
    reader.poll(1)
    clock.now_ns = SECOND
    assert reader.poll(3) == [1, 2, 3]
    assert reader.due_ns() == 4 * SECOND // 10
    assert reader.poll(100) == list(range(4, 11))
    assert reader.emitted_ns == 4 * SECOND // 10


def test_seconds_bound_the_schedule_not_the_clock() -> None:
    assert len(timed(sources.rate(1000, seconds=2.5))) == 2500
    clock = VirtualClock()
    late = serve(sources.rate(1000, seconds=2.5), 0, 1, clock)
    late.poll(1)
    clock.now_ns = 100 * SECOND
    assert len(read_all(late)) == 2499


def test_poisson_follows_from_the_seed() -> None:
    first = timed(sources.poisson(100, count=50, seed=1))
    assert first == timed(sources.poisson(100, count=50, seed=1))
    assert first != timed(sources.poisson(100, count=50, seed=2))


@pytest.mark.parametrize("parallelism", [1, 4])
def test_poisson_has_the_mean_and_the_spread_of_one(parallelism: int) -> None:
    source = sources.poisson(1000, seconds=20, seed=3)
    shares = [timed(source, index, parallelism) for index in range(parallelism)]
    times = sorted(at_ns for share in shares for at_ns, _ in share)
    gaps = [(after - before) / 1e6 for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1.0, rel=0.05)
    assert deviation == pytest.approx(1.0, rel=0.05)


def test_poisson_goes_on_from_anywhere_with_the_same_times() -> None:
    pace = Poisson(1000, seed=3)
    times = list(islice(pace.offsets_ns(1, 2, 0), 2000))
    assert times == sorted(times)
    for skip in (1, 255, 256, 257, 1024, 1999):
        assert list(islice(pace.offsets_ns(1, 2, skip), 2000 - skip)) == times[skip:]


def test_how_many_come_in_a_time_varies_as_much_as_they_are() -> None:
    # Far longer than what is drawn together: that must not show.
    counts = Counter(
        at_ns // SECOND for at_ns in islice(Poisson(1000).offsets_ns(0, 1, 0), 800_000)
    )
    whole = [counts[second] for second in range(790)]
    mean = sum(whole) / len(whole)
    variance = sum((count - mean) ** 2 for count in whole) / len(whole)
    assert variance == pytest.approx(mean, rel=0.2)


def test_bursts_come_at_once() -> None:
    assert timed(sources.bursts(2, 0.5, count=5)) == [
        (0, 0),
        (0, 1),
        (SECOND // 2, 2),
        (SECOND // 2, 3),
        (SECOND, 4),
    ]


def test_instances_share_each_burst() -> None:
    source = sources.bursts(4, 1, count=8)
    assert timed(source, 1, 2) == [(0, 1), (0, 3), (SECOND, 5), (SECOND, 7)]


def test_a_collection_ends_the_source_with_its_last_record() -> None:
    assert timed(sources.rate(1, ["a", "b"])) == [(0, "a"), (SECOND, "b")]
    assert timed(sources.rate(1, ["a", "b", "c"], count=2)) == [(0, "a"), (SECOND, "b")]


def test_a_collection_of_unknown_length_ends_the_source_too() -> None:
    class Letters:
        def __iter__(self) -> Any:
            return iter("abc")

    assert [record for _, record in timed(sources.rate(1, Letters()))] == ["a", "b", "c"]
    assert read_share(sources.unpaced(Letters()), 1, 2) == ["b"]


def test_unpaced_gives_as_many_as_are_asked_for() -> None:
    reader = serve(sources.unpaced(lambda i: i * i, count=5), 0, 1, VirtualClock())
    assert reader.poll(3) == [0, 1, 4]
    assert reader.poll(3) == [9, 16]
    assert reader.poll(3) is None


def test_unpaced_ends_after_its_seconds() -> None:
    clock = VirtualClock()
    reader = serve(sources.unpaced(seconds=2), 0, 1, clock)
    assert reader.poll(2) == [0, 1]
    clock.now_ns = 2 * SECOND
    assert reader.poll(2) is None


@pytest.mark.parametrize(
    "source",
    [
        sources.rate(10, count=40),
        sources.poisson(10, count=40),
        sources.bursts(5, 1.0, count=40),
        sources.unpaced([str(i) for i in range(40)]),
    ],
)
def test_a_position_goes_on_with_the_next_record(source: Generate) -> None:
    clock = VirtualClock()
    reader = serve(source, 1, 2, clock)
    before: list[Any] = []
    while len(before) < 7:
        before += reader.poll(7 - len(before)) or []
        clock.now_ns = max(clock.now_ns, reader.due_ns() or 0)
    clock = VirtualClock(1000 * SECOND)
    after = read_timed(serve(source, 1, 2, clock, reader.positions()), clock)
    assert before + [record for _, record in after] == read_share_timed(source)
    assert after[0][0] == 1000 * SECOND, "it goes on at once"


def read_share_timed(source: Generate) -> list[Any]:
    clock = VirtualClock()
    return [record for _, record in read_timed(serve(source, 1, 2, clock), clock)]


def test_a_generator_can_be_shipped() -> None:
    source = pickle.loads(pickle.dumps(sources.poisson(10, ["a"] * 9, seed=4)))
    assert len(timed(source)) == 9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sources.rate(0), r"per_s is 0; it must be above 0"),
        (lambda: sources.poisson(float("nan")), r"per_s is nan"),
        (lambda: sources.bursts(0, 1), r"size is 0"),
        (lambda: sources.bursts(1, -1), r"every_s is -1"),
        (lambda: sources.rate(1, count=-1), r"count is -1; it must be at least 0"),
        (lambda: sources.unpaced(seconds=0), r"seconds is 0"),
        (lambda: sources.unpaced(iter("ab")), r"str\w*_iterator can be read only once"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_the_same_records_can_be_had_without_their_pace() -> None:
    source = sources.rate(1, ["a", "b", "c"], seconds=2).unpaced()
    assert serve(source).poll(10) == ["a", "b", "c"]
