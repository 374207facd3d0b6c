"""Rows of a DataFrame as records, and records as rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pyarrow as pa

from tailrace.graph.model import Record
from tailrace.runtime.columns import column


def records_of(
    batch: pa.RecordBatch, record: Callable[[dict[str, Any]], Record] | None = None
) -> list[Record]:
    """One record per row: the value itself for a single column, a dict for several.

    The value of a map column is a dict too, if its keys can be keys in Python. `record` makes
    something else of the row; it always gets the dict.

    >>> import pyarrow as pa
    >>> records_of(pa.RecordBatch.from_pydict({"n": [1, 2]}))
    [1, 2]
    >>> records_of(pa.RecordBatch.from_pydict({"n": [1, 2], "word": ["a", "b"]}))
    [{'n': 1, 'word': 'a'}, {'n': 2, 'word': 'b'}]
    >>> records_of(pa.RecordBatch.from_pydict({"n": [1, 2]}), lambda row: -row["n"])
    [-1, -2]
    """
    columns = list(map(_values, batch.columns))
    if record is None and len(columns) == 1:
        return columns[0]
    rows = [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    if record is None:
        return rows
    records = []
    for row in rows:
        try:
            records.append(record(row))
        except Exception as error:
            raise ValueError(f"the record function failed on the row {row!r}: {error!r}") from error
    return records


def _values(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    kind = array.type
    if pa.types.is_map(kind) and not pa.types.is_nested(kind.key_type):  # lists are no keys
        return [None if pairs is None else dict(pairs) for pairs in values]
    return values


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
        arrays = [column(values, field) for values, field in zip(columns, schema, strict=True)]
    except ValueError as error:
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
