"""A debug mode for tests: finds operators that change what they share, and what could not travel.

Operators may share records with others in the same worker, and get copies from elsewhere; and what
is handed on together is seen later than what is handed on alone. So an operator that changes its
records, or what it has handed on, or hands on what cannot be encoded and decoded, works or fails by
where it happens to run and how records are batched. Here steps get their records one by one, and
every record is encoded when it is handed on, before an operator gets it and after, which is slow.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tailrace.graph.model import Graph, KeyFunction, Record
from tailrace.runtime.instance import Context
from tailrace.runtime.step import OperatorFailed, Put, Step

_REMEMBERED = 256
"""So many of the last records that a step took or handed on are looked at again in later calls."""

_CALLS = ("advance", "on_timer", "on_wake", "finish")
"""What else a step's code runs in, beside `process`."""


def strict(graph: Graph) -> Graph:
    """The same graph, whose operators are watched."""
    operators = []
    for operator in graph.operators:
        streams: dict[str, str] = {}
        for stream in graph.out_of(operator.name):
            streams.setdefault(stream.output, stream.label)
        keys = {
            stream.port: stream.grouping.function
            for stream in graph.into(operator.name)
            if stream.grouping.sends_keys
        }
        operators.append(replace(operator, logic=_Watched(operator.logic, streams, keys)))
    return replace(graph, operators=tuple(operators))


class _Shared:
    """Records that a step shares with others, and how they were encoded when that began."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._records: deque[tuple[Record, bytes, Callable[[Record], Exception]]] = deque()

    def note(self, record: Record, encoded: bytes, told: Callable[[Record], Exception]) -> None:
        """It must not change from now on; if it does, `told(as it was)` says what was wrong."""
        if encoded and not _never_changes(record):
            self._records.append((record, encoded, told))

    def check(self) -> None:
        """Raise OperatorFailed if one has changed. Only so many are remembered after that."""
        for record, encoded, told in self._records:
            if _has_changed(record, encoded):
                raise OperatorFailed(self._operator, record, told(pickle.loads(encoded)))
        while len(self._records) > _REMEMBERED:
            self._records.popleft()


@dataclass(frozen=True)
class _Watched:
    """Logic whose steps are watched."""

    logic: Any
    streams: dict[str, str]
    keys: dict[int, KeyFunction | None]
    """Ports to which keys come, whether the operator takes them or not."""

    def start(self, context: Context) -> Step:
        """Make the step, and stand before and behind it."""
        shared = _Shared(context.operator)
        step: Step = self.logic.start(replace(context, put=self._checked(context, shared)))
        process, taken = step.process, step.key_of

        def watched(records: Iterator[Any], port: int) -> None:
            for one in records:
                record, key = one if port in step.key_of else (one, None)
                if key is not record and (error := _unfit_key(key)) is not None:
                    raise OperatorFailed(context.operator, record, error)
                shared.note(record, _encoded(record), _changed)
                process(iter((one if port in taken else record,)), port)
            shared.check()

        step.process = watched  # type: ignore[method-assign]
        step.key_of = {**self.keys, **taken}
        for call in _CALLS:
            if getattr(type(step), call) is not getattr(Step, call):
                setattr(step, call, _then(getattr(step, call), shared.check))
        return step

    def _checked(self, context: Context, shared: _Shared) -> Any:
        def way(output: str) -> Put:
            put = context.put(output)
            stream = self.streams.get(output, f"{context.operator}[{output}]")

            def told(before: Record) -> Exception:
                return _changed_behind(stream, before)

            def checked(records: list[Record]) -> None:
                shared.check()
                for record in records:
                    try:
                        encoded = pickle.dumps(record, 5)
                        pickle.loads(encoded)
                    except Exception as error:
                        raise OperatorFailed(
                            context.operator, record, _unfit(stream, error)
                        ) from error
                    shared.note(record, encoded, told)
                put(records)

            return checked

        return way


def _then(call: Callable[..., None], check: Callable[[], None]) -> Callable[..., None]:
    def both(*arguments: Any) -> None:
        call(*arguments)
        check()

    return both


def _never_changes(record: Record) -> bool:
    if type(record) in (tuple, frozenset):
        return all(map(_never_changes, record))
    return record is None or type(record) in (str, bytes, int, float, bool)


def _encoded(record: Record) -> bytes:
    try:
        return pickle.dumps(record, 5)
    except Exception:
        return b""  # whoever handed it on has been told


def _has_changed(record: Record, before: bytes) -> bool:
    if not before or _encoded(record) == before:
        return False
    # An object may be encoded in other words and be equal: one that keeps what it worked out.
    try:
        return bool(pickle.loads(before) != record)
    except Exception:
        return True  # arrays, say, of which nobody knows whether they are equal


def _unfit_key(key: Hashable) -> Exception | None:
    """What is wrong with a key that cannot travel."""
    try:
        again = pickle.loads(pickle.dumps(key, 5))
        if key == key and (again != key or hash(again) != hash(key)):
            return TypeError(
                f"its key, {key!r}, comes as another one, {again!r}, if it is sent from another"
                " worker; use a key that is equal to what pickle makes of it"
            )
    except Exception as error:
        return TypeError(
            f"its key, {key!r}, cannot travel with it if it is sent from another worker: {error!r};"
            " use a key that pickle can encode, and decode"
        )
    return None


def _changed(before: Record) -> Exception:
    return ValueError(
        f"it has changed its record, which was {before!r}: others may hold the same object, or a"
        " copy; make a new record instead"
    )


def _changed_behind(stream: str, before: Record) -> Exception:
    return ValueError(
        f"what it handed on along {stream!r} has changed since then, when it was {before!r}: do not"
        " emit a state that you change, for who reads it sees the change or not by where it runs"
        " and what came together; hand on a copy, or give a new state each time"
    )


def _unfit(stream: str, error: Exception) -> Exception:
    return TypeError(
        f"the record cannot travel along {stream!r} if the two ends are in different workers:"
        f" {error!r}; hand on what pickle can encode, and decode"
    )
