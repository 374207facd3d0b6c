"""What sources and sinks left behind, read again: rates, latencies, and what got lost."""

from pathlib import Path

import pytest

from engine_peers.workloads import POOL, chain_records, sentences
from peer_systems.feed import Order, record_at, tell_source
from peer_systems.sinks import ChainSink, WordSink
from peer_systems.told import measured, merged

SECOND = 1_000_000_000


def told(order: Order, emitted: int) -> None:
    tell_source(order, 0, emitted, 1, 2 * SECOND)


def count_words(order: Order, number: int) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    pairs = []
    for sentence in sentences()[:number]:
        for word in sentence.split():
            counts[word] = counts.get(word, 0) + 1
            pairs.append((word, counts[word]))
    return pairs


def write_words(order: Order, pairs: list[tuple[str, int]], name: str = "0") -> None:
    sink = WordSink(order, name)
    words, counts = zip(*pairs, strict=True)
    sink.write(words, counts, [0] * len(words))
    sink.tell()


@pytest.fixture
def words(tmp_path: Path) -> Order:
    return Order("wordcount", 1.0, 0, str(tmp_path))


@pytest.fixture
def chain(tmp_path: Path) -> Order:
    return Order("chain", 1.0, 0, str(tmp_path))


def test_whole_counts_lose_nothing_even_over_several_sinks(words: Order) -> None:
    pairs = count_words(words, 50)
    told(words, 50)
    write_words(words, pairs[:200], "0")
    write_words(words, pairs[200:], "1")
    run = measured(words, 0.5, 3)
    assert (run.lost, run.duplicated, run.processes) == (0, 0, 3)


def test_a_word_that_was_not_counted_is_lost(words: Order) -> None:
    told(words, 50)
    write_words(words, count_words(words, 50)[:-1])
    assert measured(words, 0.5, 1).lost == 1


def test_a_pair_that_came_twice_is_duplicated(words: Order) -> None:
    pairs = count_words(words, 50)
    told(words, 50)
    write_words(words, [*pairs, pairs[-1]])
    run = measured(words, 0.5, 1)
    assert (run.lost, run.duplicated) == (0, 1)


def test_a_chain_may_be_out_of_order_but_not_incomplete(chain: Order) -> None:
    records = chain_records()
    sink = ChainSink(chain, "0")
    sink.write(records[::-1])
    sink.write([records[0], records[2], records[2], b"stranger"])
    sink.tell()
    told(chain, POOL + 3)
    run = measured(chain, 0.5, 1)
    assert run.lost == 1  # number 1 of the second turn
    assert run.duplicated == 2  # number 2, and one that nobody sent


def test_latency_is_of_every_record_from_when_it_was_due(tmp_path: Path) -> None:
    order = Order("chain", 1.0, 3, str(tmp_path))
    sink = ChainSink(order, "0")
    due_ns = SECOND
    records = [record_at("chain", number, due_ns) for number in range(3)]
    for record in records:
        sink.write([record])
    arrivals_ns = list(sink._arrivals_ns)
    sink.tell()
    told(order, 3)
    run = measured(order, 0.0, 1)
    assert run.latency_ms["p50"] == pytest.approx((arrivals_ns[1] - due_ns) / 1e6)
    assert (run.lost, run.duplicated, run.saturated) == (0, 0, False)


def test_a_source_that_gave_up_saturates_the_run(tmp_path: Path) -> None:
    order = Order("chain", 1.0, 10, str(tmp_path))
    sink = ChainSink(order, "0")
    sink.write([record_at("chain", 0, SECOND)])
    sink.tell()
    told(order, 1)
    assert measured(order, 0.0, 1).saturated


def test_a_run_that_ended_within_its_warm_up_is_no_measurement(words: Order) -> None:
    told(words, 1)
    write_words(words, count_words(words, 1))
    with pytest.raises(ValueError, match="warm-up of 3"):
        measured(words, 3.0, 1)


def test_merged_sinks_add_their_totals_over_time() -> None:
    one = {"samples": [(10, 1), (30, 5)], "latest": {"a": 3, "b": 1}}
    other = {"samples": [(20, 2)], "latest": {"a": 7}}
    sink = merged([one, other])
    assert sink["samples"] == [(10, 1), (20, 3), (30, 7)]
    assert sink["latest"] == {"a": 7, "b": 1}
