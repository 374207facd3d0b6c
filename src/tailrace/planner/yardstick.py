"""How fast a core is just now, by a fixed piece of work.

CPU time leaves out what other programs take, but not how fast the core is while it is ours. Where
its other hardware thread, its clock or its caches are shared with somebody, on most virtual
machines above all, the same work takes up to twice as long in one second as in the next. A profile
of one second and a machine's costs of another then do not fit together.

So whatever is measured here is measured beside the yardstick, a piece of work much like what
operators do, and given for one speed: that at which the yardstick takes `base_ns`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_LINES = tuple(f"c{i},{i},LNS" for i in range(128))
_FRESH_NS = 500_000
"""A reading counts for so much CPU time of its thread."""
_FASTEST = 0.05
"""The part of readings that may be faster than the base."""


def reading_ns() -> float:
    """CPU time of the yardstick, for each of its lines: some tens of us in all."""
    _pass()  # what ran before has had the caches
    began_ns = time.thread_time_ns()
    _pass()
    return (time.thread_time_ns() - began_ns) / len(_LINES)


def _pass() -> None:
    found: dict[str, int] = {}
    for line in _LINES:
        name, number, _ = line.split(",")
        found[name] = int(number)


def full_speed_ns(seconds: float, read: Callable[[], float] = reading_ns) -> float:
    """What the yardstick takes when the core is as fast as it gets within so many seconds."""
    end_ns = time.thread_time_ns() + int(seconds * 1e9)
    readings = [read()]
    while time.thread_time_ns() < end_ns:
        readings.append(read())
    return sorted(readings)[int(len(readings) * _FASTEST)]


class Yardstick:
    """Turns times of this thread into times at the speed of `base_ns`."""

    def __init__(self, base_ns: float, read: Callable[[], float] = reading_ns) -> None:
        self.base_ns = base_ns
        self._read = read
        self._factor = 1.0
        self._stale_ns = 0

    def factor(self) -> float:
        """What to multiply a time by that is measured from now on, for the next half millisecond.

        Now and then this takes a reading: call it outside of what is timed.
        """
        if time.thread_time_ns() >= self._stale_ns:
            self._factor = self.base_ns / self._read()
            self._stale_ns = time.thread_time_ns() + _FRESH_NS
        return self._factor
