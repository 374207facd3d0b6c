"""Sources and sinks in memory: for tests, examples, and functions as sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tailrace.graph.model import Record
from tailrace.runtime.sink import Sink, Writing
from tailrace.runtime.source import Reader, Source, Split


class _ItemsReader(Reader):
    def __init__(self, items: Sequence[Record], start: int) -> None:
        self._items = items
        self._next = start

    def poll(self, most: int) -> list[Record] | None:
        if self._next >= len(self._items):
            return None
        records = list(self._items[self._next : self._next + most])
        self._next += len(records)
        return records

    def position(self) -> int:
        return self._next


@dataclass(frozen=True)
class Items(Source):
    """The given records, then the end. Split i of n has every n-th, from the i-th on."""

    items: Sequence[Record]
    rewinds = True

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """A share of them; a position is how many of it were read."""
        return _ItemsReader(self.items[split.index :: split.of], position or 0)


@dataclass
class Call(Sink):
    """Calls a function with every record."""

    function: Callable[[Record], object]

    def write(self, records: Iterator[Record]) -> None:
        """Call it."""
        for record in records:
            self.function(record)


class RecordId(NamedTuple):
    """What a record is known by at a sink; see `tailrace.sinks.call`."""

    operator: str
    instance: int
    """The index of the sink's instance."""
    epoch: int | None
    """The epoch that it is to be part of; None: the job makes no checkpoints."""
    number: int
    """So many records came to this instance before it, since the job began."""


@dataclass
class CallWithId(Sink):
    """Calls a function with every record and its `RecordId`."""

    function: Callable[[Record, RecordId], object]
    _writing: Writing = field(init=False, repr=False)
    _epoch: int | None = field(default=None, init=False, repr=False)
    _number: int = field(default=0, init=False, repr=False)

    def begin(self, writing: Writing) -> None:
        """Count from the beginning, or from what `restore` says."""
        self._writing = writing
        self._epoch = None if writing.epoch is None else writing.epoch + 1

    def write(self, records: Iterator[Record]) -> None:
        """Call it. A record that raises has its number all the same: it has it when it is next."""
        operator, index = self._writing.operator, self._writing.index
        for record in records:
            number, self._number = self._number, self._number + 1
            self.function(record, RecordId(operator, index, self._epoch, number))

    def prepare(self, epoch: int) -> None:
        """What comes now belongs to the next one."""
        self._epoch = epoch + 1

    def roll_back(self) -> None:
        """Forget how far it was; `restore` says from where to count again."""
        self._number = 0

    def snapshot(self) -> tuple[int | None, int]:
        """Which epoch it is, and how many records have come."""
        return self._epoch, self._number

    def restore(self, snapshot: tuple[int | None, int]) -> None:
        """Go on counting; when several become one, above what any of them has counted."""
        self._epoch = snapshot[0]
        self._number = max(self._number, snapshot[1])


@dataclass
class Collect(Sink):
    """Keeps every record in a list. Only of use in this process: with `tailrace.testing.run`."""

    records: list[Record] = field(default_factory=list)

    def write(self, records: Iterator[Record]) -> None:
        """Keep them."""
        self.records.extend(records)
