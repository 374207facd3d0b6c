"""The operators' logic: what turns a topology's functions into running steps.

Each logic is a frozen value that travels to the workers; `start` makes the step there. Loops over
records are left to C (`map`, `filter`, `hot`) wherever the function allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, KeyFunction, Record
from tailrace.runtime.hot import flat_map, scan
from tailrace.runtime.instance import Context
from tailrace.runtime.state import Stateful, copies
from tailrace.runtime.step import Put, Step


class _Gather(Step):
    """A step whose results of records before a failing one wait in `results`."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._results: list[Record] = []

    def _gather(self, records: Iterator[Record], results: list[Record]) -> None:
        raise NotImplementedError

    def process(self, records: Iterator[Record], port: int) -> None:
        results = self._results
        self._gather(records, results)
        if results:
            self._results = []
            self._put(results)


class _Apply(_Gather):
    """Maps and filters: an iterator tool with a function."""

    def __init__(
        self, put: Put, tool: Callable[[Any, Any], Iterable[Record]], function: Any
    ) -> None:
        super().__init__(put)
        self._tool = tool
        self._function = function

    def _gather(self, records: Iterator[Record], results: list[Record]) -> None:
        results.extend(self._tool(self._function, records))


@dataclass(frozen=True)
class Map:
    """One result for each record."""

    function: Callable[[Record], Record]

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _Apply(context.put(MAIN), map, self.function)


class _FlatMapStep(_Gather):
    def __init__(self, put: Put, function: Callable[[Record], Iterable[Record]]) -> None:
        super().__init__(put)
        self._function = function

    def _gather(self, records: Iterator[Record], results: list[Record]) -> None:
        flat_map(records, self._function, results)


@dataclass(frozen=True)
class FlatMap:
    """Any number of results for each record."""

    function: Callable[[Record], Iterable[Record]]

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _FlatMapStep(context.put(MAIN), self.function)


@dataclass(frozen=True)
class Filter:
    """The records that the function says yes to."""

    function: Callable[[Record], object]

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _Apply(context.put(MAIN), filter, self.function)


class _ScanStep(Stateful):
    def __init__(self, put: Put, logic: Scan) -> None:
        super().__init__()
        self._put = put
        self._keys = (logic.key, *logic.more_keys)
        self._function = logic.function
        self._fresh = copies(logic.initial)
        self._results: list[Record] = []

    def process(self, records: Iterator[Record], port: int) -> None:
        results, noted = self._results, self.changes.noted
        scan(records, self._keys[port], self._function, self._open, self._fresh, results, noted)
        if results:
            self._results = []
            self._put(results)


@dataclass(frozen=True)
class Scan:
    """Keyed state, state in and state out: (key, new state) for each record. None forgets."""

    key: KeyFunction | None
    function: Callable[[Any, Record], Any]
    initial: Any = None
    more_keys: tuple[KeyFunction | None, ...] = ()
    """Of the ports behind the first."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _ScanStep(context.put(MAIN), self)


class _FoldStep(_ScanStep):
    """Keeps its states to itself until the input ends."""

    def process(self, records: Iterator[Record], port: int) -> None:
        noted = self.changes.noted
        scan(records, self._keys[port], self._function, self._open, self._fresh, None, noted)

    def finish(self) -> None:
        if self._open:
            self._put(list(self._open.items()))


@dataclass(frozen=True)
class Fold(Scan):
    """Like Scan, but hands on each key's state once, when the input ends."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _FoldStep(context.put(MAIN), self)


class _SplitStep(Step):
    def __init__(self, puts: dict[str, Put], function: Callable[[Record], str]) -> None:
        self._puts = puts
        self._function = function
        self._parts: dict[str, list[Record]] = {name: [] for name in puts}

    def process(self, records: Iterator[Record], port: int) -> None:
        parts, function = self._parts, self._function
        for record in records:
            name = function(record)
            if name not in parts:
                raise ValueError(f"split gave {name!r}; the streams are {list(parts)}")
            parts[name].append(record)
        for name, part in parts.items():
            if part:
                parts[name] = []
                self._puts[name](part)


@dataclass(frozen=True)
class Split:
    """Each record into the side stream that the function names."""

    function: Callable[[Record], str]
    names: tuple[str, ...]

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _SplitStep({name: context.put(name) for name in self.names}, self.function)
