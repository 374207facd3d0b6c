"""Timers that belong to keys: they can be cancelled, and leave with their keys."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Any

from tailrace.runtime.instance import Context

Waiting = tuple[tuple[int, Any], ...]
"""When timers are due, in wall-clock nanoseconds, and their tags."""

_AT_ONCE = 256
"""So many timers are called in one go before others have their turn."""


class KeyTimers:
    """The timers of a step. Times are of the worker's clock, but for those that come and go.

    The worker knows only of the next one. Cancelled timers stay in the heap until they are due or
    make up most of it, so setting and cancelling again and again takes no room.
    """

    def __init__(
        self, context: Context, touch: Callable[[Hashable], None] = lambda key: None
    ) -> None:
        """`touch` is called before a timer of a key is taken away because it is due."""
        self._context = context
        self._touch = touch
        self.waiting: dict[Hashable, dict[int, tuple[int, Any]]] = {}
        """By key and number: when, and the tag."""
        self._heap: list[tuple[int, int, Hashable]] = []
        self._numbers = count()
        self._live = 0
        self._armed_ns: int | None = None

    def set(self, key: Hashable, at_ns: int, tag: Any) -> None:
        """A timer for a key. `arm` must follow."""
        number = next(self._numbers)
        self.waiting.setdefault(key, {})[number] = at_ns, tag
        self._live += 1
        heapq.heappush(self._heap, (at_ns, number, key))
        if len(self._heap) > 2 * self._live + 64:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable, tag: Any) -> None:
        """No timer of this key with this tag is due any more."""
        for number, (_, other) in list(self.waiting.get(key, {}).items()):
            if other == tag:
                self._remove(key, number)

    def arm(self) -> None:
        """Have the worker call when the next one is due."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        if self._heap and (self._armed_ns is None or self._heap[0][0] < self._armed_ns):
            self._armed_ns = self._heap[0][0]
            self._context.set_timer(self._armed_ns, None)

    def due(self) -> Iterator[tuple[int, Hashable, Any]]:
        """Those that are due now: when, for whom, tag. What is set meanwhile comes next time."""
        self._armed_ns = None
        now_ns, before, left = self._context.clock_ns(), next(self._numbers), _AT_ONCE
        while left and self._heap and self._heap[0][0] <= now_ns and self._heap[0][1] < before:
            at_ns, number, key = heapq.heappop(self._heap)
            if self._is_live((at_ns, number, key)):
                tag = self.waiting[key][number][1]
                self._touch(key)
                self._remove(key, number)
                left -= 1
                yield at_ns, key, tag
        self.arm()

    def keys(self) -> list[Hashable]:
        """The keys that have timers."""
        return list(self.waiting)

    def of(self, key: Hashable) -> Waiting:
        """A key's timers, in times that mean something elsewhere."""
        if key not in self.waiting:
            return ()
        ahead_ns = self._context.wall_ns() - self._context.clock_ns()
        return tuple((at_ns + ahead_ns, tag) for at_ns, tag in self.waiting[key].values())

    def drop(self, key: Hashable) -> None:
        """Forget a key's timers."""
        for number in list(self.waiting.get(key, ())):
            self._remove(key, number)

    def put(self, key: Hashable, waiting: Waiting) -> None:
        """Timers that `of` gave elsewhere; those due already are due at once."""
        ahead_ns = self._context.wall_ns() - self._context.clock_ns()
        for wall_ns, tag in waiting:
            self.set(key, wall_ns - ahead_ns, tag)
        self.arm()

    def take_over(self, other: KeyTimers) -> None:
        """All timers of a step that has the same clocks, and is of no use afterwards."""
        self.waiting, self._heap, self._live = other.waiting, other._heap, other._live
        self._numbers = other._numbers
        self.arm()

    def _is_live(self, entry: tuple[int, int, Hashable]) -> bool:
        return entry[1] in self.waiting.get(entry[2], ())

    def _remove(self, key: Hashable, number: int) -> None:
        timers = self.waiting[key]
        del timers[number]
        self._live -= 1
        if not timers:
            del self.waiting[key]
