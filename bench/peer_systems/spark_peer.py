"""PySpark Structured Streaming in micro-batches, with Python operators, on local[2].

Tuned: micro-batches as fast as they go; two shuffle partitions, one per core; records travel as
Arrow batches; UI, query metrics and batches without data off. At full speed, a micro-batch has the
number of records below; with larger ones, a run would have too few of them.

The feed is a source in Python whose offset is the number of records due by now, so that nothing is
generated before it is due or waits in a queue outside of Spark. Sentences are split and records of
the chain are passed on by `mapInArrow`, and the sink is one more `mapInArrow` in front of Spark's
`noop`. Words are counted by `applyInPandasWithState` with the default state store or by
`transformWithState`, which wants the RocksDB one: an argument says which. Records of the chain go
from the JVM to a Python worker and back in every hop.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from peer_systems.feed import Order, record_at, tell_source
from peer_systems.serve import serve
from peer_systems.sinks import ChainSink, WordSink

ROWS_PER_BATCH = {"wordcount": 20_000, "chain": 100_000}
PARTITIONS = 2
SCHEMAS = {"wordcount": "sentence string, due long", "chain": "record binary"}
WORD = "word string, due long"
COUNT = "word string, count long, due long"
STATE_STORES = {
    "applyInPandasWithState": "HDFSBackedStateStoreProvider",
    "transformWithState": "RocksDBStateStoreProvider",
}
_tasks = count()


@dataclass
class _Part(InputPartition):  # type: ignore[misc]
    start: int
    stop: int
    first_ns: int


class _Reader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, order: Order) -> None:
        self._order = order
        self._first_ns = 0
        self._told = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        order, now_ns = self._order, time.monotonic_ns()
        if not self._first_ns:
            self._first_ns = now_ns
        elapsed_s = (now_ns - self._first_ns) / 1e9
        at = start["at"]
        if order.rate_per_s:
            at = min(int(elapsed_s * order.rate_per_s) + 1, order.planned)
            ended = at == order.planned
        else:
            ended = elapsed_s >= order.seconds
            if not ended:
                at += ROWS_PER_BATCH[order.workload]
        if ended and not self._told:
            self._told = True
            tell_source(order, 0, at, self._first_ns, now_ns)
        return {"at": at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["at"], end["at"]
        edges = [first + (last - first) * part // PARTITIONS for part in range(PARTITIONS + 1)]
        pairs = pairwise(edges)
        return [_Part(*pair, self._first_ns) for pair in pairs if pair[0] < pair[1]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        order = self._order
        gap_ns = 1e9 / order.rate_per_s if order.rate_per_s else 0.0
        first_ns = partition.first_ns if gap_ns else 0
        records = [
            record_at(order.workload, number, first_ns + int(number * gap_ns))
            for number in range(partition.start, partition.stop)
        ]
        if order.workload == "chain":
            yield pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], ["record"])
        else:
            sentences, dues = zip(*records, strict=True)
            columns = [pa.array(sentences, pa.string()), pa.array(dues, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, ["sentence", "due"])


class Records(DataSource):  # type: ignore[misc]
    """The feed as a source of Spark."""

    @classmethod
    def name(cls) -> str:
        return "records"

    def schema(self) -> str:
        return SCHEMAS[_order(self.options).workload]

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return _Reader(_order(self.options))


def _order(options: Any) -> Order:
    return Order(**json.loads(options["order"]))


def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The words of sentences, each with the sentence's due time."""
    for batch in batches:
        words: list[str] = []
        dues: list[int] = []
        for sentence, due in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            of_sentence = sentence.split()
            words += of_sentence
            dues += [due] * len(of_sentence)
        columns = [pa.array(words, pa.string()), pa.array(dues, pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, ["word", "due"])


def counted(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Count one word on; every occurrence has its count."""
    total = state.get[0] if state.exists else 0
    for frame in frames:
        counts = range(total + 1, total + 1 + len(frame))
        total += len(frame)
        yield pd.DataFrame({"word": key[0], "count": counts, "due": frame["due"].to_numpy()})
    state.update((total,))


class Count(StatefulProcessor):  # type: ignore[misc]
    """The same for `transformWithState`."""

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        found = self._total.get()
        total = found[0] if found else 0
        for row in rows:
            total += 1
            yield Row(word=key[0], count=total, due=row.due)
        self._total.update((total,))

    def close(self) -> None: ...


def relay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the two operators of the chain do."""
    yield from batches


def take(order: Order, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sink of one task; nothing goes on from here."""
    name = f"{os.getpid()}-{next(_tasks)}"
    words = order.workload == "wordcount"
    sink = WordSink(order, name) if words else ChainSink(order, name)
    for batch in batches:
        if batch.num_rows:
            sink.write(*(column.to_pylist() for column in batch.columns))
    sink.tell()
    return iter(())


def _session() -> SparkSession:
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Records)
    return spark


def _counts(words: DataFrame, counting: str) -> DataFrame:
    groups = words.groupBy("word")
    if counting == "transformWithState":
        return groups.transformWithState(Count(), COUNT, "update", "None")
    timeout = GroupStateTimeout.NoTimeout
    return groups.applyInPandasWithState(counted, COUNT, "count long", "update", timeout)


def carry_out(spark: SparkSession, told: dict[str, Any]) -> None:
    """Run the workload as one query; `counting` names the way to count words."""
    counting = told.pop("counting")
    order = Order(**told)
    stream = spark.readStream.format("records").option("order", order.to_json()).load()
    if order.workload == "wordcount":
        provider = f"org.apache.spark.sql.execution.streaming.state.{STATE_STORES[counting]}"
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        end = _counts(stream.mapInArrow(split, WORD), counting)
    else:
        end = stream.mapInArrow(relay, SCHEMAS["chain"]).mapInArrow(relay, SCHEMAS["chain"])
    written = end.mapInArrow(partial(take, order), "nothing long").writeStream.format("noop")
    checkpoints = str(Path(order.folder) / "checkpoints")
    query = written.outputMode("update").option("checkpointLocation", checkpoints).start()
    try:
        while not (Path(order.folder) / "source-0.json").exists():
            if query.awaitTermination(0.05):
                raise RuntimeError(f"the query ended early: {query.exception()}")
        query.processAllAvailable()
    finally:
        query.stop()


if __name__ == "__main__":
    from peer_systems import spark_peer

    # Not this module, which is called __main__ here and is elsewhere in Spark's workers.
    serve(partial(spark_peer.carry_out, spark_peer._session()))
