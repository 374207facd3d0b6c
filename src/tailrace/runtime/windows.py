"""Windows: the records of a key, cut into pieces by time.

A window [start, end) is worked out when time reaches its end, and then forgotten, or kept for
`lateness_s` more. So what is kept is bounded by the keys of the windows that are open.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from tailrace.graph.model import KeyFunction, Record
from tailrace.graph.validate import TopologyError
from tailrace.runtime.event_time import TimedStep, TimeFunction
from tailrace.runtime.instance import Context
from tailrace.runtime.state import copies
from tailrace.runtime.step import Step
from tailrace.runtime.times import check_seconds, shown, to_ns


class WindowResult(NamedTuple):
    """What the records of a key in a window came to. The window is [start, end).

    Both are in seconds, ints if they are whole; or datetimes in UTC, if the records' times are
    dates. In processing time they are seconds since 1970.
    """

    key: Hashable
    start: Any
    end: Any
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
        super().__init__(context, (logic.key, *logic.more_keys), logic.time_of)
        self._function = logic.function
        self._fresh = copies(logic.initial)
        self._lateness_ns = to_ns(logic.lateness_s)
        self._copy = logic.copy

    def _emit(self, key: Hashable, start_ns: int, end_ns: int, state: Any) -> None:
        value = state if self._copy is None else self._copy(state)
        dated = self._dated
        self._results.append(WindowResult(key, shown(start_ns, dated), shown(end_ns, dated), value))


class _SlidingStep(_WindowStep):
    """Windows by number: number n is [n * every, n * every + size).

    Kept are the states of each key, by window; and for each window its keys, for when it is over.
    """

    _open: dict[Hashable, dict[int, Any]]

    def __init__(self, context: Context, logic: Windowed, window: Sliding) -> None:
        super().__init__(context, logic)
        self._size_ns = to_ns(window.size_s)
        self._every_ns = to_ns(window.every_s)
        self._keys: dict[int, dict[Hashable, None]] = {}
        self._given: set[tuple[Hashable, int]] = set()
        """Those whose result was given elsewhere, where time was further on than it is here."""

    def _bounds(self, number: int) -> tuple[int, int]:
        start = number * self._every_ns
        return start, start + self._size_ns

    def process(self, records: Iterator[Any], port: int) -> None:
        opened, function, touched = self._open, self._function, self._touched
        every, size, lateness = self._every_ns, self._size_ns, self._lateness_ns
        watermark = self.watermark
        for time, key, record in self.stamped(records):
            windows = opened.get(key)
            if touched is not None and key not in touched:
                self.touch(key)
            newest, before = time // every, (time - size) // every
            if windows is None:
                windows = {}
            elif newest == before + 1 and newest in windows and newest * every + size > watermark:
                # Of windows side by side, one that is open and has this key: most records.
                state = function(windows[newest], record)
                if state is not None and not self._given:
                    windows[newest] = state
                else:
                    self._keep(key, windows, newest, state)
                continue
            found = []
            # All states before any is kept: a function that raises leaves no trace of the record.
            for number in range(newest, before, -1):
                if number * every + size + lateness > watermark:
                    state = windows[number] if number in windows else self._fresh(key)
                    found.append((number, function(state, record)))
            if not found:
                self.too_late(record)
                continue
            opened[key] = windows
            for number, state in found:
                self._keep(key, windows, number, state)
        self.hand_on()

    def _keep(self, key: Hashable, windows: dict[int, Any], number: int, state: Any) -> None:
        start, end = self._bounds(number)
        if state is None:
            if windows.pop(number, None) is not None:
                del self._keys[number][key]
            if not windows:
                del self._open[key]
            return
        if number not in windows:
            self._enter(key, number)
        windows[number] = state
        if end <= self.watermark or (self._given and (key, number) in self._given):
            self._emit(key, start, end, state)

    def _enter(self, key: Hashable, number: int) -> None:
        """Remember for a window that a key is in it."""
        if number not in self._keys:
            self._keys[number] = {}
            end = self._bounds(number)[1]
            fired = end <= self.watermark
            self.at(end + self._lateness_ns if fired else end, (number, fired))
        self._keys[number][key] = None

    def expire(self, what: tuple[int, bool]) -> None:
        number, fired = what
        start, end = self._bounds(number)
        if not fired:
            for key in self._keys[number]:
                self.touch(key)
                if (key, number) in self._given:
                    self._given.discard((key, number))
                else:
                    self._emit(key, start, end, self._open[key][number])
            if self._lateness_ns:
                self.at(end + self._lateness_ns, (number, True))
                return
        for key in self._keys.pop(number):
            self.touch(key)
            del self._open[key][number]
            if not self._open[key]:
                del self._open[key]

    def _look(self, key: Hashable) -> Any:
        return self._windows_of(key, self.watermark)

    def _image(self, key: Hashable) -> Any:
        return self._windows_of(key, self.watermark_at_cut)

    def _windows_of(self, key: Hashable, watermark: int) -> Any:
        """Its windows, and whether the result of each had been given by that time."""
        windows, given = self._open.get(key), self._given
        if windows is None:
            return None
        return {
            number: (state, self._bounds(number)[1] <= watermark or (key, number) in given)
            for number, state in windows.items()
        }

    def _drop(self, key: Hashable) -> None:
        for number in self._open.pop(key):
            del self._keys[number][key]  # the window stays, for it is due in any case
            self._given.discard((key, number))

    def _put_back(self, key: Hashable, value: dict[int, tuple[Any, bool]]) -> None:
        for number, (state, given) in value.items():
            start, end = self._bounds(number)
            if end > self.watermark:
                if given:
                    self._given.add((key, number))
            elif not given:
                self._emit(key, start, end, state)
            if end + self._lateness_ns > self.watermark:
                self._enter(key, number)
                self._open.setdefault(key, {})[number] = state


class _Session:
    """One key's time of activity."""

    __slots__ = ("due", "end", "fired", "key", "start", "state")

    def __init__(
        self, key: Hashable, start: int, end: int, state: Any, fired: bool = False
    ) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.state = state
        self.fired = fired
        self.due: int | None = None  # when `expire` is to be called; None: it is no more


_start = attrgetter("start")


class _SessionStep(_WindowStep):
    _open: dict[Hashable, list[_Session]]

    def __init__(self, context: Context, logic: Windowed, window: Session) -> None:
        super().__init__(context, logic)
        self._gap_ns = to_ns(window.gap_s)
        assert logic.merge is not None
        self._merge = logic.merge

    def process(self, records: Iterator[Any], port: int) -> None:
        for time, key, record in self.stamped(records):
            self.touch(key)
            sessions = self._open.get(key, [])
            end = time + self._gap_ns
            met = [one for one in sessions if one.start < end and time < one.end]
            if not met and end + self._lateness_ns <= self.watermark:
                self.too_late(record)
                continue
            state = met[0].state if met else self._fresh(key)
            for other in met[1:]:
                state = self._merge(state, other.state)
            state = self._function(state, record)
            for other in met if state is None else met[1:]:
                self._forget(other)
            if state is None:
                continue
            if met:
                session = met[0]
                session.start = min(session.start, time)
                session.end = max(end, met[-1].end)
                session.state = state
            else:
                session = _Session(key, time, end, state)
                if not sessions:
                    self._open[key] = sessions
                insort(sessions, session, key=_start)
            session.fired = session.end <= self.watermark
            if session.fired:
                self._emit(key, session.start, session.end, state)
            self._schedule(session)
        self.hand_on()

    def _forget(self, session: _Session) -> None:
        session.due = None
        sessions = self._open[session.key]
        sessions.remove(session)
        if not sessions:
            del self._open[session.key]

    def _schedule(self, session: _Session) -> None:
        """Have it expire no later than it has to; where that is too early, `expire` asks again."""
        due = session.end + self._lateness_ns if session.fired else session.end
        if session.due is None or due < session.due:
            session.due = due
            self.at(due, (due, session))

    def expire(self, what: tuple[int, _Session]) -> None:
        due, session = what
        if session.due != due:
            return  # merged into another, or taken elsewhere
        session.due = None
        self.touch(session.key)
        if not session.fired and session.end <= due:
            session.fired = True
            self._emit(session.key, session.start, session.end, session.state)
        if session.fired and session.end + self._lateness_ns <= due:
            self._forget(session)
        else:
            self._schedule(session)

    def _look(self, key: Hashable) -> Any:
        sessions = self._open.get(key)
        return sessions and [(one.start, one.end, one.state, one.fired) for one in sessions]

    def _drop(self, key: Hashable) -> None:
        for session in self._open.pop(key):
            session.due = None

    def _put_back(self, key: Hashable, value: list[tuple[int, int, Any, bool]]) -> None:
        self._open[key] = [_Session(key, *session) for session in value]
        for session in self._open[key]:
            self._schedule(session)


def append(state: list[Record] | None, record: Record) -> list[Record]:
    """The function of `collect`: all records, in the order in which they came."""
    if state is None:
        return [record]
    state.append(record)
    return state


@dataclass(frozen=True)
class MigratingWindows:
    """A migration of one window's state, for all windows of a key."""

    migrate: Callable[[Any, Any, int], Any]

    def __call__(self, key: Hashable, kept: Any, version: int) -> Any:
        """What is kept for a key: fixed windows by number, or sessions."""
        if isinstance(kept, dict):
            return {
                number: (self.migrate(key, state, version), given)
                for number, (state, given) in kept.items()
            }
        return [
            (start, end, self.migrate(key, state, version), fired)
            for start, end, state, fired in kept
        ]


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
    more_keys: tuple[KeyFunction | None, ...] = ()
    """Of the ports behind the first."""

    def start(self, context: Context) -> Step:
        """Make the step."""
        if isinstance(self.window, Session):
            return _SessionStep(context, self, self.window)
        return _SlidingStep(context, self, self.window)
