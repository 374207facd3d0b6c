"""Event time: how it is read from records, how it moves on, and what waits for it.

A watermark is a promise: from this sender no record with an earlier event time comes any more.
Those who break it are late. An operator's time is the lowest watermark of all its senders.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tailrace.graph.model import MAIN, KeyFunction, Record
from tailrace.runtime.hot import seconds_to_ns
from tailrace.runtime.instance import Context
from tailrace.runtime.markers import BEGINNING, IDLE
from tailrace.runtime.state import Entries, Entry, Stateful, lower
from tailrace.runtime.step import Step
from tailrace.runtime.times import Moment, is_dated, to_ns

TimeFunction = Callable[[Record], Moment]
"""Reads a record's event time: see `times.to_ns`."""


def unread(record: Record) -> Moment:
    """Stands for the time function of records that have changed since their time was declared."""
    raise LookupError(f"nobody has said how to read the event time of {record!r}")


LATE = "late"
"""The output that gets the records which came too late."""


class _EventTimeStep(Stateful):
    """Passes records on, and a watermark behind them whenever time has moved."""

    holds_time = True

    def __init__(self, context: Context, logic: EventTime) -> None:
        super().__init__()
        self._context = context
        self._put = context.put(MAIN)
        self._time_of = logic.time_of
        self._max_delay_ns = to_ns(logic.max_delay_s)
        self._idle_ns = None if logic.idle_s is None else to_ns(logic.idle_s)
        self._newest = BEGINNING
        self._declared = BEGINNING
        self._idle = False
        self._active_ns = 0
        self._kept: list[Record] = []
        self._watch()

    def process(self, records: Iterator[Record], port: int) -> None:
        kept, time_of = self._kept, self._time_of
        for record in records:
            time = to_ns(time_of(record))
            if time > self._newest:
                self._newest = time
            kept.append(record)
        if not kept:
            return
        self._kept = []
        self._put(kept)
        watermark = max(self._newest - self._max_delay_ns, BEGINNING + 1)
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

    def on_timer(self, at_ns: int, tag: Any) -> None:
        assert self._idle_ns is not None
        due_ns = self._active_ns + self._idle_ns
        if due_ns > self._context.clock_ns():
            self._context.set_timer(due_ns, None)
        else:
            self._idle = True
            self._context.advance(IDLE)

    def shared(self) -> Any:
        return self._newest, self._declared

    def put_shared(self, shared: Any) -> None:
        """Time goes on from the other's, and those behind hear of it; of two, the lower counts."""
        newest, declared = shared
        self._newest = lower(self._newest, newest, BEGINNING)
        self._declared = lower(self._declared, declared, BEGINNING)
        if self._declared != BEGINNING:
            self._context.advance(self._declared)

    def merge_shared(self, shared: Any) -> None:
        """Each has a time of its own."""

    def be_beside(self, shared: Sequence[Any]) -> None:
        """Nothing earlier than what all have declared is on time."""
        for one in shared:
            self.put_shared(one)


@dataclass(frozen=True)
class EventTime:
    """Declares the event time of a stream's records; watermarks from before it end here."""

    time_of: TimeFunction
    max_delay_s: float = 0.0
    idle_s: float | None = None

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _EventTimeStep(context, self)


class TimedStep(Stateful):
    """A keyed step that does things when their time has come.

    Event time comes by watermarks, and at the end of the input everything is due. Without a time
    function it is processing time: the wall clock, by timers of the worker's.
    """

    def __init__(
        self,
        context: Context,
        keys: Sequence[KeyFunction | None],
        time_of: TimeFunction | None,
    ) -> None:
        """`keys`: the key functions of its ports."""
        super().__init__()
        self._context = context
        self.key_of = dict(enumerate(keys))
        self._time_of = time_of
        self._due: list[tuple[int, int, Any]] = []
        self._ids = count()
        self._armed: int | None = None
        self._now_ns = BEGINNING
        self._results: list[Record] = []
        self._late: list[Record] = []
        self._dated = False
        self.watermark = BEGINNING
        self.watermark_at_cut = BEGINNING
        """What keys that nobody has touched since then are looked at by."""

    def stamped(
        self, records: Iterator[tuple[Record, Hashable]]
    ) -> Iterator[tuple[int, Hashable, Record]]:
        """Each record with its time and key."""
        time_of = self._time_of
        now = self._now() if time_of is None else 0
        for record, key in records:
            if time_of is None:
                time = now
            else:
                moment = time_of(record)
                found = seconds_to_ns(moment)
                if found is None:
                    found = to_ns(moment)
                    self._dated = is_dated(moment)
                time = found
            yield time, key, record

    def _now(self) -> int:
        """Wall-clock time, which never goes back here: a window that is over stays over."""
        self._now_ns = max(self._now_ns, self._context.wall_ns())
        return self._now_ns

    def at(self, time_ns: int, what: Any) -> None:
        """Have `expire(what)` called when it is that time."""
        heapq.heappush(self._due, (time_ns, next(self._ids), what))

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
        if self._time_of is None and self._due:
            due_ns = self._due[0][0]
            if self._armed is None or due_ns < self._armed:
                self._armed = due_ns
                wait_ns = max(due_ns - max(self._now_ns, self._context.wall_ns()), 0)
                self._context.set_timer(self._context.clock_ns() + wait_ns, due_ns)

    def _expire_until(self, time_ns: int) -> None:
        while self._due and self._due[0][0] <= time_ns:
            self.expire(heapq.heappop(self._due)[2])
        self.hand_on()

    def advance(self, watermark: int) -> None:
        """Event time has moved."""
        if self._time_of is not None and watermark >= self.watermark:
            self.watermark = watermark
            self._expire_until(watermark)

    def on_timer(self, at_ns: int, tag: Any) -> None:
        """Processing time has moved."""
        if tag == self._armed:
            self._armed = None
        self._expire_until(self._now())

    def finish(self) -> None:
        """Time is over."""
        while self._due:
            self.expire(heapq.heappop(self._due)[2])
        self.hand_on()

    def put_in(self, entries: Iterable[Entry]) -> None:
        """Take them in, and let go of what became due on the way."""
        super().put_in(entries)
        self._expire_until(self._now() if self._time_of is None else self.watermark)

    def restore(self, entries: Entries) -> None:
        """Take them in; what became due meanwhile is let go of when time moves on."""
        super().restore(entries)
        if self._time_of is None:
            self.hand_on()

    def cut(self, *, full: bool = False) -> Iterator[Entry]:
        """Remember also how far time is."""
        cut = super().cut(full=full)
        self.watermark_at_cut = self.watermark
        return cut

    def shared(self) -> Any:
        """How far event time is, whether it is in dates, and how far processing time is."""
        return self.watermark, self._dated, self._now_ns

    def put_shared(self, shared: Any) -> None:
        """Of two watermarks the lower counts."""
        watermark, dated, *_ = shared
        self.watermark = lower(self.watermark, watermark, BEGINNING)
        self.watermark_at_cut = self.watermark
        self._dated |= dated
        self.hear_of(shared)

    def merge_shared(self, shared: Any) -> None:
        """Time goes on here; keys that come know how far it was where they were."""
        self._dated |= shared[1]
        self.hear_of(shared)

    def hear_of(self, shared: Any) -> None:
        """A window that is over where keys come from is so here, also if our clock is behind."""
        if len(shared) > 2:  # before it was kept, state had nothing of that
            self._now_ns = max(self._now_ns, shared[2])

    def be_beside(self, shared: Sequence[Any]) -> None:
        """What was late stays late."""
        for one in shared:
            self.put_shared(one)
