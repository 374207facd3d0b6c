"""A running step whose keys live for a time: which of them are old is found out in `ttl.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Protocol

from tailrace.runtime.markers import BEGINNING
from tailrace.runtime.ttl import SLICE_NS, Forgetter, TimeToLive

EXPIRY = "expiry"
"""The tag of its timers."""
_SOON_NS = 1_000_000
_PERIODS = 8


class Clock(Protocol):
    """What it needs of a step's context."""

    def clock_ns(self) -> int:
        """The worker's clock."""

    def set_timer(self, at_ns: int, tag: object, /) -> None:
        """Call `on_timer` of the step at that time."""


class Keys(Protocol):
    """What it needs of a step."""

    def lay_down(self) -> tuple[Iterable[Hashable], Iterator[None]]:
        """The keys touched since the last time, and what is left to do about them, in pieces."""

    def is_touched(self, key: Hashable) -> bool:
        """Whether a key was touched since then."""

    def forget(self, key: Hashable) -> None:
        """Keep nothing for a key any more."""


class Expiry:
    """Has a step forget the keys that nobody has touched for long, a few at a time."""

    def __init__(self, step: Keys, ttl: TimeToLive, context: Clock, *, checkpoints: bool) -> None:
        """With `checkpoints` it is told of touched keys by cuts; otherwise it asks for them."""
        self._step = step
        self._context = context
        self._by_event = ttl.by == "event"
        self._asks = not checkpoints
        self._time_ns = BEGINNING
        self._unsaid: list[Iterable[Hashable]] = []  # until event time is known
        self._forgetter = Forgetter(ttl.ns, self._forget, step.is_touched)
        self._settling: deque[Iterator[None]] = deque()
        self._every_ns = max(ttl.ns // _PERIODS, _SOON_NS)
        if self._by_event:
            self._every_ns = min(self._every_ns, 1_000_000_000)
        self._asked_ns = context.clock_ns()
        context.set_timer(self._asked_ns + self._every_ns, EXPIRY)

    def advance(self, watermark: int) -> None:
        """Event time has moved."""
        self._time_ns = watermark
        if self._by_event and self._unsaid:
            for keys in self._unsaid:
                self._forgetter.touched(keys, watermark)
            self._unsaid.clear()

    def seen(self, keys: Iterable[Hashable]) -> None:
        """These keys were touched; the collection stays as it is."""
        if self._by_event and self._time_ns == BEGINNING:
            self._unsaid.append(keys)
        else:
            self._forgetter.touched(keys, self._now_ns())

    def _now_ns(self) -> int:
        return self._time_ns if self._by_event else self._context.clock_ns()

    def work(self) -> None:
        """A timer is due: work for a slice, and have another one called."""
        clock_ns = self._context.clock_ns
        now_ns = clock_ns()
        if self._asks and now_ns - self._asked_ns >= self._every_ns and not self._settling:
            self._asked_ns = now_ns
            keys, left = self._step.lay_down()
            self._settling.append(left)
            self.seen(keys)
        until_ns = now_ns + SLICE_NS
        more = bool(self._settling)
        while self._settling and clock_ns() < until_ns:
            if next(self._settling[0], self) is self:
                self._settling.popleft()
        if not self._by_event or self._time_ns != BEGINNING:
            more |= self._forgetter.sweep(self._now_ns(), clock_ns)
        self._context.set_timer(clock_ns() + (_SOON_NS if more else self._every_ns), EXPIRY)

    def _forget(self, keys: list[Hashable]) -> None:
        for key in keys:
            self._step.forget(key)
