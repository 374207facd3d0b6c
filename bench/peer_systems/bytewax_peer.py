"""One Bytewax process: the whole dataflow, alone or together with a second process.

Tuned: the splitting operator emits (word, due) pairs itself, which saves `key_on`; the count takes
all values of a word in a batch at once (`stateful_batch`), which is what `stateful_map` is built
on. How many records the source hands out at once is an argument, since the best number differs;
fewer when fewer are due, and it says when the next one will be. No recovery store. In two
processes, both generate and count words; the chain has one source, and `redistribute` before each
operator and the sink.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from engine_peers.workloads import relay
from peer_systems.feed import Feed, Order
from peer_systems.serve import serve
from peer_systems.sinks import ChainSink, WordSink


class _Part(StatelessSourcePartition):  # type: ignore[misc]
    def __init__(self, feed: Feed, batch: int, paced: bool) -> None:
        self._feed = feed
        self._batch = batch
        self._paced = paced
        # Its times are of the wall clock, ours are monotonic.
        self._zero = datetime.now(UTC) - timedelta(microseconds=time.monotonic_ns() / 1_000)

    def next_batch(self) -> list[Any]:
        records = self._feed.take(self._batch)
        if records is None:
            self._feed.tell()
            raise StopIteration
        return records

    def next_awake(self) -> datetime | None:
        if not self._paced:
            return None
        return self._zero + timedelta(microseconds=self._feed.next_due_ns() / 1_000)


class _Nothing(StatelessSourcePartition):  # type: ignore[misc]
    def next_batch(self) -> list[Any]:
        raise StopIteration


class _Source(DynamicSource):  # type: ignore[misc]
    def __init__(self, order: Order, batch: int) -> None:
        self._order = order
        self._batch = batch

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        order = self._order
        if order.workload == "chain" and worker_index:
            return _Nothing()
        sources = worker_count if order.workload == "wordcount" else 1
        feed = Feed(order, worker_index, sources)
        return _Part(feed, self._batch, order.rate_per_s > 0)


class _WordPart(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, sink: WordSink) -> None:
        self._sink = sink
        self.close = sink.tell

    def write_batch(self, items: list[tuple[str, tuple[int, int]]]) -> None:
        words, values = zip(*items, strict=True)
        self._sink.write(words, *zip(*values, strict=True))


class _ChainPart(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, sink: ChainSink) -> None:
        self._sink = sink
        self.close = sink.tell

    def write_batch(self, items: list[bytes]) -> None:
        self._sink.write(items)


class _Sink(DynamicSink):  # type: ignore[misc]
    def __init__(self, order: Order) -> None:
        self._order = order

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        if self._order.workload == "chain":
            return _ChainPart(ChainSink(self._order, str(worker_index)))
        return _WordPart(WordSink(self._order, str(worker_index)))


class _Count(StatefulBatchLogic):  # type: ignore[misc]
    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[int]) -> tuple[list[tuple[int, int]], bool]:
        first = self._count + 1
        self._count += len(values)
        return list(enumerate(values, first)), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._count


def split(item: tuple[str, int]) -> list[tuple[str, int]]:
    """The words of a sentence, each with the sentence's due time."""
    sentence, due_ns = item
    return [(word, due_ns) for word in sentence.split()]


def dataflow(order: Order, processes: int, batch: int) -> Dataflow:
    """The workload."""
    flow = Dataflow(order.workload)
    stream = op.input("source", flow, _Source(order, batch))
    if order.workload == "wordcount":
        words = op.flat_map("split", stream, split)
        stream = op.stateful_batch("count", words, _Count)
    else:
        for name in ("a", "b"):
            if processes > 1:
                stream = op.redistribute(f"to_{name}", stream)
            stream = op.map(name, stream, relay)
        if processes > 1:
            stream = op.redistribute("to_sink", stream)
    op.output("sink", stream, _Sink(order))
    return flow


def carry_out(order: dict[str, Any]) -> None:
    """Run the workload; with `addresses`, as process `rank` of several."""
    addresses, rank, batch = (order.pop(name) for name in ("addresses", "rank", "batch"))
    flow = dataflow(Order(**order), max(len(addresses), 1), batch)
    cluster_main(flow, addresses, rank)


if __name__ == "__main__":
    serve(carry_out)
