"""Records as rows and rows as records: the same for Parquet, DataFrames and vectorised maps.

A record is a row if its values have names (dicts, dataclasses, NamedTuples, msgspec structs,
Spark's Rows) or if it is a tuple or a list in the order of the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pyarrow as pa

from tailrace.graph.model import Record
from tailrace.runtime.columns import column
from tailrace.runtime.names import names_of


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


def to_batch(records: Sequence[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Records as rows of a schema; ValueError if one does not fit.

    What has names has the columns by name: a name that is missing is null, one that the schema
    does not have is an error. Tuples and lists have them by position, all of them. With a single
    column, what is no row is that column's value; so is everything if the column is itself of maps
    or structs (or, for tuples, of lists).

    >>> schema = pa.schema({"n": pa.int64(), "word": pa.string()})
    >>> to_batch([{"n": 1}, (2, "b")], schema).to_pylist()
    [{'n': 1, 'word': None}, {'n': 2, 'word': 'b'}]
    """
    try:
        columns = _columns(records, schema)
        arrays = [column(values, field) for values, field in zip(columns, schema, strict=True)]
    except ValueError as error:
        raise ValueError(f"{error}; the columns are {_told(schema)}") from error
    for array, field in zip(arrays, schema, strict=True):
        if array.null_count and not field.nullable:
            raise ValueError(
                f"a row has None for {field.name!r}, which must have a value;"
                f" the columns are {_told(schema)}"
            )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(records: Sequence[Record], schema: pa.Schema) -> Sequence[Sequence[Any]]:
    names: list[str] = schema.names
    if len(names) == 1:
        return [[_single(record, schema.field(0)) for record in records]]
    kinds = set(map(type, records))
    if kinds == {dict}:  # the usual case, column by column
        known = set(names)
        if all(map(known.issuperset, records)):
            return [[record.get(name) for record in records] for name in names]
    if kinds <= {tuple, list} and all(len(record) == len(names) for record in records):
        rows = records
    else:
        rows = [_row(record, names) for record in records]
    return list(zip(*rows, strict=True)) if rows else [[] for _ in names]


def _row(record: Record, names: list[str]) -> Sequence[Any]:
    found = names_of(record)
    if found is None:
        if not isinstance(record, tuple | list):
            raise ValueError(
                f"a {type(record).__name__} is no row, it has no columns: {record!r:.100}; rows are"
                " dicts, dataclasses, NamedTuples, structs, Rows, or tuples by position"
            )
        if len(record) != len(names):
            raise ValueError(f"a row has {len(record)} values, {record!r:.100}, not {len(names)}")
        return record
    unknown = [name for name in found if name not in names]
    if unknown:
        raise ValueError(f"a row has {unknown}, which are no columns: {record!r:.100}")
    values = as_dict(record)
    return [values.get(name) for name in names]


def _single(record: Record, field: pa.Field) -> Any:
    """The value of the only column."""
    types, kind = pa.types, field.type
    if types.is_struct(kind) or types.is_map(kind):
        return record
    if names_of(record) is not None:
        return _row(record, [field.name])[0]
    if isinstance(record, tuple | list) and len(record) == 1 and not types.is_nested(kind):
        return record[0]
    return record


def as_dict(record: Record) -> dict[str, Any]:
    """A record whose values have names, as a dict."""
    if isinstance(record, dict):
        return record
    names = names_of(record)
    assert names is not None, "no names"
    if isinstance(record, tuple):
        return dict(zip(names, record, strict=True))
    return {name: getattr(record, name) for name in names}


def in_shape(batch: Any, shape: type) -> list[Record]:
    """The rows of a RecordBatch or Table as records of a class, if they have its names.

    Otherwise they are tuples; or dicts, if the class is dict.
    """
    if issubclass(shape, dict):
        rows: list[Record] = batch.to_pylist()
        return rows
    tuples = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    names = tuple(batch.schema.names)
    if getattr(shape, "_fields", None) == names:
        return list(map(shape._make, tuples))  # type: ignore[attr-defined]
    if is_dataclass(shape) and tuple(one.name for one in fields(shape)) == names:
        return [shape(*row) for row in tuples]
    if getattr(shape, "__struct_fields__", None) == names:
        return [shape(**dict(zip(names, row, strict=True))) for row in tuples]
    return list(tuples)


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
