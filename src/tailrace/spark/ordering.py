"""By which column the rows of a DataFrame must be ordered, so that event time finds none late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.graph.model import Graph, Record, Rule
from tailrace.graph.validate import TopologyError
from tailrace.runtime.event_time import EventTime
from tailrace.runtime.operators import Filter, Split


class _Cell:
    """Stands for the value of a column when a function of a row is tried out.

    What is done to it here keeps the order of values: other things it does not know.
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def timestamp(self) -> _Cell:
        return self

    def __add__(self, other: float) -> _Cell:
        return self._with(other, positive=False)

    __radd__ = __sub__ = __add__

    def __mul__(self, other: float) -> _Cell:
        return self._with(other, positive=True)

    __rmul__ = __truediv__ = __floordiv__ = __mul__

    def _with(self, other: float, positive: bool) -> _Cell:
        if not isinstance(other, int | float) or (positive and other <= 0):
            raise TypeError(f"{other!r} may change the order")
        return self


def time_columns(
    graph: Graph,
    source: str,
    columns: list[str],
    record: Callable[[dict[str, Any]], Record] | None = None,
) -> list[str]:
    """The column that is the event time of the source's records; none if they have no event time.

    It is found by trying the functions out on a row of stand-ins. Where that cannot be, because
    records change on the way to `event_time`, or because its function does more than read a column,
    a TopologyError says what to do.
    """
    found: dict[str, str] = {}
    waiting, seen = [source], {source}
    while waiting:
        name = waiting.pop()
        for stream in graph.out_of(name):
            operator = graph.operator(stream.target)
            if isinstance(operator.logic, EventTime):
                copies = graph.operator(name).parallelism
                if copies > 1 and stream.grouping.rule is not Rule.FORWARD:
                    raise _refused(
                        operator.name, f"{copies} instances of {name!r} send to each of its own"
                    )
                if name != source and not _keeps(graph, source, name):
                    raise _refused(operator.name, f"records may have changed behind {source!r}")
                column = _column(operator.logic, columns, record)
                if column is None:
                    raise _refused(operator.name, "its function does more than read a column")
                found[column] = operator.name
            elif stream.target not in seen:
                seen.add(stream.target)
                waiting.append(stream.target)
    if len(found) > 1:
        names = " and ".join(map(repr, found.values()))
        raise _refused(names, f"they read different columns, {sorted(found)}")
    return list(found)


def _keeps(graph: Graph, source: str, name: str) -> bool:
    """Whether what an operator hands on are rows as they came from the source, in their order."""
    while name != source:
        if not isinstance(graph.operator(name).logic, Filter | Split):
            return False
        into = graph.into(name)
        if len(into) != 1:
            return False
        if into[0].grouping.rule is not Rule.FORWARD and (
            graph.operator(into[0].source).parallelism > 1
        ):
            return False
        name = into[0].source
    return True


def _column(
    logic: EventTime, columns: list[str], record: Callable[[dict[str, Any]], Record] | None
) -> str | None:
    cells: dict[str, Any] = {column: _Cell(column) for column in columns}
    try:
        made = record(cells) if record else cells[columns[0]] if len(columns) == 1 else cells
        time: Any = logic.time_of(made)
    except Exception:
        return None
    return time.column if isinstance(time, _Cell) else None


def _refused(operator: str, why: str) -> TopologyError:
    return TopologyError(
        f"rows of a DataFrame have no order, so most would be late for the event time of"
        f" {operator}, and which column it is cannot be known: {why}. Say"
        " transform(..., order_by=<the column of event time>) and have event_time right behind the"
        " source; or order_by=[] if max_delay_s covers any order"
    )
