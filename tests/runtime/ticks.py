"""A source in virtual time."""

from collections.abc import Callable, Sequence
from typing import Any

import tailrace as tr


class _TicksReader(tr.Reader):
    def __init__(self, ticks: Sequence[list[Any]], gap_ns: int, clock_ns: Callable[[], int]):
        self._ticks = ticks
        self._gap_ns = gap_ns
        self._clock_ns = clock_ns
        self._next = 0

    def poll(self, most: int) -> list[Any] | None:
        if self._next >= len(self._ticks):
            return None
        if self._clock_ns() < self.due_ns():
            return []
        self._next += 1
        records = list(self._ticks[self._next - 1])
        return records if records or self._next < len(self._ticks) else None

    def due_ns(self) -> int:
        return min(self._next, len(self._ticks) - 1) * self._gap_ns


class Ticks(tr.Source):
    """A list of records every `gap_s`, the first at once; the end comes with the last."""

    def __init__(self, ticks: Sequence[list[Any]], gap_s: float) -> None:
        self.ticks = ticks
        self.gap_s = gap_s

    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> tr.Reader:
        return _TicksReader(self.ticks[split.index :: split.of], int(self.gap_s * 1e9), clock_ns)
