"""Rows of Parquet files as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from tailrace.connectors.files import present
from tailrace.graph.model import Record
from tailrace.runtime.rows import records_of
from tailrace.runtime.source import Reader, Source, Split, shares


@dataclass(frozen=True)
class ParquetFiles(Source):
    """The rows of a Parquet file, of those in a directory, or of those that match a pattern.

    A file is a split; its row groups are cut into ranges, at most as many as there are instances
    at the start. An instance reads its splits one after the other in the order of their names, and
    holds a batch of rows of one row group. The files must not change meanwhile.
    """

    path: str
    record: Callable[[dict[str, Any]], Record] | None = None
    columns: tuple[str, ...] | None = None
    batch_rows: int = 4096

    rewinds = True
    open_at_once = 1

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise ValueError(f"batch_rows is {self.batch_rows}; it must be at least 1")

    def splits(self, parallelism: int) -> Sequence[Split]:
        """Ranges of the row groups of each file."""
        found: list[Split] = []
        for path in present(self.path):
            groups = pq.read_metadata(path).num_row_groups
            found += shares(max(1, min(parallelism, groups)), path)
        return found

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """A range of a file; a position is the number of its rows that were read."""
        return _ParquetReader(self, split, position or 0)


class _ParquetReader(Reader):
    def __init__(self, source: ParquetFiles, split: Split, rows: int) -> None:
        self._source = source
        self._rows = rows
        self._file = pq.ParquetFile(split.name)
        groups = self._file.num_row_groups
        begin, end = (groups * one // split.of for one in (split.index, split.index + 1))
        self._batches = self._read(range(begin, end), rows)
        self._records: list[Record] = []
        self._next = 0

    def _read(self, groups: range, skip: int) -> Iterator[Any]:
        """The batches of row groups, without so many rows at the beginning."""
        for group in groups:
            rows = self._file.metadata.row_group(group).num_rows
            if skip >= rows:
                skip -= rows
                continue
            columns = self._source.columns
            for batch in self._file.iter_batches(
                self._source.batch_rows,
                row_groups=[group],
                columns=None if columns is None else list(columns),
            ):
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)

    def poll(self, most: int) -> list[Record] | None:
        if self._next == len(self._records):
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._records, self._next = records_of(batch, self._source.record), 0
        records = self._records[self._next : self._next + most]
        self._next += len(records)
        self._rows += len(records)
        return records

    def position(self) -> int:
        return self._rows

    def close(self) -> None:
        self._file.close()
