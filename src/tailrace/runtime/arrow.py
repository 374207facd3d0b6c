"""Vectorised maps: the records that came together, as one Arrow batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, Record
from tailrace.runtime.instance import Context
from tailrace.runtime.names import names_of
from tailrace.runtime.step import Step, in_batches


def to_batch(records: list[Record], schema: Any = None) -> Any:
    """Records as a `pyarrow.RecordBatch`; see `tailrace.runtime.rows` for what can be a row.

    Without a schema, types are those that Arrow finds in these very records, and all of them must
    have names: plain tuples need a schema.
    """
    import pyarrow as pa

    from tailrace.runtime import rows

    if schema is not None:
        return rows.to_batch(records, schema)
    for record in records:
        if names_of(record) is None:
            kind = type(record).__name__
            if isinstance(record, tuple | list):
                raise TypeError(
                    f"map_arrow got a plain {kind}; give it a schema, so that columns have names"
                )
            raise TypeError(
                f"map_arrow got a {kind}; records must be dicts, dataclasses, NamedTuples, structs,"
                " Rows, or tuples with a schema"
            )
    found = list(map(rows.as_dict, records))
    names = dict.fromkeys(name for row in found for name in row)
    return pa.RecordBatch.from_pydict({name: [row.get(name) for row in found] for name in names})


class _ArrowStep(Step):
    def __init__(self, context: Context, logic: ArrowMap) -> None:
        import pyarrow as pa

        from tailrace.runtime.rows import in_shape

        self._kinds = (pa.RecordBatch, pa.Table)
        self._in_shape = in_shape
        self._kept: list[Record] = []
        self._put = context.put(MAIN)
        self._function = logic.function
        self._schema = logic.schema

    def process(self, records: Iterator[Record], port: int) -> None:
        in_batches(records, self._take)
        if self._kept:
            kept, self._kept = self._kept, []
            self._put(kept)

    def _take(self, records: list[Record]) -> None:
        result = self._function(to_batch(records, self._schema))
        if not isinstance(result, self._kinds):
            raise TypeError(
                f"the function of map_arrow gave a {type(result).__name__};"
                " it must give a pyarrow.RecordBatch or Table"
            )
        self._kept += self._in_shape(result, type(records[0]))


@dataclass(frozen=True)
class ArrowMap:
    """A function from Arrow batch to Arrow batch."""

    function: Callable[[Any], Any]
    schema: Any = None

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _ArrowStep(context, self)
