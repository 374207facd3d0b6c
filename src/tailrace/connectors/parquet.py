"""Rows into Parquet files, which Spark and pyarrow read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.connectors import epoch_files
from tailrace.connectors.epoch_files import EpochFiles, Prepared, local_directory
from tailrace.connectors.parts import Part, part_name
from tailrace.graph.model import Record
from tailrace.runtime.names import names_of
from tailrace.runtime.rows import as_dict, to_batch
from tailrace.runtime.sink import Sink, Writing
from tailrace.runtime.step import in_batches

_INFER_ROWS = 1024
_BATCH_ROWS = 4096
_MERGE_BATCHES = 256


def _named(record: Record) -> dict[str, Any]:
    """A record as a row before there is a schema: by its names, or by numbers as in Spark."""
    if names_of(record) is not None:
        return as_dict(record)
    if isinstance(record, tuple | list):
        return {f"_{number}": value for number, value in enumerate(record, 1)}
    raise TypeError(
        f"a row is a dict, dataclass, NamedTuple, struct, Row or tuple; this is a"
        f" {type(record).__name__}: {record!r:.100}"
    )


def _with_row(schema: pa.Schema, rows: list[dict[str, Any]], row: dict[str, Any]) -> pa.Schema:
    """The schema of rows and of one more; ValueError if that does not go with them."""
    try:
        types = {name: pa.array([value]).type for name, value in row.items()}
        found = pa.unify_schemas([schema, pa.schema(types)], promote_options="permissive")
        to_batch([row] if found == schema else [*rows, row], found)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the row does not go with the {len(rows)} before it: {error}") from error
    return found


@dataclass
class Parquet(Sink):
    """Rows into a directory, which Spark can read as a table at any time.

    A row is a dict, dataclass, NamedTuple, msgspec struct or Spark's Row, or a tuple or list in the
    order of the columns; with a single column, also its value (see `tailrace.runtime.rows`).
    Without a schema, the first rows (at most 1024, or those of the first file) give one, and tuples
    have the columns `_1`, `_2` ... as in Spark; a file appears then only if there are rows. A
    column that has no value in these rows is text from then on: with `every_s`, which may leave few
    of them, better give a schema. A row that does not go with those before it fails alone.

    Instance i writes the file `part-0000i.parquet`, which appears, whole, when the input has ended.
    An instance that fails leaves nothing; others that had ended by then have their files.

    With `every_s` or `every_rows` it writes many files, `part-0000i-<job>-<number>.parquet`, beside
    those that are there. Each appears, whole, when its time is over or it has its rows, and stays,
    also if the job fails later: so Spark reads the output of a job that never ends, as a table or
    as a stream. Many small files make reading slow; let there be few per minute if you can wait.

    Under checkpoints every epoch with rows is a file of its own, or more with `every_rows`:
    `part-0000i-<job>-<operator>-<epoch>-<number>.parquet`. They appear, whole, when the epoch is
    committed: every row exactly once, whatever fails. `every_s` and `overwrite` have no meaning
    then. A schema that was found from rows stays the job's.

    Writing a row group holds up the worker for as long as it takes to compress it; letting a file
    appear, for as long as it takes to get it onto the disk.
    """

    path: str
    schema: Any = None
    """A pyarrow schema, or a dict of names and pyarrow types."""
    group_rows: int = 32_768
    group_bytes: int = 32 << 20
    """A row group is written when it has at least so many rows, or takes so much memory."""
    compression: str = "snappy"
    overwrite: bool = False
    """Replace files of the same names; others in the directory stay."""
    every_s: float | None = None
    every_rows: int | None = None
    """A file appears after so many seconds, if it has rows, or with at least so many rows."""
    guarantee = "exactly once"
    tied = True
    _writing: Writing = field(init=False, repr=False)
    _epochs: EpochFiles | None = field(default=None, init=False, repr=False)
    _inferred: bytes | None = field(default=None, init=False, repr=False)
    """The schema, if it was found from rows."""
    _files: int = field(default=0, init=False, repr=False)
    _file_rows: int = field(default=0, init=False, repr=False)
    _part: Part | None = field(default=None, init=False, repr=False)
    _writer: Any = field(default=None, init=False, repr=False)
    _waiting: list[dict[str, Any]] = field(init=False, repr=False)
    """Rows from which the schema will be inferred; each goes with the others."""
    _found: Any = field(init=False, repr=False)
    """The schema of these rows."""
    _made: deque[Any] = field(init=False, repr=False)
    """Batches of rows that are to be written."""
    _batches: list[Any] = field(init=False, repr=False)
    _merged: list[Any] = field(init=False, repr=False)
    _rows: int = field(default=0, init=False, repr=False)
    _bytes: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = local_directory(self.path)
        if self.group_rows < 1 or self.group_bytes < 1:
            raise ValueError(
                f"group_rows is {self.group_rows} and group_bytes {self.group_bytes}; "
                "both must be at least 1"
            )
        if self.every_rows is not None and self.every_rows < 1:
            raise ValueError(f"every_rows is {self.every_rows}; it must be at least 1")
        if self.every_s is not None and self.every_s <= 0:
            raise ValueError(f"every_s is {self.every_s}; it must be more than 0")
        if self.schema is not None:
            self.schema = pa.schema(self.schema)

    @property
    def _rolls(self) -> bool:
        return self.every_s is not None or self.every_rows is not None

    def begin(self, writing: Writing) -> None:
        """Begin the hidden file; if there will be many, only the directory."""
        self._writing = writing
        self._waiting, self._batches, self._merged = [], [], []
        self._made = deque()
        self._found = pa.schema([])
        if writing.epoch is not None:
            self.every_s = None
            self._epochs = EpochFiles(Path(self.path), "parquet", writing)
            return
        if self._rolls:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            return
        name = part_name(writing.index, "parquet")
        self._part = Part(Path(self.path), name, writing, overwrite=self.overwrite)
        if self.schema is not None:
            self._begin()

    def _begin(self) -> None:
        if self._epochs is not None:
            self._writer = self._open(self._epochs.file)
            return
        if self._rolls:
            job, number = self._writing.job, self._files
            name = f"part-{self._writing.index:05}-{job}-{number:06}.parquet"
            self._part = Part(Path(self.path), name, self._writing, number)
            self._files += 1
        assert self._part is not None, "not open"
        self._writer = self._open(self._part.file)

    def _open(self, file: IO[bytes]) -> pq.ParquetWriter:
        return pq.ParquetWriter(file, self.schema, compression=self.compression)

    def write(self, records: Iterator[Record]) -> None:
        """Take rows; write row groups as they fill."""
        if self.schema is None:
            self._infer(records)
            return
        # First all rows, any of which may be at fault, then the disk: nothing is done twice.
        in_batches(records, self._make, _BATCH_ROWS)
        self._store()

    def _infer(self, records: Iterator[Record]) -> None:
        for record in records:
            row = _named(record)
            self._found = _with_row(self._found, self._waiting, row)
            self._waiting.append(row)
            if len(self._waiting) >= min(_INFER_ROWS, self.every_rows or _INFER_ROWS):
                self._settle()
                self.write(records)

    def _settle(self) -> None:
        """Make a schema of the rows that wait for one."""
        # A column without any value yet: of the types it may have, text is the likeliest.
        self.schema = pa.schema(
            (name, pa.string() if pa.types.is_null(kind) else kind)
            for name, kind in zip(self._found.names, self._found.types, strict=True)
        )
        self._inferred = self.schema.serialize().to_pybytes()
        rows, self._waiting = self._waiting, []
        self._make(rows)
        self._store()

    def _make(self, rows: list[Record]) -> None:
        if rows:
            self._made.append(to_batch(rows, self.schema))

    def _store(self) -> None:
        with nullcontext() if self._epochs is None else self._epochs.writing():
            while self._made:
                self._add(self._made.popleft())

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._begin()
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._file_rows += batch.num_rows
        self._bytes += batch.get_total_buffer_size()
        if self._rows >= self.group_rows or self._bytes >= self.group_bytes:
            self._write_group()
        elif len(self._batches) >= _MERGE_BATCHES:
            self._merge()
        if self.every_rows is not None and self._file_rows >= self.every_rows:
            self._appear()

    def _merge(self) -> None:
        """Small batches into one: a batch takes memory beside its rows."""
        table = pa.Table.from_batches(self._batches, self.schema)
        self._merged += table.combine_chunks().to_batches()
        self._batches = []

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._merged + self._batches, self.schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._merged, self._batches = [], []
        self._rows = self._bytes = 0

    def tick(self) -> None:
        """Let the rows appear that have come so far."""
        self.finish()

    def finish(self) -> None:
        """Write what is left and let the file appear; under checkpoints, an epoch does that."""
        if self._epochs is None:
            self._complete()

    def _complete(self) -> None:
        if self._waiting:
            self._settle()
        self._store()
        self._appear()

    def _appear(self) -> None:
        if self._batches or self._merged:
            self._write_group()
        if self._writer is not None:
            self._writer.close()
            if self._epochs is not None:
                self._epochs.complete()
            else:
                assert self._part is not None, "not open"
                self._part.commit()
            self._part = self._writer = None
            self._file_rows = 0

    def close(self) -> None:
        """Remove the file if the input has not ended; what was prepared stays."""
        self._close_writer()
        if self._part is not None:
            self._part.discard()
        if self._epochs is not None:
            self._epochs.close()

    def _close_writer(self) -> None:
        if self._writer is not None and self._writer.is_open:
            with suppress(OSError, ValueError):  # it writes the end of a file that goes away
                self._writer.close()

    # ---- checkpoints ----

    def prepare(self, epoch: int) -> Prepared | None:
        """End the hidden files of the rows since the last epoch."""
        assert self._epochs is not None, "not under checkpoints"
        with self._epochs.writing():
            self._complete()
        return self._epochs.prepare(epoch)

    def sync(self, handle: Any) -> None:
        """Have files on the disk."""
        assert self._epochs is not None, "not under checkpoints"
        self._epochs.sync(handle)

    def commit(self, handle: Any) -> None:
        """Let files appear."""
        epoch_files.commit(handle)

    def abort(self, handle: Any) -> None:
        """Remove files."""
        if self._epochs is not None:
            self._epochs.aborted(handle)
        epoch_files.abort(handle)

    def roll_back(self) -> None:
        """Remove the rows since the last epoch."""
        self._close_writer()
        self._writer = None
        self._waiting, self._batches, self._merged = [], [], []
        self._made = deque()
        self._found = pa.schema([])
        self._rows = self._bytes = self._file_rows = 0
        if self._epochs is not None:
            self._epochs.discard()

    def snapshot(self) -> bytes | None:
        """The schema, if rows gave it."""
        return self._inferred

    def restore(self, snapshot: bytes) -> None:
        """Have the columns that the job had before."""
        if self.schema is None:
            self._inferred = snapshot
            self.schema = pa.ipc.read_schema(pa.BufferReader(snapshot))
