"""The source of the peer systems: pace, shares and the end."""

import json
from pathlib import Path

import pytest

from engine_peers.workloads import POOL, chain_records, sentences
from peer_systems.feed import LATE_FACTOR, Feed, Order

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5_000 * MS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_records_come_when_they_are_due_and_carry_that_time(clock: Clock) -> None:
    feed = Feed(Order("wordcount", 1.0, 1_000, ""), clock_ns=clock)
    start_ns = clock.now_ns
    first, second, third, fourth = sentences()[:4]
    assert feed.take(64) == [(first, start_ns)]
    assert feed.take(64) == []
    assert feed.next_due_ns() == start_ns + MS
    clock.now_ns += 3 * MS  # late: all that was missed, each with its own due time
    dues = [start_ns + number * MS for number in (1, 2, 3)]
    assert feed.take(64) == list(zip((second, third, fourth), dues, strict=True))


def test_two_sources_share_the_records_and_the_rate(clock: Clock) -> None:
    order = Order("wordcount", 1.0, 1_000, "")
    feeds = [Feed(order, index, 2, clock) for index in (0, 1)]
    start_ns = clock.now_ns
    clock.now_ns += 3 * MS
    taken = [feed.take(64) or [] for feed in feeds]
    assert [due_ns - start_ns for _, due_ns in taken[0]] == [0, 2 * MS]
    assert [due_ns - start_ns for _, due_ns in taken[1]] == [MS, 3 * MS]
    assert [sentence for sentence, _ in taken[1]] == sentences()[1:4:2]


def test_a_paced_source_ends_after_the_planned_number(clock: Clock) -> None:
    feed = Feed(Order("chain", 0.010, 1_000, ""), clock_ns=clock)
    clock.now_ns += 15 * MS
    assert len(feed.take(64) or []) == 10
    assert feed.take(64) is None


def test_a_source_that_is_held_up_too_long_gives_up(clock: Clock) -> None:
    feed = Feed(Order("chain", 0.010, 1_000, ""), clock_ns=clock)
    feed.take(1)
    clock.now_ns += int(LATE_FACTOR * 10 * MS)
    assert feed.take(1) is None
    assert feed.emitted == 1


def test_a_paced_record_of_the_chain_keeps_its_size_and_number(clock: Clock) -> None:
    feed = Feed(Order("chain", 1.0, 1_000, ""), clock_ns=clock)
    start_ns = clock.now_ns
    clock.now_ns += MS
    record = (feed.take(2) or [])[1]
    assert len(record) == 100
    assert int.from_bytes(record[:8], "little") == 1
    assert int.from_bytes(record[8:16], "little") == start_ns + MS


def test_an_unpaced_source_emits_the_pool_in_turn_until_its_time_is_over(
    clock: Clock, tmp_path: Path
) -> None:
    feed = Feed(Order("chain", 0.010, 0, str(tmp_path)), clock_ns=clock)
    assert feed.take(POOL + 1) == [*chain_records(), chain_records()[0]]
    clock.now_ns += 10 * MS
    assert feed.take(1) is None
    feed.tell()
    told = json.loads((tmp_path / "source-0.json").read_text())
    assert told == {"emitted": POOL + 1, "first_ns": 5_000 * MS, "end_ns": 5_010 * MS}
