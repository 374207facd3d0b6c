"""Vectorised maps: the records that came together, as one Arrow batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, Record
from tailrace.runtime.instance import Context
from tailrace.runtime.step import Step


def to_batch(records: list[Record], schema: Any = None) -> Any:
    """Records of one shape as a `pyarrow.RecordBatch`.

    Dicts have their columns' names in them and NamedTuples in their class; plain tuples need a
    schema. Without one, types are those that Arrow finds in these very records.
    """
    import pyarrow as pa

    shape = type(records[0])
    if issubclass(shape, dict):
        if schema is None:
            return pa.RecordBatch.from_pylist(records)
        return _columns([[record.get(name) for record in records] for name in schema.names], schema)
    if not issubclass(shape, tuple):
        raise TypeError(
            f"map_arrow got a {shape.__name__}; records must be dicts, tuples or NamedTuples"
        )
    names = schema.names if schema is not None else getattr(shape, "_fields", None)
    if names is None:
        raise TypeError("map_arrow got a plain tuple; give it a schema, so that columns have names")
    for record in records:
        if len(record) != len(names):
            raise ValueError(f"map_arrow got {record!r}, but the columns are {list(names)}")
    columns = list(zip(*records, strict=True))
    if schema is None:
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)
    return _columns(columns, schema)


def _columns(columns: Sequence[Sequence[Any]], schema: Any) -> Any:
    import pyarrow as pa

    from tailrace.runtime.columns import column

    arrays = [column(values, field) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_records(batch: Any, shape: type) -> list[Record]:
    """The rows of a RecordBatch or Table, in the shape of the records that went in."""
    if issubclass(shape, dict):
        rows: list[Record] = batch.to_pylist()
        return rows
    tuples: Iterable[Any] = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    if getattr(shape, "_fields", None) == tuple(batch.schema.names):
        return list(map(shape._make, tuples))  # type: ignore[attr-defined]
    return list(tuples)


class _ArrowStep(Step):
    def __init__(self, context: Context, logic: ArrowMap) -> None:
        import pyarrow as pa

        self._kinds = (pa.RecordBatch, pa.Table)
        self._context = context
        self._put = context.put(MAIN)
        self._function = logic.function
        self._schema = logic.schema

    def process(self, records: Iterator[Record], port: int) -> None:
        batch = list(records)
        if not batch:
            return
        try:
            results = self._apply(batch)
        except Exception:
            results = self._one_by_one(batch)
        if results:
            self._put(results)

    def _one_by_one(self, records: list[Record]) -> list[Record]:
        """Find out which record it was; the others have done nothing wrong."""
        results: list[Record] = []
        for record in records:
            try:
                results += self._apply([record])
            except Exception as error:
                self._context.fail(record, error)
        return results

    def _apply(self, records: list[Record]) -> list[Record]:
        result = self._function(to_batch(records, self._schema))
        if not isinstance(result, self._kinds):
            raise TypeError(
                f"the function of map_arrow gave a {type(result).__name__};"
                " it must give a pyarrow.RecordBatch or Table"
            )
        return to_records(result, type(records[0]))


@dataclass(frozen=True)
class ArrowMap:
    """A function from Arrow batch to Arrow batch."""

    function: Callable[[Any], Any]
    schema: Any = None

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _ArrowStep(context, self)
