"""The keyed workload of the recovery benchmark: what is due when, and what counts as lost."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from recovery_parts.arrivals import SOURCES, Arrivals, Due, audit
from recovery_parts.jobs import Latency
from tailrace.runtime.histogram import Histogram


@pytest.fixture
def arrivals(tmp_path: Path) -> Arrivals:
    made = Arrivals(str(tmp_path), keys=10, paced=20, changing=5)
    made.write({index: count(0, 1000) for index in range(SOURCES)})
    return made


def test_all_sources_together_give_every_record_once(arrivals: Arrivals) -> None:
    numbers = []
    for index in range(SOURCES):
        due, now_ns = Due(arrivals, index), 1
        while (records := due.take(3, now_ns)) is not None:
            numbers += [number for _, number in records]
            now_ns += 1000
    assert sorted(numbers) == list(range(arrivals.total))


def test_what_was_due_meanwhile_is_there_at_once(arrivals: Arrivals) -> None:
    due = Due(arrivals, 0)
    assert len(due.take(100, 50) or []) == 5  # one for each key
    assert [number for _, number in due.take(100, 50) or []] == [10]
    assert due.take(100, 51) == []
    again = Due(arrivals, 0, *due.position)
    assert [number for _, number in again.take(100, 50 + 3000) or []] == [12, 14, 16]
    later = Due(arrivals, 0, *due.position)
    later.resume_at(9_000_000)
    assert [number for _, number in later.take(100, 9_000_000) or []] == [12]


def counted(arrivals: Arrivals, numbers: Iterator[int]) -> list[tuple[int, int]]:
    counts: dict[str, int] = {}
    found = []
    for number in numbers:
        key = arrivals.key(number)
        counts[key] = counts.get(key, 0) + 1
        found.append((number, counts[key]))
    return found


def test_the_audit_finds_what_is_lost_what_is_twice_and_what_was_counted_twice(
    arrivals: Arrivals,
) -> None:
    good = counted(arrivals, iter(range(arrivals.total)))
    assert audit(arrivals, iter(good)) == (0, 0)
    assert audit(arrivals, iter(good[:-1])) == (1, 0)
    assert audit(arrivals, iter([*good, (29, 99)])) == (1, 1)
    twice = [(number, n + (number == 29)) for number, n in good]
    assert audit(arrivals, iter(twice)) == (1, 0)


def test_the_parts_of_a_run_count_by_their_records() -> None:
    run = Latency([Histogram({10: 980}), Histogram({20: 15}), Histogram({30: 5})], None, 0.0, [])
    assert [run.whole.percentile_ns(percent) for percent in (97, 99, 99.9)] == [10, 20, 30]
