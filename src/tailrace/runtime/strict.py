"""A debug mode for tests: finds operators that change what they got, and what could not travel.

And key functions that do not give the same twice, of which one call finds the instance and another
the state.

Operators may share records with others in the same worker, and get copies from elsewhere. So one
that changes its records, or hands on what cannot be encoded, works or fails by where it happens to
run. Here every record is encoded when it is handed on, before an operator gets it and after, which
is slow.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from tailrace.graph.model import Graph, Record, Rule
from tailrace.runtime.instance import Context
from tailrace.runtime.step import OperatorFailed, Put, Step


def strict(graph: Graph) -> Graph:
    """The same graph, whose operators are watched."""
    operators = []
    for operator in graph.operators:
        streams: dict[str, str] = {}
        for stream in graph.out_of(operator.name):
            streams.setdefault(stream.output, stream.label)
        keys = [
            (stream.port, stream.grouping.function)
            for stream in graph.into(operator.name)
            if stream.grouping.rule is Rule.KEY and stream.grouping.function is not None
        ]
        operators.append(replace(operator, logic=_Watched(operator.logic, streams, keys)))
    return replace(graph, operators=tuple(operators))


@dataclass(frozen=True)
class _Watched:
    """Logic whose steps are watched."""

    logic: Any
    streams: dict[str, str]
    keys: list[tuple[int, Callable[[Record], Any]]]
    """The key functions, by port."""

    def start(self, context: Context) -> Step:
        """Make the step, and stand before and behind it."""
        step: Step = self.logic.start(replace(context, put=self._checked(context)))
        process, name = step.process, context.operator

        def watched(records: Iterator[Record], port: int) -> None:
            seen = [(record, _encoded(record)) for record in copy(records)]
            for record, _ in seen:
                for at, key_of in self.keys:
                    if at == port and (error := _unsteady(key_of, record)) is not None:
                        raise OperatorFailed(name, record, error)
            process(records, port)
            for record, before in seen:
                if _has_changed(record, before):
                    raise OperatorFailed(name, record, _changed(before))

        step.process = watched  # type: ignore[method-assign]
        return step

    def _checked(self, context: Context) -> Any:
        def way(output: str) -> Put:
            put = context.put(output)
            stream = self.streams.get(output, f"{context.operator}[{output}]")

            def checked(records: list[Record]) -> None:
                for record in records:
                    try:
                        pickle.dumps(record, 5)
                    except Exception as error:
                        raise OperatorFailed(
                            context.operator, record, _unfit(stream, error)
                        ) from error
                put(records)

            return checked

        return way


def _encoded(record: Record) -> bytes:
    try:
        return pickle.dumps(record, 5)
    except Exception:
        return b""  # whoever handed it on has been told


def _has_changed(record: Record, before: bytes) -> bool:
    if not before or _encoded(record) == before:
        return False
    # An object may be encoded in other words and be equal: one that keeps what it worked out.
    return bool(pickle.loads(before) != record)


def _unsteady(key_of: Callable[[Record], Any], record: Record) -> Exception | None:
    try:
        one, other = key_of(record), key_of(record)
    except Exception:
        return None  # that goes by the operator's policy
    if one == other:
        return None
    return ValueError(
        f"its key function gave {one!r} and then {other!r}: it is called where a record is sent and"
        " where it is taken, and must give the same; put the key into the record by a map before"
    )


def _changed(before: bytes) -> Exception:
    return ValueError(
        f"it has changed its record, which was {pickle.loads(before)!r}: others may hold the same"
        " object, or a copy; make a new record instead"
    )


def _unfit(stream: str, error: Exception) -> Exception:
    return TypeError(
        f"the record cannot travel along {stream!r} if the two ends are in different workers:"
        f" {error!r}; hand on what pickle can encode"
    )
