"""A job has one clock: the coordinator's. Every worker reads it, whatever its host's clock says.

Monotonic clocks count from the boot of their host and run at slightly different speeds. So a
worker asks the coordinator for the time, again and again. An answer that was made between two
readings of its own clock bounds how far the job's clock is ahead, however the way there and back
differ; what is known from before, and how fast the two clocks can have parted since, narrows it.
The middle of what is left is taken for the truth, and half of its width is the uncertainty.

The worker's clock follows what was learned by running a little faster or slower. It never goes
backwards, and jumps forward only if it is more than a second behind, as after its host was asleep.

Wall-clock time is the job's clock plus a constant that the coordinator took when the job started:
it is the same on every host, and does not follow a wall clock that is set meanwhile.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailrace.control.job_clock import JobClock

MOST_DRIFT = 500e-6
"""Faster than this no two clocks part: what a clock that is being set by NTP may do."""
WANDER = 5e-6
"""How much the difference of their speeds may change within the time that is looked back."""
_LOOK_BACK_NS = 16_000_000_000
_ANCHOR_NS = 1_000_000_000
"""Speeds are compared with what was known so long ago, in steps of this."""

ROUNDS = 8
"""Exchanges before a worker says that it is there."""
_PERIOD_NS = 1_000_000_000
_FIRST_PERIOD_NS = 50_000_000
_HORIZON_NS = 1_000_000_000
_MOST_SLEW_NS = 50_000_000
"""The most that is made up for within the horizon."""
_SLEPT_NS = 1_000_000_000


@dataclass(frozen=True)
class AskClock:
    """A worker asks for the time; `asked_ns` is what its own clock says."""

    rank: int
    asked_ns: int


@dataclass(frozen=True)
class ClockTold:
    """What the job's clock said when that came, and when this was sent."""

    asked_ns: int
    received_ns: int
    sent_ns: int
    wall_offset_ns: int
    """What wall-clock time is ahead of the job's clock, anywhere."""
    host: str
    """Whose clock that is, see `clock_host`."""


def clock_host() -> str:
    """A name for this host's monotonic clock: equal where the clock is the same one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return str(uuid.uuid4())


@dataclass(frozen=True)
class _Bounds:
    """At a time of the own clock, the job's clock is ahead by `low_ns` to `high_ns`."""

    at_ns: int
    low_ns: float
    high_ns: float


class Estimator:
    """How far the job's clock is ahead of the own one. Clock readings in, bounds out.

    The bounds hold while speeds keep to `MOST_DRIFT` and `WANDER`. If they did not, what is heard
    contradicts what was known, and only the new counts.
    """

    def __init__(self) -> None:
        self._known: _Bounds | None = None
        self._anchors: deque[_Bounds] = deque()
        self._slow, self._fast = -MOST_DRIFT, MOST_DRIFT

    def hear(self, asked_ns: int, received_ns: int, sent_ns: int, heard_ns: int) -> None:
        """One exchange: asked and heard by the own clock, received and sent by the job's."""
        low_ns = float(sent_ns - heard_ns)
        high_ns = received_ns - asked_ns + self._fast * (heard_ns - asked_ns)
        if self._known is not None:
            before = self._bounds(self._known, heard_ns)
            if before.low_ns <= high_ns and low_ns <= before.high_ns:
                low_ns, high_ns = max(low_ns, before.low_ns), min(high_ns, before.high_ns)
            else:
                self._forget()
        self._known = _Bounds(heard_ns, low_ns, max(low_ns, high_ns))
        self._compare_speeds(self._known)

    def _bounds(self, known: _Bounds, at_ns: int) -> _Bounds:
        since_ns = max(at_ns - known.at_ns, 0)
        return _Bounds(
            at_ns, known.low_ns + self._slow * since_ns, known.high_ns + self._fast * since_ns
        )

    def _compare_speeds(self, now: _Bounds) -> None:
        anchors = self._anchors
        while anchors and now.at_ns - anchors[0].at_ns > _LOOK_BACK_NS:
            anchors.popleft()
        slow, fast = -MOST_DRIFT, MOST_DRIFT
        for then in anchors:
            since_ns = now.at_ns - then.at_ns
            if since_ns > 0:
                slow = max(slow, (now.low_ns - then.high_ns) / since_ns - WANDER)
                fast = min(fast, (now.high_ns - then.low_ns) / since_ns + WANDER)
        if slow > fast:
            self._forget()
        else:
            self._slow, self._fast = slow, fast
        if not anchors or now.at_ns - anchors[-1].at_ns >= _ANCHOR_NS:
            anchors.append(now)

    def _forget(self) -> None:
        self._anchors.clear()
        self._slow, self._fast = -MOST_DRIFT, MOST_DRIFT

    @property
    def rate(self) -> float:
        """What the job's clock gains on the own one, as a share of the time."""
        return (self._slow + self._fast) / 2

    def offset_ns(self, at_ns: int) -> int:
        """How far the job's clock is ahead at a time of the own one."""
        now = self._now(at_ns)
        return round((now.low_ns + now.high_ns) / 2)

    def uncertainty_ns(self, at_ns: int) -> int:
        """How much that may be wrong, either way."""
        now = self._now(at_ns)
        return round((now.high_ns - now.low_ns) / 2)

    def allows(self, offset_ns: int, at_ns: int) -> bool:
        """Whether the job's clock may be ahead by so much."""
        now = self._now(at_ns)
        return now.low_ns <= offset_ns <= now.high_ns

    def _now(self, at_ns: int) -> _Bounds:
        if self._known is None:
            raise ValueError("nobody has told the time yet; hear an answer first")
        return self._bounds(self._known, at_ns)


class Reference:
    """The coordinator's side: its clock is the job's."""

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.clock_ns = clock_ns
        self._wall_offset_ns = wall_ns() - clock_ns()
        self._host = clock_host()

    def answer(self, ask: AskClock, received_ns: int) -> ClockTold:
        """What to tell at once to who asked; the question came at that time of this clock."""
        return ClockTold(
            ask.asked_ns, received_ns, self.clock_ns(), self._wall_offset_ns, self._host
        )


class Follower:
    """A worker's side: asks for the time and keeps a clock that follows it.

    On the coordinator's own host there is nothing to follow: the clock is the host's.
    """

    def __init__(
        self, rank: int, workers: int, raw_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._rank = rank
        self._raw_ns = raw_ns
        self.one_of(workers)
        self._host = clock_host()
        self._own = raw_ns is time.monotonic_ns
        self._estimator = Estimator()
        self._clock = JobClock(raw_ns=None if self._own else raw_ns)
        self._heard = 0
        self._began_ns = raw_ns()
        self._same = False
        self.due_ns = self._began_ns
        """When to ask next, by the raw clock."""
        self.clock_ns: Callable[[], int] = self._clock.now_ns
        """The job's clock, once `settled`; until then there is none."""
        self.wall_ns: Callable[[], int] = time.time_ns
        """Wall-clock time by the job's clock, once `settled`."""

    def one_of(self, workers: int) -> None:
        """Ask as rarely as so many have to, since the coordinator answers all."""
        self._period_ns = _PERIOD_NS * max(1, workers // 500)

    @property
    def settled(self) -> bool:
        """Whether enough was heard for a start."""
        return self._same or self._heard >= ROUNDS

    def ask(self) -> AskClock | None:
        """What to tell the coordinator now, if anything."""
        now_ns = self._raw_ns()
        if self._same or now_ns < self.due_ns:
            return None
        if self.settled:
            since_ns = now_ns - self._began_ns
            self.due_ns = now_ns + min(max(since_ns // 8, _FIRST_PERIOD_NS), self._period_ns)
        else:
            self.due_ns = now_ns + _PERIOD_NS  # the answer brings the next question
        return AskClock(self._rank, now_ns)

    def hear(self, told: ClockTold) -> None:
        """The coordinator has answered."""
        if self._same:
            return
        now_ns = self._raw_ns()
        was_settled = self.settled
        estimator = self._estimator
        estimator.hear(told.asked_ns, told.received_ns, told.sent_ns, now_ns)
        self._heard += 1
        if self._heard == 1 and self._own and told.host == self._host:
            self._same = estimator.allows(0, now_ns)
        if not self.settled:
            self.due_ns = now_ns
        elif not was_settled:
            self._start(now_ns, told.wall_offset_ns)
        else:
            self._steer(now_ns)

    def _start(self, now_ns: int, wall_offset_ns: int) -> None:
        raw_ns: Callable[[], int] | None = None
        if self._same:
            self.clock_ns = time.monotonic_ns
        else:
            raw_ns = self.clock_ns
            self._clock.steer(now_ns, self._estimator.offset_ns(now_ns), self._estimator.rate, 0)
        self.wall_ns = JobClock(wall_offset_ns, raw_ns).now_ns

    def _steer(self, now_ns: int) -> None:
        offset_ns = self._estimator.offset_ns(now_ns)
        error_ns = now_ns + offset_ns - self._clock.now_ns()
        horizon_ns = _HORIZON_NS * max(1, -(-abs(error_ns) // _MOST_SLEW_NS))
        if error_ns > _SLEPT_NS:
            horizon_ns = 0
        self._clock.steer(now_ns, offset_ns, self._estimator.rate, horizon_ns)

    @property
    def next_ns(self) -> int:
        """When to ask next, by the job's clock."""
        if self._same:
            return sys.maxsize
        return self.clock_ns() + self.due_ns - self._raw_ns()

    def by_host(self, at_ns: int) -> int:
        """When it will be some time of the job's clock, by `time.monotonic_ns` of this host."""
        return at_ns if self._same else at_ns + time.monotonic_ns() - self.clock_ns()

    @property
    def uncertainty_ns(self) -> int:
        """How far this clock may be from the job's, either way; 0 on the coordinator's host."""
        if self._same or not self.settled:
            return 0
        now_ns = self._raw_ns()
        return self._estimator.uncertainty_ns(now_ns) + abs(self._clock.behind_ns(now_ns))
