"""The operators' logic: what turns a topology's functions into running steps.

Each logic is a frozen value that travels to the workers; `start` makes the step there. Loops over
records are left to C (`map`, `filter`, `hot`) wherever the function allows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, KeyFunction, Record
from tailrace.runtime.hot import flat_map, scan
from tailrace.runtime.instance import Context
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


class _ScanStep(_Gather):
    def __init__(self, put: Put, key: KeyFunction | None, function: Any, initial: Any) -> None:
        super().__init__(put)
        self._key = key
        self._function = function
        self._initial = initial
        self.states: dict[Hashable, Any] = {}

    def _fresh(self) -> Any:
        """The state of a new key: a copy of its own."""
        return deepcopy(self._initial)

    def _gather(self, records: Iterator[Record], results: list[Record]) -> None:
        scan(records, self._key, self._function, self.states, self._fresh, results)


@dataclass(frozen=True)
class Scan:
    """Keyed state, state in and state out: (key, new state) for each record."""

    key: KeyFunction | None
    function: Callable[[Any, Record], Any]
    initial: Any = None

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _ScanStep(context.put(MAIN), self.key, self.function, self.initial)


class _FoldStep(_ScanStep):
    """Keeps its states to itself until the input ends."""

    def process(self, records: Iterator[Record], port: int) -> None:
        self._gather(records, self._results)
        self._results.clear()

    def finish(self) -> None:
        if self.states:
            self._put(list(self.states.items()))


@dataclass(frozen=True)
class Fold(Scan):
    """Like Scan, but hands on each key's state once, when the input ends."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _FoldStep(context.put(MAIN), self.key, self.function, self.initial)


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


class Operator:
    """The full form, for what the short ones cannot say: subclass it and override what you need.

    A copy of the object runs in each instance. `self.state` is the state of the current key (None
    at first; assign to change it), if the stream is keyed. `self.emit(record)` hands a record on,
    `self.set_timer(seconds, tag)` calls `timer` later, for the same key.

    >>> class EveryTenth(Operator):
    ...     def process(self, record):
    ...         self.state = (self.state or 0) + 1
    ...         if self.state % 10 == 0:
    ...             self.emit(record)
    """

    state: Any = None
    key: Hashable = None
    instance: Context
    """Which copy this is: `self.instance.index` of `self.instance.parallelism`."""
    emit: Callable[..., None]
    """`emit(record, stream="main")`."""
    set_timer: Callable[..., None]
    """`set_timer(delay_s, tag=None)`."""

    def open(self) -> None:
        """Called once in the worker, before the first record."""

    def process(self, record: Record) -> None:
        """Called for every record."""
        raise NotImplementedError

    def timer(self, tag: Any) -> None:
        """A timer is due; `self.key` and `self.state` are those of the record that set it."""

    def finish(self) -> None:
        """The input has ended; there is no current key."""

    def close(self) -> None:
        """Called at the end, also after a failure."""


class _OperatorStep(Step):
    def __init__(
        self, operator: Operator, key: KeyFunction | None, keyed: bool, context: Context
    ) -> None:
        self._operator = operator
        self._key = key
        self._keyed = keyed
        self._context = context
        self._results: dict[str, list[Record]] = {}
        self.states: dict[Hashable, Any] = {}
        operator.instance = context
        operator.emit = self._emit
        operator.set_timer = self._set_timer
        operator.open()

    def _emit(self, record: Record, stream: str = MAIN) -> None:
        if stream not in self._results:
            self._context.put(stream)  # raises for an unknown one here, where the record is known
            self._results[stream] = []
        self._results[stream].append(record)

    def _set_timer(self, delay_s: float, tag: Any = None) -> None:
        at_ns = self._context.clock_ns() + int(delay_s * 1e9)
        self._context.set_timer(at_ns, (self._operator.key, tag))

    def _hand_on(self) -> None:
        if self._results:
            results, self._results = self._results, {}
            for stream, records in results.items():
                self._context.put(stream)(records)

    def process(self, records: Iterator[Record], port: int) -> None:
        operator, states, key_of = self._operator, self.states, self._key
        if not self._keyed:
            for record in records:
                operator.process(record)
        else:
            for record in records:
                key = operator.key = record if key_of is None else key_of(record)
                operator.state = states.get(key)
                operator.process(record)
                self._keep(key)
        self._hand_on()

    def _keep(self, key: Hashable) -> None:
        if self._operator.state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = self._operator.state

    def on_timer(self, time: float, tag: Any) -> None:
        key, user_tag = tag
        self._operator.key = key
        if self._keyed:
            self._operator.state = self.states.get(key)
        self._operator.timer(user_tag)
        if self._keyed:
            self._keep(key)
        self._hand_on()

    def finish(self) -> None:
        self._operator.key = None
        if self._keyed:
            self._operator.state = None
        self._operator.finish()
        self._hand_on()

    def close(self) -> None:
        self._operator.close()


@dataclass(frozen=True)
class Process:
    """A user's operator object, with keyed state if the stream is keyed."""

    operator: Operator
    key: KeyFunction | None = None
    keyed: bool = False

    def start(self, context: Context) -> Step:
        """Make the step, with a copy of the operator of its own."""
        return _OperatorStep(deepcopy(self.operator), self.key, self.keyed, context)
