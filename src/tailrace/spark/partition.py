"""The rows of one task of a transform: the source that reads them, and the sink that makes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tailrace.graph.model import Record
from tailrace.runtime.instance import Context
from tailrace.runtime.rows import records_of, to_batch
from tailrace.runtime.source import Reader, Source, Split
from tailrace.runtime.step import Step, in_batches

INSTANCE = "tailrace_instance"
"""The last column of the rows on their way in: which instance of the source they are for."""

_AHEAD_ROWS = 50_000
"""Rows kept for instances that are slower than others of the same worker, at most a batch more."""
_BATCH_ROWS = 8192
_BATCH_BYTES = 4 << 20


class Partition(Source):
    """The rows of this task as a source; read from Spark only as its instances are polled."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        instances: Sequence[int],
        record: Callable[[dict[str, Any]], Record] | None,
    ) -> None:
        self._batches = batches
        self._record = record
        self._queues: dict[int, deque[Record]] = {i: deque() for i in instances}
        self._first: list[pa.RecordBatch] = []
        self._ended = False

    def prepare(self) -> None:
        """Wait for the first rows: Spark may have to sort all of them before there are any."""
        self._first = [batch for batch in [next(self._batches, None)] if batch is not None]

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """The rows for one instance of as many as there are splits."""
        return _PartitionReader(self, split.index)

    def take(self, index: int, most: int) -> list[Record] | None:
        """Up to `most` records of an instance; none if others have to take theirs first.

        In a list of their own, which is the caller's.
        """
        queue = self._queues[index]
        while not queue and not self._ended:
            if sum(map(len, self._queues.values())) >= _AHEAD_ROWS:
                return []
            self._read()
        if not queue:
            return None
        return [queue.popleft() for _ in range(min(most, len(queue)))]

    def _read(self) -> None:
        batch = self._first.pop() if self._first else next(self._batches, None)
        if batch is None:
            self._ended = True
            return
        *columns, instances = batch.columns
        rows = pa.RecordBatch.from_arrays(columns, batch.schema.names[:-1])
        for index, record in zip(
            instances.to_pylist(), records_of(rows, self._record), strict=True
        ):
            if index not in self._queues:
                raise RuntimeError(
                    f"rows of instance {index} of the source came to a worker that has instances"
                    f" {list(self._queues)}: Spark has not kept the partitions it was asked for"
                )
            self._queues[index].append(record)


class _PartitionReader(Reader):
    def __init__(self, partition: Partition, index: int) -> None:
        self._partition = partition
        self._index = index

    def poll(self, most: int) -> list[Record] | None:
        return self._partition.take(self._index, most)


class Results:
    """Takes the place of a sink: its records become rows of a schema, gathered for the task."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._rows = self._bytes = 0
        self._batches: list[pa.RecordBatch] = []

    def start(self, context: Context) -> Step:
        """Make the step of one instance."""
        return _ResultsStep(self)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep rows until they are taken."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    @property
    def plenty(self) -> bool:
        """Whether there is enough to be taken."""
        return self._rows >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES

    def take(self) -> list[pa.RecordBatch]:
        """All rows since the last time, in batches of a size that Spark likes."""
        table = pa.Table.from_batches(self._batches, self.schema).combine_chunks()
        self._batches, self._rows, self._bytes = [], 0, 0
        batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=_BATCH_ROWS)
        return batches


class _ResultsStep(Step):
    def __init__(self, results: Results) -> None:
        self._results = results

    def process(self, records: Iterator[Record], port: int) -> None:
        in_batches(records, self._take)

    def _take(self, records: list[Record]) -> None:
        self._results.add(to_batch(records, self._results.schema))
