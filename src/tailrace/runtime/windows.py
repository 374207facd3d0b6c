"""Windows: the records of a key, cut into pieces by time.

A window [start, end) is worked out when time reaches its end, and then forgotten, or kept for
`lateness_s` more. So what is kept is bounded by the keys of the windows that are open.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tailrace.graph.model import KeyFunction, Record
from tailrace.graph.validate import TopologyError
from tailrace.runtime.event_time import TimedStep, TimeFunction, check_seconds
from tailrace.runtime.instance import Context
from tailrace.runtime.step import Step


class WindowResult(NamedTuple):
    """What the records of a key in a window came to. The window is [start, end), in seconds."""

    key: Hashable
    start: float
    end: float
    value: Any


@dataclass(frozen=True)
class Sliding:
    """Windows of one size that start at every multiple of a period."""

    size_s: float
    every_s: float


@dataclass(frozen=True)
class Session:
    """Windows without a gap: they end when nothing has come for that long."""

    gap_s: float


Window = Sliding | Session


def tumbling(size_s: float) -> Sliding:
    """Windows side by side, aligned to zero: each record is in exactly one.

    >>> tumbling(60)
    Sliding(size_s=60, every_s=60)
    """
    check_seconds("size_s of tumbling()", size_s)
    return Sliding(size_s, size_s)


def sliding(size_s: float, every_s: float) -> Sliding:
    """Windows that overlap: one of `size_s` starts at every multiple of `every_s`.

    A record is in up to `ceil(size_s / every_s)` of them, and is worked on as often.
    """
    check_seconds("size_s of sliding()", size_s)
    check_seconds("every_s of sliding()", every_s)
    if every_s > size_s:
        raise TopologyError(
            f"every_s of sliding() is {every_s}, but size_s is {size_s}: records between two"
            " windows would vanish; make every_s at most size_s"
        )
    return Sliding(size_s, every_s)


def session(gap_s: float) -> Session:
    """Windows of activity: two records are in one if less than `gap_s` lies between them.

    A session starts at its first record and ends `gap_s` after its last. A record that falls
    between two sessions may join them to one.
    """
    check_seconds("gap_s of session()", gap_s)
    return Session(gap_s)


class _WindowStep(TimedStep):
    """What fixed windows and sessions share."""

    def __init__(self, context: Context, logic: Windowed) -> None:
        super().__init__(context, logic.key, logic.time_of)
        self._function = logic.function
        self._initial = logic.initial
        self._lateness_s = logic.lateness_s
        self._copy = logic.copy

    def _emit(self, key: Hashable, start: float, end: float, state: Any) -> None:
        value = state if self._copy is None else self._copy(state)
        self._results.append(WindowResult(key, start, end, value))


class _SlidingStep(_WindowStep):
    """Windows by number: number n is [n * every_s, n * every_s + size_s)."""

    def __init__(self, context: Context, logic: Windowed, window: Sliding) -> None:
        super().__init__(context, logic)
        self._size_s = window.size_s
        self._every_s = window.every_s
        self._open: dict[int, dict[Hashable, Any]] = {}

    def _bounds(self, number: int) -> tuple[float, float]:
        start = number * self._every_s
        if self._size_s == self._every_s:
            return start, (number + 1) * self._every_s  # to the bit where the next one starts
        return start, start + self._size_s

    def _windows_of(self, time: float) -> Iterator[tuple[int, float]]:
        """The numbers and ends of the windows around a time, latest first."""
        number = int(time // self._every_s)
        while time >= (number + 1) * self._every_s:  # where the division was rounded
            number += 1
        while time < number * self._every_s:
            number -= 1
        while (end := self._bounds(number)[1]) > time:
            yield number, end
            number -= 1

    def process(self, records: Iterator[Record], port: int) -> None:
        opened, function = self._open, self._function
        for time, key, record in self.stamped(records):
            found = []
            # All states before any is kept: a function that raises leaves no trace of the record.
            for number, end in self._windows_of(time):
                if end + self._lateness_s > self.watermark:
                    states = opened.get(number)
                    state = self._initial if states is None else states.get(key, self._initial)
                    found.append((number, end, function(state, record)))
            if not found:
                self.too_late(record)
            for number, end, state in found:
                fired = end <= self.watermark
                if number not in opened:
                    opened[number] = {}
                    self.at(end + self._lateness_s if fired else end, (number, fired))
                opened[number][key] = state
                if fired:
                    self._emit(key, *self._bounds(number), state)
        self.hand_on()

    def expire(self, what: tuple[int, bool]) -> None:
        number, fired = what
        start, end = self._bounds(number)
        if not fired:
            for key, state in self._open[number].items():
                self._emit(key, start, end, state)
            if self._lateness_s:
                self.at(end + self._lateness_s, (number, True))
                return
        del self._open[number]


class _Session:
    """One key's time of activity."""

    __slots__ = ("due", "end", "fired", "key", "start", "state")

    def __init__(self, key: Hashable, start: float, end: float, state: Any) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.state = state
        self.fired = False
        self.due: float | None = None  # when `expire` is to be called; None: it is no more


class _SessionStep(_WindowStep):
    def __init__(self, context: Context, logic: Windowed, window: Session) -> None:
        super().__init__(context, logic)
        self._gap_s = window.gap_s
        assert logic.merge is not None
        self._merge = logic.merge
        self._open: dict[Hashable, list[_Session]] = {}

    def process(self, records: Iterator[Record], port: int) -> None:
        for time, key, record in self.stamped(records):
            sessions = self._open.get(key, [])
            end = time + self._gap_s
            met = [one for one in sessions if one.start < end and time < one.end]
            if not met and end + self._lateness_s <= self.watermark:
                self.too_late(record)
                continue
            state = met[0].state if met else self._initial
            for other in met[1:]:
                state = self._merge(state, other.state)
            state = self._function(state, record)
            if met:
                session = met[0]
                for other in met[1:]:
                    sessions.remove(other)
                    other.due = None
                session.start = min(session.start, time)
                session.end = max(end, met[-1].end)
                session.state = state
            else:
                session = _Session(key, time, end, state)
                sessions.append(session)
                sessions.sort(key=lambda one: one.start)
                self._open[key] = sessions
            session.fired = session.end <= self.watermark
            if session.fired:
                self._emit(key, session.start, session.end, state)
            self._schedule(session)
        self.hand_on()

    def _schedule(self, session: _Session) -> None:
        """Have it expire no later than it has to; where that is too early, `expire` asks again."""
        due = session.end + self._lateness_s if session.fired else session.end
        if session.due is None or due < session.due:
            session.due = due
            self.at(due, (due, session))

    def expire(self, what: tuple[float, _Session]) -> None:
        due, session = what
        if session.due != due:
            return  # merged into another, or scheduled anew
        session.due = None
        if not session.fired and session.end <= due:
            session.fired = True
            self._emit(session.key, session.start, session.end, session.state)
        if session.fired and session.end + self._lateness_s <= due:
            sessions = self._open[session.key]
            sessions.remove(session)
            if not sessions:
                del self._open[session.key]
        else:
            self._schedule(session)


def append(state: list[Record] | None, record: Record) -> list[Record]:
    """The function of `collect`: all records, in the order in which they came."""
    if state is None:
        return [record]
    state.append(record)
    return state


@dataclass(frozen=True)
class Windowed:
    """State per key and window: a `WindowResult` for each when its time is over."""

    window: Window
    key: KeyFunction | None
    time_of: TimeFunction | None
    lateness_s: float
    function: Callable[[Any, Record], Any]
    initial: Any = None
    merge: Callable[[Any, Any], Any] | None = None
    copy: Callable[[Any], Any] | None = None
    """Of a state that the function changes in place, before it is handed on."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        if isinstance(self.window, Session):
            return _SessionStep(context, self, self.window)
        return _SlidingStep(context, self, self.window)
