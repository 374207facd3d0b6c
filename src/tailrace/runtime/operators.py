"""The operators' logic: what turns a topology's functions into running steps.

Each logic is a frozen value that travels to the workers; `start` makes the step there. Loops over
records are left to C (`map`, `filter`, `hot`) wherever the function allows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, KeyFunction, Record
from tailrace.runtime.hot import flat_map, scan
from tailrace.runtime.instance import Context
from tailrace.runtime.shards import Shards
from tailrace.runtime.state import AT_ONCE, Encoded, Entries, Entry, Stateful, copies, frozen
from tailrace.runtime.step import Put, Step
from tailrace.runtime.ttl import TimeToLive


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
    """Keyed states in layers, so that the loop over records costs the same whoever watches.

    `_open` has the keys touched since the last cut, and all of them if nobody watches. Beneath it
    lies what had changed before that cut (`_middle`), until it is committed, and all else
    (`_base`). What is in a layer hides what is beneath; a key that was touched and is not there is
    forgotten.
    """

    _open: Shards
    _touched: Shards | None
    _before: Shards | None

    def __init__(self, put: Put, logic: Scan) -> None:
        super().__init__()
        self._put = put
        # Where the record is its own key there is no need of pairs.
        keys = enumerate((logic.key, *logic.more_keys))
        self.key_of = {port: key_of for port, key_of in keys if key_of is not None}
        self._function = logic.function
        self._initial = copies(logic.initial)
        self._results: list[Record] = []
        self._open, self._base, self._middle = Shards(), Shards(), Shards()
        self._merging: Iterator[None] = iter(())

    def process(self, records: Iterator[Record], port: int) -> None:
        results = self._results
        scan(records, port in self.key_of, self._function, self._open, self._fresh, results)
        if results:
            self._results = []
            self._put(results)

    def _fresh(self, key: Hashable) -> Any:
        """The state of a key that is not in the topmost layer: what is beneath, or a new one."""
        if self._touched is not None and key not in self._touched:
            state = self._beneath(key)
            self._touched[key] = frozen(state) if self._keeps_images else None
            if state is not None:
                self._open[key] = state
                return state
        return self._initial(key)

    # ---- layers ----

    def _beneath(self, key: Hashable) -> Any:
        if self._before is not None and key in self._before:
            return self._middle.get(key)
        return self._base.get(key)

    def keys(self) -> list[Hashable]:
        nothing = Shards()
        touched, before = self._touched or nothing, self._before or nothing
        return [
            *(key for key in self._base if key not in before and key not in touched),
            *(key for key in self._middle if key not in touched),
            *self._open,
        ]

    def has(self, key: Hashable) -> bool:
        return self._look(key) is not None

    def layers(self) -> list[Any]:
        layers = self._base, self._middle, self._open
        return [one for layer in layers for one in layer.dictionaries]

    def _look(self, key: Hashable) -> Any:
        if key in self._open:
            return self._open[key]
        if self._touched is not None and key in self._touched:
            return None
        return self._beneath(key)

    def _drop(self, key: Hashable) -> None:
        self._open.pop(key, None)

    def take_out(self, keys: Iterable[Hashable]) -> list[Entry]:
        touched, layer = self._touched, self._open
        if touched is None:
            return [(key, layer.pop(key)) for key in keys if key in layer]
        taken = []
        for key in keys:
            if (state := self._look(key)) is not None:
                if key not in touched:
                    touched[key] = frozen(state) if self._keeps_images else None
                layer.pop(key, None)
                taken.append((key, state))
        return taken

    def put_in(self, entries: Iterable[Entry]) -> None:
        new, touched = dict(entries), self._touched
        if touched is not None:
            for key in new:
                touched.setdefault(key)  # if it has been here since the last cut, as it was then
        self._open.update(new)

    def _note_touches(self) -> None:
        if self._touched is None:
            self._touched = Shards()
            self._base, self._open = self._open, self._base

    def cut(self, *, full: bool = False) -> Iterator[Entry]:
        for _ in self._merging:
            pass
        return super().cut(full=full)

    def _put_down(self) -> tuple[Shards, Shards]:
        self._middle, self._open = self._open, Shards()
        before, touched = self._touched or Shards(), Shards()
        self._before, self._touched = before, touched
        return before, touched

    def _all(self) -> Iterator[Hashable]:
        # Neither layer changes before the cut is committed.
        before = self._before or Shards()
        yield from (key for key in self._base if key not in before)
        yield from self._middle

    def _settle(self) -> Iterator[None]:
        self._merging = self._merge()
        return self._merging

    def _merge(self) -> Iterator[None]:
        """Let the middle layer sink into the base; where there is none yet, it is the base."""
        base, middle, before = self._base, self._middle, self._before or Shards()
        if not base:  # to let a large one grow would stop everything for tens of milliseconds
            self._base, self._before, self._middle = middle, None, Shards()
            return
        # Both are emptied on the way: to let go of all that is in them at once takes as long.
        for done, key in enumerate(self._used_up(before)):
            if (state := middle.pop(key, None)) is not None:
                base[key] = state
            else:
                base.pop(key, None)
            if done % AT_ONCE == 0:
                yield
        self._before, self._middle = None, Shards()

    def _used_up(self, before: MutableMapping[Hashable, Any]) -> Iterator[Hashable]:
        if self.expiry is not None:  # which goes on with these keys
            yield from before
            return
        with suppress(KeyError):  # to ask whether there is one costs more than to take it
            while True:
                yield before.popitem()[0]

    def _take_keys(self, other: _ScanStep) -> None:
        """Undo what was changed since; the rest stays where it is."""
        for _ in other._merging:
            pass
        base = other._base
        for key, image in {**(other._touched or {}), **(other._before or {})}.items():
            if type(image) is Encoded:  # others are in the base as they were
                base[key] = image.value
        self.restore(base)

    def restore(self, entries: Entries) -> None:
        layer = self._open if self._touched is None else self._base
        if isinstance(entries, Shards) and not layer:
            if self._touched is None:
                self._open = entries
            else:
                self._base = entries
        else:
            layer.update(entries)


@dataclass(frozen=True)
class Scan:
    """Keyed state, state in and state out: (key, new state) for each record. None forgets."""

    key: KeyFunction | None
    function: Callable[[Any, Record], Any]
    initial: Any = None
    more_keys: tuple[KeyFunction | None, ...] = ()
    """Of the ports behind the first."""
    ttl: TimeToLive | None = None
    """How long keys are kept that no record touches; None: for ever."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        step = _ScanStep(context.put(MAIN), self)
        step.live_for(self.ttl, context)
        return step


class _FoldStep(_ScanStep):
    """Keeps its states to itself until the input ends."""

    def process(self, records: Iterator[Record], port: int) -> None:
        scan(records, port in self.key_of, self._function, self._open, self._fresh, None)

    def finish(self) -> None:
        if results := list(self.entries()):
            self._put(results)


@dataclass(frozen=True)
class Fold(Scan):
    """Like Scan, but hands on each key's state once, when the input ends."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        step = _FoldStep(context.put(MAIN), self)
        step.live_for(self.ttl, context)
        return step


@dataclass(frozen=True)
class Combining:
    """Folds (key, state) pairs of several instances into one state of each key."""

    combine: Callable[[Any, Any], Any]

    def __call__(self, state: Any, part: tuple[Hashable, Any]) -> Any:
        """The state with one more part."""
        return part[1] if state is None else self.combine(state, part[1])


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
