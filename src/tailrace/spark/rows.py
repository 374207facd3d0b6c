"""Rows of a DataFrame as records, and records as rows, inside one task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pyarrow as pa

from tailrace.graph.model import Record
from tailrace.runtime.instance import Context
from tailrace.runtime.source import Reader, Source
from tailrace.runtime.step import Step

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

    def open(
        self, index: int, parallelism: int, clock_ns: Callable[[], int], position: Any = None
    ) -> Reader:
        """The rows for one instance."""
        return _PartitionReader(self, index)

    def take(self, index: int, most: int) -> list[Record] | None:
        """Up to `most` records of an instance; none if others have to take theirs first."""
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
        for index, record in zip(instances.to_pylist(), self._records(rows), strict=True):
            if index not in self._queues:
                raise RuntimeError(
                    f"rows of instance {index} of the source came to a worker that has instances"
                    f" {list(self._queues)}: Spark has not kept the partitions it was asked for"
                )
            self._queues[index].append(record)

    def _records(self, rows: pa.RecordBatch) -> Iterator[Record]:
        if self._record is None:
            yield from rows.column(0).to_pylist() if rows.num_columns == 1 else rows.to_pylist()
            return
        for row in rows.to_pylist():
            try:
                yield self._record(row)
            except Exception as error:
                raise ValueError(f"the record function failed on the row {row!r}: {error!r}") from (
                    error
                )


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
        return _ResultsStep(self, context)

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
    def __init__(self, results: Results, context: Context) -> None:
        self._results = results
        self._context = context

    def process(self, records: Iterator[Record], port: int) -> None:
        batch = list(records)
        try:
            self._results.add(to_rows(batch, self._results.schema))
        except Exception:
            for record in batch:  # find out which it was; the others have done nothing wrong
                try:
                    self._results.add(to_rows([record], self._results.schema))
                except Exception as error:
                    self._context.fail(record, error)


def to_rows(records: list[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Records as rows.

    With one column a record is its value. Otherwise dicts, dataclasses, NamedTuples and msgspec
    structs have the columns by name, no more and no fewer, and plain tuples by position.
    """
    names: list[str] = schema.names
    rows = (
        [(record,) for record in records]
        if len(names) == 1
        else [_row(record, names) for record in records]
    )
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    try:
        arrays = [
            pa.array(list(column), field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the result does not fit the columns {_columns(schema)}: {error}") from (
            error
        )
    for array, field in zip(arrays, schema, strict=True):
        if array.null_count and not field.nullable:
            raise ValueError(
                f"the result has None for {field.name!r}, which the columns {_columns(schema)}"
                " do not allow"
            )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _row(record: Record, names: list[str]) -> tuple[Any, ...]:
    found = _names(record)
    if found is None:
        if isinstance(record, tuple | list) and len(record) == len(names):
            return tuple(record)
        what = (
            f"has {len(record)} values"
            if isinstance(record, tuple | list)
            else f"is a {type(record).__name__}, which has no columns"
        )
        raise ValueError(f"the result {what}; the columns are {names}")
    if len(found) != len(names) or set(found) != set(names):
        raise ValueError(f"the result has {found}; the columns are {names}")
    if isinstance(record, dict):
        return tuple(record[name] for name in names)
    return tuple(getattr(record, name) for name in names)


def _names(record: Record) -> list[str] | None:
    """The names of what is in a record, if it has names."""
    if isinstance(record, dict):
        return list(record)
    if is_dataclass(record):
        return [field.name for field in fields(record)]
    names = getattr(record, "_fields", None) or getattr(record, "__struct_fields__", None)
    return None if names is None else list(names)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
