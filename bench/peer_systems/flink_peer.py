"""PyFlink in thread mode: Python runs inside the JVM, which is one process with its mini cluster.

Tuned: thread mode; parallelism 1, because the Python operators of one JVM share one interpreter
lock (2 was slower in word count); explicit types, so that nothing is pickled; object reuse;
state on the heap; no checkpoints; network buffers flushed after every millisecond when paced, after
100 when not. Bundles, which delay records in process mode, do not exist in thread mode.

PyFlink has no sources in Python: one number starts an operator that then generates, as lazily as
Flink asks for the next record. The chain's operators are in tasks of their own, one hop each.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import (
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

from engine_peers.workloads import relay
from peer_systems.feed import Feed, Order
from peer_systems.serve import serve
from peer_systems.sinks import ChainSink, WordSink

BATCH = 64
SENTENCE = Types.TUPLE([Types.STRING(), Types.LONG()])
WORD = Types.TUPLE([Types.STRING(), Types.LONG()])
COUNT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
RECORD = Types.PRIMITIVE_ARRAY(Types.BYTE())


class _Source(FlatMapFunction):  # type: ignore[misc]
    def __init__(self, order: Order) -> None:
        self._order = order

    def flat_map(self, value: int) -> Iterator[Any]:
        feed = Feed(self._order)
        while (records := feed.take(BATCH)) is not None:
            if records:
                yield from records
            else:
                # No spinning: all operators share the interpreter lock.
                time.sleep(max(feed.next_due_ns() - time.monotonic_ns(), 0) / 1e9)
        feed.tell()


class _Split(FlatMapFunction):  # type: ignore[misc]
    def flat_map(self, value: tuple[str, int]) -> Iterator[tuple[str, int]]:
        sentence, due_ns = value
        for word in sentence.split():
            yield word, due_ns


class _Count(KeyedProcessFunction):  # type: ignore[misc]
    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int, int]]:
        word, due_ns = value
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield word, count, due_ns


class _WordSink(MapFunction):  # type: ignore[misc]
    def __init__(self, order: Order) -> None:
        self._order = order

    def open(self, runtime_context: Any) -> None:
        self._sink = WordSink(self._order, "0")

    def map(self, value: tuple[str, int, int]) -> int:
        word, count, due_ns = value
        self._sink.write((word,), (count,), (due_ns,))
        return count

    def close(self) -> None:
        self._sink.tell()


class _ChainSink(MapFunction):  # type: ignore[misc]
    def __init__(self, order: Order) -> None:
        self._order = order

    def open(self, runtime_context: Any) -> None:
        self._sink = ChainSink(self._order, "0")

    def map(self, value: bytes) -> int:
        self._sink.write((value,))
        return len(value)

    def close(self) -> None:
        self._sink.tell()


def carry_out(told: dict[str, Any]) -> None:
    """Run the workload as one job."""
    order = Order(**told)
    settings = Configuration()
    for name, value in {
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "pipeline.object-reuse": "true",
        "execution.buffer-timeout.interval": "1 ms" if order.rate_per_s else "100 ms",
        "restart-strategy.type": "none",
        "rest.port": "0",
    }.items():
        settings.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(1)
    one = environment.from_source(
        NumberSequenceSource(0, 0), WatermarkStrategy.no_watermarks(), "start", Types.LONG()
    )
    if order.workload == "wordcount":
        words = one.flat_map(_Source(order), SENTENCE).flat_map(_Split(), WORD)
        counts = words.key_by(lambda word: word[0], Types.STRING()).process(_Count(), COUNT)
        end = counts.map(_WordSink(order), Types.LONG())
    else:
        stream = one.flat_map(_Source(order), RECORD)
        for _ in "ab":
            stream = stream.rebalance().map(relay, RECORD)
        end = stream.rebalance().map(_ChainSink(order), Types.LONG())
    discard = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    end._j_data_stream.sinkTo(discard)  # every operator has to end in a sink of Flink's
    environment.execute(order.workload)


if __name__ == "__main__":
    serve(carry_out)
