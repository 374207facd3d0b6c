"""How the rows of a DataFrame become records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.graph.model import Record

if TYPE_CHECKING:
    import pyarrow as pa


def records_of(
    batch: pa.RecordBatch, record: Callable[[dict[str, Any]], Record] | None = None
) -> list[Record]:
    """One record per row: the value itself for a single column, a dict for several.

    `record` makes something else of the row; it always gets the dict.

    >>> import pyarrow as pa
    >>> records_of(pa.RecordBatch.from_pydict({"n": [1, 2]}))
    [1, 2]
    >>> records_of(pa.RecordBatch.from_pydict({"n": [1, 2], "word": ["a", "b"]}))
    [{'n': 1, 'word': 'a'}, {'n': 2, 'word': 'b'}]
    >>> records_of(pa.RecordBatch.from_pydict({"n": [1, 2]}), lambda row: -row["n"])
    [-1, -2]
    """
    if record is not None:
        return list(map(record, batch.to_pylist()))
    records: list[Record] = (batch.column(0) if batch.num_columns == 1 else batch).to_pylist()
    return records
