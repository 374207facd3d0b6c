"""Joins: the pairs of two keyed streams that lie close together in time.

Each record is kept until nothing can match it any more, so what is kept is bounded by what comes
within twice the time bound (and the delay of event time).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from tailrace.graph.model import KeyFunction, Record
from tailrace.runtime.event_time import TimedStep, TimeFunction
from tailrace.runtime.instance import Context
from tailrace.runtime.step import Step
from tailrace.runtime.times import to_ns


class JoinKind(Enum):
    """What becomes of records without a match."""

    INNER = "inner"  # nothing
    LEFT = "left"  # those of the left side come out with None
    OUTER = "outer"  # those of both sides do


def pair(left: Record, right: Record) -> tuple[Record, Record]:
    """The default function of a join."""
    return left, right


@dataclass(slots=True)
class _Kept:
    """A record that waits for others."""

    time: int
    record: Record
    matched: bool


_time = attrgetter("time")


class _Side:
    """One input: how it is read, and whether those without a match come out in the end."""

    def __init__(self, time_of: TimeFunction | None, keeps_unmatched: bool) -> None:
        self.time_of = time_of
        self.keeps_unmatched = keeps_unmatched


class _JoinStep(TimedStep):
    _open: dict[Hashable, tuple[list[_Kept], list[_Kept]]]
    """What is kept of both sides, in the order of times."""

    def __init__(self, context: Context, logic: Join) -> None:
        left_time, right_time = logic.times_of
        super().__init__(context, logic.keys, left_time)
        outer = logic.kind is JoinKind.OUTER
        self._sides = (
            _Side(left_time, outer or logic.kind is JoinKind.LEFT),
            _Side(right_time, outer),
        )
        self._within_ns = to_ns(logic.within_s)
        self._function = logic.function

    def process(self, records: Iterator[Any], port: int) -> None:
        self._time_of = self._sides[port].time_of
        for time, key, record in self.stamped(records):
            if time + self._within_ns < self.watermark:
                self.too_late(record)
                continue
            both = self._open.get(key)
            if both is None:
                both = [], []
            self.touch(key)
            matches = self._around(both[1 - port], time)
            # All pairs before any is kept: a function that raises leaves no trace of the record.
            self._results += [self._pair(port, record, match.record) for match in matches]
            for match in matches:
                match.matched = True
            self._open[key] = both
            self._keep(key, port, _Kept(time, record, bool(matches)))
        self.hand_on()

    def _around(self, kept: list[_Kept], time: int) -> list[_Kept]:
        """Those within the bound: most often all there are."""
        if not kept:
            return kept
        start, end = 0, len(kept)
        if kept[0].time < time - self._within_ns:
            start = bisect_left(kept, time - self._within_ns, key=_time)
        if kept[-1].time > time + self._within_ns:
            end = bisect_right(kept, time + self._within_ns, start, key=_time)
        return kept[start:end]

    def _pair(self, port: int, record: Record, match: Record) -> Record:
        return self._function(record, match) if port == 0 else self._function(match, record)

    def _keep(self, key: Hashable, port: int, kept: _Kept) -> None:
        others = self._open[key][port]
        if others and others[-1].time > kept.time:
            insort(others, kept, key=_time)
        else:
            others.append(kept)
        last = kept.time + self._within_ns
        self.at(last + 1, (last, port, key))  # at `last` itself something may still match

    def expire(self, what: tuple[int, int, Hashable]) -> None:
        last, port, key = what
        if key not in self._open:
            return  # taken elsewhere
        self.touch(key)
        both = self._open[key]
        kept, side = both[port], self._sides[port]
        while kept and kept[0].time + self._within_ns <= last:
            gone = kept.pop(0)
            if side.keeps_unmatched and not gone.matched:
                try:
                    self._results.append(self._pair(port, gone.record, None))
                except Exception as error:
                    self._context.fail(gone.record, error)
        if not both[0] and not both[1]:
            del self._open[key]

    def _look(self, key: Hashable) -> Any:
        both = self._open.get(key)
        return both and tuple([(k.time, k.record, k.matched) for k in side] for side in both)

    def _put_back(self, key: Hashable, value: Any) -> None:
        self._open[key] = ([], [])
        for port, side in enumerate(value):
            for kept in side:
                self._keep(key, port, _Kept(*kept))


@dataclass(frozen=True)
class MigratingRecords:
    """A migration of one record, for all that a join keeps of a key."""

    migrate: Callable[[Any, Any, int], Any]

    def __call__(self, key: Hashable, kept: Any, version: int) -> Any:
        """Both sides."""
        return tuple(
            [(time, self.migrate(key, record, version), matched) for time, record, matched in side]
            for side in kept
        )


@dataclass(frozen=True)
class Join:
    """Pairs of records with equal keys whose times differ by no more than a bound."""

    keys: tuple[KeyFunction | None, KeyFunction | None]
    times_of: tuple[TimeFunction | None, TimeFunction | None]
    within_s: float
    function: Callable[[Any, Any], Record] = pair
    kind: JoinKind = JoinKind.INNER

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _JoinStep(context, self)
