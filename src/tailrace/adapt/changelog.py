"""What changes were expected to cost and bring, beside what they did; the next are told by it.

Bookkeeping in seconds of any clock. Gains and costs are in core-seconds, the work of one core for
a second, so that what moves once can be held against what is saved from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, log

KEYS_PER_S = 300_000.0
"""How many keys move in a second, until a change has shown it."""
BYTES_PER_S = 50e6
"""And bytes of their state, where that takes longer."""
FIXED_S = 0.05
"""What any change takes: its markers go once through the stream."""
MOST_ENTRIES = 100
_MANY_KEYS = 1000
"""A change of fewer tells what changes take at least; of more, how fast keys move."""
_NEWS = 0.4
"""How much the last change counts beside all before it."""
_HALF_LIFE_S = 1800.0
"""So long after a change what it brought counts half."""
_DOUBT = 1.0
"""As many changes as stand for the model being right, before any was made."""


@dataclass(frozen=True)
class Entry:
    """One change."""

    kind: str
    at_s: float
    keys: int
    size_bytes: float
    predicted_s: float
    predicted_gain: float
    """In cores: what the same load needs less from then on."""
    took_s: float | None = None
    """None: it runs, or has failed."""
    gain: float | None = None
    """What it brought; None: that is not known yet."""
    failed: bool = False

    def __str__(self) -> str:
        end = "failed" if self.failed else "under way"
        if self.took_s is not None:
            end = f"took {self.took_s:.2f} s ({self.predicted_s:.2f} expected)"
            if self.gain is not None:
                end += f", freed {self.gain:.2f} cores ({self.predicted_gain:.2f} expected)"
        return f"{self.kind}: {self.keys:,} keys; {end}"


class ChangeLog:
    """The last changes of a job, and what they teach.

    >>> changes = ChangeLog()
    >>> number = changes.begin(0.0, "tables", keys=600_000, size_bytes=0.0, gain=0.5)
    >>> changes[number].predicted_s
    2.05
    >>> changes.finished(number, took_s=4.05)
    >>> round(changes.keys_per_s)
    227357
    >>> changes.observed(number, gain=0.0)
    >>> changes.trust("tables", now_s=0.0)
    0.5
    """

    def __init__(
        self,
        keys_per_s: float = KEYS_PER_S,
        bytes_per_s: float = BYTES_PER_S,
        fixed_s: float = FIXED_S,
    ) -> None:
        self.keys_per_s = keys_per_s
        self.bytes_per_s = bytes_per_s
        self.fixed_s = fixed_s
        self._entries: dict[int, Entry] = {}
        self._next = 0

    def __getitem__(self, number: int) -> Entry:
        return self._entries[number]

    def __iter__(self) -> Iterator[Entry]:
        """Oldest first."""
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def seconds(self, keys: float, size_bytes: float = 0.0) -> float:
        """How long it takes until so much has moved."""
        return self.fixed_s + max(keys / self.keys_per_s, size_bytes / self.bytes_per_s)

    def trust(self, kind: str, now_s: float) -> float:
        """What such changes brought of what was expected of them, as far as that is known.

        1 where there were none; between 0 and 2. What is long ago counts less, so that a job that
        was taught to stay as it is tries again when things have changed.
        """
        total, weight = _DOUBT, _DOUBT
        for one in self._entries.values():
            if one.kind == kind and one.gain is not None and one.predicted_gain > 0:
                counts = 0.5 ** (max(now_s - one.at_s, 0.0) / _HALF_LIFE_S)
                total += counts * min(max(one.gain / one.predicted_gain, 0.0), 2.0)
                weight += counts
        return total / weight

    def begin(self, now_s: float, kind: str, keys: int, size_bytes: float, gain: float) -> int:
        """A change begins; its number. `gain` is what is expected, in cores."""
        number, self._next = self._next, self._next + 1
        expected_s = self.seconds(keys, size_bytes)
        self._entries[number] = Entry(kind, now_s, keys, size_bytes, expected_s, gain)
        while len(self._entries) > MOST_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return number

    def finished(self, number: int, took_s: float, keys: int | None = None) -> None:
        """It is done; so many keys have really moved, if that is known."""
        one = self._entries.get(number)
        if one is None:
            return
        moved = one.keys if keys is None else keys
        self._entries[number] = replace(one, took_s=took_s, keys=moved)
        if moved < _MANY_KEYS:
            self.fixed_s = _toward(self.fixed_s, took_s)
            return
        moving_s = max(took_s - self.fixed_s, 0.1 * took_s)
        by_bytes = one.size_bytes / self.bytes_per_s > moved / self.keys_per_s
        if by_bytes:
            self.bytes_per_s = _toward(self.bytes_per_s, one.size_bytes / moving_s)
        else:
            self.keys_per_s = _toward(self.keys_per_s, moved / moving_s)

    def failed(self, number: int) -> None:
        """It was undone, and has brought nothing."""
        if number in self._entries:
            self._entries[number] = replace(self._entries[number], failed=True, gain=0.0)

    def observed(self, number: int, gain: float) -> None:
        """What it brought, in cores."""
        if number in self._entries:
            self._entries[number] = replace(self._entries[number], gain=gain)


def _toward(known: float, seen: float) -> float:
    """Rates and times are learned by their ratios: twice as fast is as far as half as fast."""
    return known if seen <= 0 else known * exp(_NEWS * log(seen / known))
