"""How often a job may be restarted, how long it pauses before, and what it remembers of that.

Pure bookkeeping, in seconds of any clock. A job that is killed now and then goes on at once, one
that falls again and again does so at growing distances, and in the end no more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import nan

MOST_EVENTS = 100
SAME_RECORD = 3
"""So often the same record may fail the same operator, the last of which ends the job."""
_MOST_RECORDS = 1000


@dataclass(frozen=True)
class Budget:
    """How many restarts there may be in a row: without an epoch between them, or `quiet_s`.

    The first is at once, the next after `pause_s`, and each pause is twice the one before.
    """

    restarts: int = 10
    pause_s: float = 0.1
    most_pause_s: float = 10.0
    quiet_s: float = 60.0

    def __post_init__(self) -> None:
        whole = isinstance(self.restarts, int) and not isinstance(self.restarts, bool)
        if not whole or self.restarts < 0:
            raise ValueError(
                f"restarts is {self.restarts!r}; it must be a whole number, at least 0"
            )

    def pause_before_s(self, restart: int) -> float:
        """How long to wait before a restart, by its number since the job was last quiet.

        >>> [Budget().pause_before_s(restart) for restart in (1, 2, 3, 4, 20)]
        [0.0, 0.1, 0.2, 0.4, 10.0]
        """
        if restart < 2:
            return 0.0
        return min(self.pause_s * 2.0 ** min(restart - 2, 60), self.most_pause_s)


STANDARD = Budget()


@dataclass(frozen=True)
class Event:
    """Something went wrong, and the job went on, or is about to."""

    at_ns: int
    """When it was noticed, by the job's clock."""
    what: str
    took_ms: float = nan
    """From then until the sources ran again; nan as long as they do not."""

    def __str__(self) -> str:
        if self.took_ms != self.took_ms:
            return f"{self.what}; recovering"
        return f"{self.what}; running again after {self.took_ms:.0f} ms"


@dataclass
class Restarts:
    """What a job has used of its budget, and why."""

    budget: Budget = STANDARD
    total: int = 0
    noted: int = 0
    """How many events there were."""
    events: tuple[Event, ...] = ()
    """The last hundred, oldest first."""
    _recent: int = 0
    _quiet_since_s: float | None = None
    _failures: Counter[tuple[str, str]] = field(default_factory=Counter)

    def another(self, now_s: float) -> float | None:
        """Take one more: the time from which it may begin. None: there is none left."""
        quiet_since_s = self._quiet_since_s
        if quiet_since_s is not None and now_s - quiet_since_s >= self.budget.quiet_s:
            self._recent = 0
        if self._recent >= self.budget.restarts:
            return None
        self._recent += 1
        self.total += 1
        self._quiet_since_s = None
        return now_s + self.budget.pause_before_s(self._recent)

    def progressed(self) -> None:
        """An epoch was committed: what was lost before has cost nothing but time."""
        self._recent = 0

    def note(self, now_s: float, what: str) -> None:
        """Remember what went wrong."""
        self.noted += 1
        self.events = (*self.events, Event(int(now_s * 1e9), what))[-MOST_EVENTS:]

    def running(self, now_s: float) -> None:
        """The sources run (again)."""
        now_ns = int(now_s * 1e9)
        self._quiet_since_s = now_s
        self.events = tuple(
            Event(one.at_ns, one.what, (now_ns - one.at_ns) / 1e6)
            if one.took_ms != one.took_ms
            else one
            for one in self.events
        )

    def failed_on(self, operator: str, record: str, now_s: float) -> int:
        """A record has failed an operator: how often by now, since the job was last quiet."""
        quiet_since_s = self._quiet_since_s
        if quiet_since_s is not None and now_s - quiet_since_s >= self.budget.quiet_s:
            self._failures.clear()
        self._failures[operator, record] += 1
        while len(self._failures) > _MOST_RECORDS:
            del self._failures[next(iter(self._failures))]
        return self._failures[operator, record]

    @property
    def used_up(self) -> str:
        """Why there is none left, in words."""
        if not self.budget.restarts:
            return "there are no restarts (restarts=0)"
        return (
            f"all {self.budget.restarts} restarts (restarts={self.budget.restarts}) are used up,"
            f" without an epoch or {self.budget.quiet_s:g} quiet seconds since the first of them"
        )
