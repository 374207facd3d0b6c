"""Sources and sinks in memory: for tests, examples, and functions as sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.graph.model import Record
from tailrace.runtime.source import Reader, Sink, Source, Split


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


@dataclass
class Collect(Sink):
    """Keeps every record in a list. Only of use in this process: with `tailrace.testing.run`."""

    records: list[Record] = field(default_factory=list)

    def write(self, records: Iterator[Record]) -> None:
        """Keep them."""
        self.records.extend(records)
