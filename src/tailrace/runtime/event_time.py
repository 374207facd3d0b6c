"""Event time: how it is read from records, how it moves on, and what waits for it.

A watermark is a promise: from this sender no record with an earlier event time comes any more.
Those who break it are late. An operator's time is the lowest watermark of all its senders.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil, inf, isfinite
from typing import Any

from tailrace.graph.model import MAIN, KeyFunction, Record
from tailrace.graph.validate import TopologyError
from tailrace.runtime.instance import Context
from tailrace.runtime.outlet import IDLE
from tailrace.runtime.step import Step

TimeFunction = Callable[[Record], float]
"""Reads a record's event time, in seconds since whatever the user counts from."""


def unread(record: Record) -> float:
    """Stands for the time function of records that have changed since their time was declared."""
    raise LookupError(f"nobody has said how to read the event time of {record!r}")


LATE = "late"
"""The output that gets the records which came too late."""


def check_seconds(what: str, seconds: object, *, zero: bool = False) -> None:
    """Raise a TopologyError unless it is a positive (or zero) finite number of seconds."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not isfinite(seconds)
        or seconds < 0
        or (seconds == 0 and not zero)
    ):
        least = "zero or more" if zero else "more than zero"
        raise TopologyError(f"{what} is {seconds!r}; it must be a number of seconds, {least}")


class _EventTimeStep(Step):
    """Passes records on, and a watermark behind them whenever time has moved."""

    holds_time = True

    def __init__(self, context: Context, logic: EventTime) -> None:
        self._context = context
        self._put = context.put(MAIN)
        self._time_of = logic.time_of
        self._max_delay_s = logic.max_delay_s
        self._idle_ns = None if logic.idle_s is None else int(logic.idle_s * 1e9)
        self._newest = -inf
        self._declared = -inf
        self._idle = False
        self._active_ns = 0
        self._kept: list[Record] = []
        self._watch()

    def process(self, records: Iterator[Record], port: int) -> None:
        kept, time_of = self._kept, self._time_of
        for record in records:
            time = time_of(record)
            if not isfinite(time):
                raise ValueError(f"the event time is {time!r}; it must be a finite number")
            if time > self._newest:
                self._newest = time
            kept.append(record)
        if not kept:
            return
        self._kept = []
        self._put(kept)
        watermark = self._newest - self._max_delay_s
        if watermark > self._declared or self._idle:
            self._declared = watermark
            self._context.advance(watermark)
        if self._idle_ns is not None:
            self._active_ns = self._context.clock_ns()
            if self._idle:
                self._watch()

    def _watch(self) -> None:
        self._idle = False
        if self._idle_ns is not None:
            self._active_ns = self._context.clock_ns()
            self._context.set_timer(self._active_ns + self._idle_ns, None)

    def on_timer(self, time: float, tag: Any) -> None:
        assert self._idle_ns is not None
        due_ns = self._active_ns + self._idle_ns
        if due_ns > self._context.clock_ns():
            self._context.set_timer(due_ns, None)
        else:
            self._idle = True
            self._context.advance(IDLE)


@dataclass(frozen=True)
class EventTime:
    """Declares the event time of a stream's records; watermarks from before it end here."""

    time_of: TimeFunction
    max_delay_s: float = 0.0
    idle_s: float | None = None

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _EventTimeStep(context, self)


class TimedStep(Step):
    """A keyed step that does things when their time has come.

    Event time comes by watermarks, and at the end of the input everything is due. Without a time
    function it is processing time: the worker's clock, by timers.
    """

    def __init__(self, context: Context, key: KeyFunction | None, time_of: TimeFunction | None):
        self._context = context
        self._key = key
        self._time_of = time_of
        self._due: list[tuple[float, int, Any]] = []
        self._ids = count()
        self._armed = inf
        self._results: list[Record] = []
        self._late: list[Record] = []
        self.watermark = -inf

    def stamped(self, records: Iterator[Record]) -> Iterator[tuple[float, Hashable, Record]]:
        """Each record with its time and key."""
        key_of, time_of = self._key, self._time_of
        now = self._context.clock_ns() / 1e9
        for record in records:
            time = now if time_of is None else time_of(record)
            yield time, record if key_of is None else key_of(record), record

    def at(self, time: float, what: Any) -> None:
        """Have `expire(what)` called when it is that time."""
        heapq.heappush(self._due, (time, next(self._ids), what))

    def expire(self, what: Any) -> None:
        """The time of something has come."""
        raise NotImplementedError

    def too_late(self, record: Record) -> None:
        """Count a record, and send it to those who read the late ones."""
        self._context.counts.late += 1
        self._late.append(record)

    def hand_on(self) -> None:
        """Hand on the results so far, and see to it that time moves on."""
        if self._late:
            late, self._late = self._late, []
            self._context.put(LATE)(late)
        if self._results:
            results, self._results = self._results, []
            self._context.put(MAIN)(results)
        if self._time_of is None and self._due and self._due[0][0] < self._armed:
            self._armed = self._due[0][0]
            self._context.set_timer(ceil(self._armed * 1e9), self._armed)

    def _expire_until(self, time: float) -> None:
        while self._due and self._due[0][0] <= time:
            self.expire(heapq.heappop(self._due)[2])
        self.hand_on()

    def advance(self, watermark: float) -> None:
        """Event time has moved."""
        if self._time_of is not None:
            self.watermark = watermark
            self._expire_until(watermark)

    def on_timer(self, time: float, tag: Any) -> None:
        """Processing time has moved."""
        if tag == self._armed:
            self._armed = inf
        self._expire_until(max(tag, self._context.clock_ns() / 1e9))

    def finish(self) -> None:
        """Time is over."""
        self._expire_until(inf)
