"""What results tell of a while: how late they were, and for how long there were none."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from change_parts.logged import WORDS, began_file
from recovery_parts.arrivals import SOURCES, Arrivals

_LATEST_NS = 10_000_000_000
"""Records that were due in a window and came later than so long after it are not looked for."""


@dataclass(frozen=True)
class Window:
    """A while, by the clock of results."""

    from_ns: int
    to_ns: int

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.to_ns - self.from_ns


@dataclass(frozen=True)
class Results:
    """When results were there and when their records were due, in the order of the first."""

    at_ns: list[int]
    due_ns: list[int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Results:
        """Of (at, due) in any order."""
        ordered = sorted(pairs)
        return cls([at for at, _ in ordered], [due for _, due in ordered])

    def latencies_ns(self, window: Window) -> list[int]:
        """Of all records that were under way in a window, however long they were.

        >>> results = Results.of([(10, 9), (30, 12), (40, 31)])
        >>> results.latencies_ns(Window(15, 20))
        [18]
        """
        first = bisect_left(self.at_ns, window.from_ns)
        last = bisect_right(self.at_ns, window.to_ns + _LATEST_NS)
        both = zip(self.at_ns[first:last], self.due_ns[first:last], strict=True)
        return [at - due for at, due in both if due <= window.to_ns]

    def longest_silence_ns(self, window: Window) -> int:
        """The longest time without a result that has a part in a window.

        >>> Results.of([(10, 9), (30, 12), (40, 31)]).longest_silence_ns(Window(15, 35))
        20
        """
        first = max(bisect_right(self.at_ns, window.from_ns) - 1, 0)
        times = self.at_ns[first : bisect_left(self.at_ns, window.to_ns) + 1]
        return max((b - a for a, b in pairwise(times)), default=0)


def percentile(values: Iterable[int], percent: float) -> float:
    """The nearest rank.

    >>> percentile(range(1, 201), 99)
    198
    """
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * percent // 100), 1).__int__() - 1]


def logs(folder: Path) -> Iterator[tuple[int, int, int]]:
    """All results: when each was there, the number of its record, the count of its key."""
    for path in folder.glob("*.log"):
        words = array("q")
        words.frombytes(path.read_bytes())
        yield from zip(*(words[part::WORDS] for part in range(WORDS)), strict=True)


def paced(arrivals: Arrivals, found: Iterable[tuple[int, int, int]]) -> Results:
    """The results of all records that came at the pace."""
    begun = [int(began_file(arrivals, index).read_text()) for index in range(SOURCES)]
    due = [arrivals.offsets_ns(index) for index in range(SOURCES)]
    pairs = []
    for at_ns, number, _ in found:
        place = number - arrivals.keys
        if place >= 0:
            index = place % SOURCES
            pairs.append((at_ns, begun[index] + due[index][place // SOURCES]))
    return Results.of(pairs)
