"""Records made on the spot, at exact times.

Every record has its scheduled time, computed from the start and not from the record before: a
source that falls behind catches up, its rate does not drift, and the latency of a late record
counts from when it should have been there.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, count, islice, takewhile
from math import isfinite
from typing import Any, Protocol

from tailrace.graph.model import Record
from tailrace.runtime.source import Reader, Source, Split, shares

_NEVER = sys.maxsize
_BLOCK = 256
"""Records of a Poisson process that are drawn together."""


def _check_positive(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; it must be above 0 and finite")


class Pace(Protocol):
    """When records are due."""

    def offsets_ns(self, index: int, of: int, skip: int) -> Iterator[int]:
        """The due times of share `index` of `of`, from the start of the schedule.

        The schedules of all shares together are the whole; the first `skip` are left out.
        """
        ...


@dataclass(frozen=True)
class Constant:
    """So many per second, at even distances. Share i of n has every n-th, from the i-th."""

    per_s: float

    def __post_init__(self) -> None:
        _check_positive("per_s", self.per_s)

    def offsets_ns(self, index: int, of: int, skip: int) -> Iterator[int]:
        """See `Pace`."""
        # In whole numbers: at 3 per second the billionth record is still due on its nanosecond.
        distance = 1_000_000_000 / Fraction(self.per_s)
        top, bottom = distance.numerator, distance.denominator
        return (i * top // bottom for i in count(index + skip * of, of))


@dataclass(frozen=True)
class Poisson:
    """So many per second on average, at random distances that follow from the seed.

    Each split has a process of its own of its share of the rate; their union is again Poisson.
    To skip a million records takes some milliseconds.
    """

    per_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check_positive("per_s", self.per_s)

    def offsets_ns(self, index: int, of: int, skip: int) -> Iterator[int]:
        """See `Pace`."""
        return map(int, _poisson(f"{self.seed} {index} {of}", 1e9 * of / self.per_s, skip))


def _poisson(seed: str, mean: float, skip: int) -> Iterator[float]:
    """The times of a Poisson process with this mean distance, but for the first `skip` of them.

    How long a block of records takes is drawn first, and then how it is divided: that is the same
    process, and who skips a block need not draw its records.
    """
    first, inside = divmod(skip, _BLOCK)
    lengths = random.Random(seed)
    start = sum(lengths.gammavariate(_BLOCK, mean) for _ in range(first))
    for block in count(first):
        length = lengths.gammavariate(_BLOCK, mean)
        chance = random.Random(f"{seed} {block}")
        parts = [chance.expovariate(1.0) for _ in range(_BLOCK)]
        scale = length / sum(parts)
        yield from islice((start + end * scale for end in accumulate(parts)), inside, None)
        start, inside = start + length, 0


@dataclass(frozen=True)
class Bursts:
    """`size` records at once, every `every_s`; the splits share each burst."""

    size: int
    every_s: float

    def __post_init__(self) -> None:
        _check_positive("size", self.size)
        _check_positive("every_s", self.every_s)

    def offsets_ns(self, index: int, of: int, skip: int) -> Iterator[int]:
        """See `Pace`."""
        every_ns = round(self.every_s * 1e9)
        return (i // self.size * every_ns for i in count(index + skip * of, of))


class _Paced(Reader):
    def __init__(
        self,
        records: Iterator[Record],
        offsets_ns: Iterator[int],
        clock_ns: Callable[[], int],
        emitted: int,
    ) -> None:
        self._records = records
        self._dues_ns = offsets_ns
        self._clock_ns = clock_ns
        self._emitted = emitted
        self._due_ns = 0
        self._started = False

    def _start(self, now_ns: int) -> None:
        """Lay the schedule onto the clock: its start, or where it goes on, is now."""
        self._started = True
        first_ns = next(self._dues_ns, None)
        if first_ns is None:
            self._due_ns = _NEVER
            return
        start_ns = now_ns - first_ns if self._emitted else now_ns
        self._due_ns = start_ns + first_ns
        self._dues_ns = map(start_ns.__add__, self._dues_ns)

    def poll(self, most: int) -> list[Record] | None:
        now_ns = self._clock_ns()
        if not self._started:
            self._start(now_ns)
        due_ns = self._due_ns
        if now_ns < due_ns:
            return None if due_ns == _NEVER else []
        dues_ns = self._dues_ns
        due = 0
        first_ns = due_ns
        while due_ns <= now_ns and due < most:
            due += 1
            due_ns = next(dues_ns, _NEVER)
        records = list(islice(self._records, due))
        self._due_ns = due_ns if len(records) == due else _NEVER
        self._emitted += len(records)
        self.emitted_ns = first_ns
        return records or None

    def due_ns(self) -> int:
        return 0 if self._due_ns == _NEVER else self._due_ns

    def position(self) -> int:
        return self._emitted


class _Unpaced(Reader):
    def __init__(
        self,
        records: Iterator[Record],
        seconds: float | None,
        clock_ns: Callable[[], int],
        emitted: int,
    ) -> None:
        self._records = records
        self._seconds = seconds
        self._clock_ns = clock_ns
        self._emitted = emitted
        self._end_ns: int | None = None

    def poll(self, most: int) -> list[Record] | None:
        if self._seconds is not None:
            now_ns = self._clock_ns()
            if self._end_ns is None:
                self._end_ns = now_ns + round(self._seconds * 1e9)
            if now_ns >= self._end_ns:
                return None
        records = list(islice(self._records, most))
        self._emitted += len(records)
        return records or None

    def position(self) -> int:
        return self._emitted


@dataclass(frozen=True)
class Generate(Source):
    """Records from a function or a collection, at a pace.

    `make(i)` gives the i-th record of the whole source; or `make` is a collection, and its records
    are taken in order; without it a record is its own number. Split i of n has every n-th record,
    from the i-th on; there are as many as instances at the start, or `shares`. The source ends
    after `count` records, or with the last one that is due within `seconds`, or when the collection
    does.

    Without a pace, records come as fast as they are taken; `seconds` then begin anew after a
    rewind.
    """

    make: Callable[[int], Record] | Iterable[Record] | None = None
    pace: Pace | None = None
    count: int | None = None
    seconds: float | None = None
    shares: int | None = None

    @property
    def rewinds(self) -> bool:  # type: ignore[override]
        """Yes, if `make` gives the same each time; of a set, another process has another order."""
        return not isinstance(self.make, set | frozenset)

    def __post_init__(self) -> None:
        if self.shares is not None and self.shares < 1:
            raise ValueError(f"shares is {self.shares}; it must be at least 1")
        if self.count is not None and self.count < 0:
            raise ValueError(f"count is {self.count}; it must be at least 0")
        if self.seconds is not None:
            _check_positive("seconds", self.seconds)
        if isinstance(self.make, Iterator):
            raise TypeError(
                f"{type(self.make).__name__} can be read only once, by one instance; "
                "give a list or a function of the record's number"
            )

    def splits(self, parallelism: int) -> Sequence[Split]:
        """As many as there are instances, or as were asked for."""
        return shares(self.shares or parallelism)

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """A share; a position is the number of records of it that were emitted."""
        emitted = position or 0
        first = split.index + emitted * split.of
        total = self.count
        make: Any = self.make
        if isinstance(make, Sized):
            total = len(make) if total is None else min(total, len(make))
        numbers: Iterable[int] = count(first, split.of)
        if total is not None:
            numbers = range(first, max(first, total), split.of)
        if make is None:
            records: Iterator[Record] = iter(numbers)
        elif callable(make):
            records = map(make, numbers)
        else:
            stop = None if total is None else max(first, total)
            records = islice(make, first, stop, split.of)
        if self.pace is None:
            return _Unpaced(records, self.seconds, clock_ns, emitted)
        offsets_ns = self.pace.offsets_ns(split.index, split.of, emitted)
        if isinstance(numbers, range):
            offsets_ns = islice(offsets_ns, len(numbers))
        if self.seconds is not None:
            offsets_ns = takewhile(round(self.seconds * 1e9).__gt__, offsets_ns)
        return _Paced(records, offsets_ns, clock_ns, emitted)

    def unpaced(self) -> Generate:
        """The same records, each as soon as it is asked for."""
        return replace(self, pace=None, seconds=None)
