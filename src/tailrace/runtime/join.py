"""Joins: the pairs of two keyed streams that lie close together in time.

Each record is kept until nothing can match it any more, so what is kept is bounded by what comes
within twice the time bound (and the delay of event time).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import count
from math import inf, nextafter
from typing import Any

from tailrace.graph.model import KeyFunction, Record
from tailrace.runtime.event_time import TimedStep, TimeFunction
from tailrace.runtime.instance import Context
from tailrace.runtime.step import Step


class JoinKind(Enum):
    """What becomes of records without a match."""

    INNER = "inner"  # nothing
    LEFT = "left"  # those of the left side come out with None
    OUTER = "outer"  # those of both sides do


def pair(left: Record, right: Record) -> tuple[Record, Record]:
    """The default function of a join."""
    return left, right


@dataclass(slots=True, order=True)
class _Kept:
    """A record that waits for others. They are in the order of their times."""

    time: float
    number: int  # no two are equal, so that records need not be comparable
    record: Record
    matched: bool = False


class _Side:
    """One input: how it is read, and what is kept of it, by key."""

    def __init__(
        self, key: KeyFunction | None, time_of: TimeFunction | None, keeps_unmatched: bool
    ) -> None:
        self.key = key
        self.time_of = time_of
        self.keeps_unmatched = keeps_unmatched
        self.kept: dict[Hashable, list[_Kept]] = {}


class _JoinStep(TimedStep):
    def __init__(self, context: Context, logic: Join) -> None:
        left_time, right_time = logic.times_of
        super().__init__(context, None, left_time)
        outer = logic.kind is JoinKind.OUTER
        self._sides = (
            _Side(logic.keys[0], left_time, outer or logic.kind is JoinKind.LEFT),
            _Side(logic.keys[1], right_time, outer),
        )
        self._within_s = logic.within_s
        self._function = logic.function
        self._numbers = count()

    def process(self, records: Iterator[Record], port: int) -> None:
        side, other = self._sides[port], self._sides[1 - port]
        self._key, self._time_of = side.key, side.time_of
        within_s = self._within_s
        for time, key, record in self.stamped(records):
            last = time + within_s
            if last < self.watermark:
                self.too_late(record)
                continue
            matches = self._around(other.kept.get(key, []), time)
            # All pairs before any is kept: a function that raises leaves no trace of the record.
            self._results += [self._pair(port, record, match.record) for match in matches]
            for match in matches:
                match.matched = True
            kept = _Kept(time, next(self._numbers), record, bool(matches))
            insort(side.kept.setdefault(key, []), kept)
            self.at(nextafter(last, inf), (port, key))  # at `last` itself something may still match
        self.hand_on()

    def _around(self, kept: list[_Kept], time: float) -> list[_Kept]:
        matches = []
        for i in range(bisect_left(kept, _Kept(time - self._within_s, -1, None)), len(kept)):
            if kept[i].time - time > self._within_s:
                break
            matches.append(kept[i])
        return matches

    def _pair(self, port: int, record: Record, match: Record) -> Record:
        return self._function(record, match) if port == 0 else self._function(match, record)

    def expire(self, what: tuple[int, Hashable]) -> None:
        port, key = what
        side = self._sides[port]
        # Both this list and what is due are in the order of times: the first is the one meant.
        kept = side.kept[key].pop(0)
        if not side.kept[key]:
            del side.kept[key]
        if side.keeps_unmatched and not kept.matched:
            try:
                self._results.append(self._pair(port, kept.record, None))
            except Exception as error:
                self._context.fail(kept.record, error)


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
