"""Keys that nobody has touched for long are forgotten: the time to live of keyed state.

Nothing of this is done for a record. Whoever owns the states says now and then which keys were
touched since the last time (it keeps them apart anyway), and lets a few be looked at between
rounds. Keys are known by the period in which they were last told of; a period is a fraction of the
time to live, and what belongs to one that is old enough goes, a slice at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

from tailrace.runtime.times import check_seconds

By = Literal["clock", "event"]
"""What passes: time, or the time of events, which stands still when none come."""

_PERIODS = 8
"""Of which a time to live consists: so much later than asked keys may be forgotten."""
_CHUNK = 16
"""Keys between two looks at the clock: a few microseconds."""
_PARTS = 1024
"""A dictionary of a million keys takes tens of milliseconds to grow; a part of it does not."""
_TOGETHER = 1024
SLICE_NS = 100_000


@dataclass(frozen=True)
class TimeToLive:
    """What a user asks for: `ttl_s=3600`, and `ttl_by="event"` for event time.

    A key is forgotten when no record has touched its state for so long: not before, and at the
    latest an eighth of that later, and the time between two calls of `touched`. By event time
    that is when the watermark has moved on so far since. Keys that a job restores or gets from
    another instance count as touched then.

    >>> TimeToLive(3600).ns
    3600000000000
    """

    seconds: float
    by: By = "clock"

    def __post_init__(self) -> None:
        check_seconds("ttl_s", self.seconds)
        if self.by not in get_args(By):
            raise ValueError(f"ttl_by is {self.by!r}; it must be one of {get_args(By)}")

    @property
    def ns(self) -> int:
        """In nanoseconds, at least one for each period."""
        return max(round(self.seconds * 1e9), _PERIODS)


class Forgetter:
    """Knows when each key of a step was last touched, and has old ones forgotten.

    Times are those of one clock that never goes back: the worker's, or the watermark. `forget` is
    called with keys that are to be forgotten, at most some at a time; a key of which `is_recent`
    says that it was touched since the last call of `touched` never is among them. A key may be
    forgotten that has no state any more.
    """

    def __init__(
        self,
        ttl_ns: int,
        forget: Callable[[list[Hashable]], None],
        is_recent: Callable[[Hashable], bool],
    ) -> None:
        self._ttl_ns = ttl_ns
        self._period_ns = max(ttl_ns // _PERIODS, 1)
        self._forget = forget
        self._is_recent = is_recent
        self._told: deque[tuple[int, Iterator[Hashable]]] = deque()
        """What is to be noted yet: a period, and keys that were touched in it or before."""
        self._periods: list[dict[Hashable, int]] = [{} for _ in range(_PARTS)]
        """In which period a key was last told of; by parts of the hashes."""
        self._keys: deque[tuple[int, list[Hashable]]] = deque()
        """The keys told of in each period, oldest first, in lists that are quick to let go; also
        those told of again later."""
        self._going: Iterator[Hashable] = iter(())
        self._going_period = 0
        self._is_going = False

    def __len__(self) -> int:
        """The number of keys that it knows of."""
        return sum(map(len, self._periods))

    def touched(self, keys: Iterable[Hashable], now_ns: int) -> None:
        """These keys were touched since the last call; now is as good as any moment since then.

        They are looked at later, bit by bit, so the collection must stay as it is.
        """
        self._told.append((now_ns // self._period_ns, iter(keys)))

    def due_ns(self) -> int | None:
        """When there will be something to sweep; None: not before somebody touches a key."""
        if self._told or self._is_going:
            return 0
        return self._end_ns(self._keys[0][0]) if self._keys else None

    def _end_ns(self, period: int) -> int:
        """When keys last told of in a period are to be forgotten."""
        return (period + 1) * self._period_ns + self._ttl_ns

    def sweep(self, now_ns: int, clock_ns: Callable[[], int], budget_ns: int = SLICE_NS) -> bool:
        """Work for about so long of the clock; whether there is more to do now.

        `now_ns` is the time by which keys live, `clock_ns` only measures what this takes.
        """
        until_ns = clock_ns() + budget_ns
        # All that was told first: what is known to be old may be among it.
        while self._told:
            if not self._note():
                self._told.popleft()
            if clock_ns() >= until_ns:
                return True
        while self._is_going or (self._keys and self._end_ns(self._keys[0][0]) <= now_ns):
            if not self._is_going:
                self._going_period, keys = self._keys.popleft()
                self._going, self._is_going = iter(keys), True
            self._is_going = self._let_go()
            if clock_ns() >= until_ns:
                return True
        return False

    def _note(self) -> bool:
        """Note some keys; False: there are none left of this call."""
        period, keys = self._told[0]
        some = list(islice(keys, _CHUNK))
        if some:
            last, keys_of_last = self._keys[-1] if self._keys else (None, ())
            if last != period or len(keys_of_last) >= _TOGETHER:
                self._keys.append((period, []))
            periods, noted = self._periods, self._keys[-1][1]
            for key in some:
                part = periods[hash(key) % _PARTS]
                if part.get(key) != period:
                    part[key] = period
                    noted.append(key)
        return len(some) == _CHUNK

    def _let_go(self) -> bool:
        """Forget some keys of the period that is over; False: there are none left of it."""
        some = list(islice(self._going, _CHUNK))
        periods, period, gone = self._periods, self._going_period, []
        for key in some:
            part = periods[hash(key) % _PARTS]
            if part.get(key) == period:
                del part[key]
                if not self._is_recent(key):
                    gone.append(key)
        if gone:
            self._forget(gone)
        return len(some) == _CHUNK
