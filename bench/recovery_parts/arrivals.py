"""When the records of the keyed workload are due, and what they are; free of any system.

First one record for each key, as fast as they are taken: then there is that much state. Then
records at a rate, at random distances (Poisson). When these are due is in files, so that a source
that goes on in the middle of them finds its place at once.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = 2
_SCATTER = 7_919 * 104_729
"""Coprime to the numbers of keys: each comes once before one comes again."""


@dataclass(frozen=True)
class Arrivals:
    """What comes when. `folder` has the due times: `write` makes them."""

    folder: str
    keys: int
    paced: int
    """Records after the first of each key."""
    changing: int
    """So many of the keys get them."""

    @property
    def total(self) -> int:
        """All records of all sources."""
        return self.keys + self.paced

    def key(self, number: int) -> str:
        """The key of a record."""
        place = number if number < self.keys else number * _SCATTER % self.changing
        return f"key-{place:07}"

    def write(self, offsets_ns: dict[int, Iterator[int]]) -> None:
        """Make the files, from the due times of each source after the first records."""
        for index, times in offsets_ns.items():
            mine = range(self.keys + index, self.total, SOURCES)
            self._path(index).write_bytes(array("q", (next(times) for _ in mine)).tobytes())

    def offsets_ns(self, index: int) -> "array[int]":
        """When the records of a source are due, after the first ones."""
        offsets_ns = array("q")
        offsets_ns.frombytes(self._path(index).read_bytes())
        return offsets_ns

    def _path(self, index: int) -> Path:
        return Path(self.folder) / f"due-{index}"


class Due:
    """One source's records. Its position: how many it has given, and when the pace began."""

    def __init__(self, arrivals: Arrivals, index: int, emitted: int = 0, begin_ns: int = 0) -> None:
        self._arrivals = arrivals
        self._index = index
        self.emitted = emitted
        self.begin_ns = begin_ns
        self._first = len(range(index, arrivals.keys, SOURCES))
        self._offsets_ns = arrivals.offsets_ns(index)

    @property
    def position(self) -> tuple[int, int]:
        """Where to go on."""
        return self.emitted, self.begin_ns

    def resume_at(self, now_ns: int) -> None:
        """Lay the rest of the pace onto the clock anew: its next record is due now."""
        if self.emitted >= self._first:
            self.begin_ns = now_ns - self._offset_ns()

    def next_due_ns(self) -> int:
        """When the next record is due; 0: at once."""
        return self.begin_ns + self._offset_ns() if self.begin_ns else 0

    def _offset_ns(self) -> int:
        place = self.emitted - self._first
        return self._offsets_ns[min(place, len(self._offsets_ns) - 1)]

    def take(self, most: int, now_ns: int) -> list[tuple[str, int]] | None:
        """The records that are due, each (key, number); None: there are no more."""
        first, emitted = self._first, self.emitted
        if emitted < first:
            count = min(most, first - emitted)
        else:
            if not self.begin_ns:
                self.begin_ns = now_ns
            place = emitted - first
            if place == len(self._offsets_ns):
                return None
            due = bisect_right(self._offsets_ns, now_ns - self.begin_ns, place)
            count = min(due - place, most)
        self.emitted += count
        numbers = range(emitted, emitted + count)
        key, index = self._arrivals.key, self._index
        places = [self._number(number, index) for number in numbers]
        return [(key(number), number) for number in places]

    def _number(self, place: int, index: int) -> int:
        if place < self._first:
            return index + place * SOURCES
        return self._arrivals.keys + index + (place - self._first) * SOURCES


def audit(arrivals: Arrivals, results: Iterator[tuple[int, int]]) -> tuple[int, int]:
    """How many results are lost, and how many too much; each is (its record's number, the count).

    A record's result is there once, and each key has counted all of its records, each once; a key
    that has not is one more that is lost.
    """
    seen = bytearray(arrivals.total)
    counted: dict[str, list[int]] = {}
    more = 0
    for number, count in results:
        if seen[number]:
            more += 1
        seen[number] = 1
        counted.setdefault(arrivals.key(number), []).append(count)
    lost = seen.count(0)
    wrong = sum(sorted(counts) != list(range(1, len(counts) + 1)) for counts in counted.values())
    return lost + wrong, more
