"""Short tails by themselves: what the chooser is told of a running job, and what comes of it.

A job's thread that adapts it makes the looks (`adapting.py`). What is decided goes the way that
`Job.set_tail` goes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tailrace.control.progress.periods import latencies_in, period_of
from tailrace.control.protocol import Progress
from tailrace.control.seating import home
from tailrace.tail.chooser import Chooser, Decision
from tailrace.tail.conditions import Period
from tailrace.tail.modes import OFF, Tail

if TYPE_CHECKING:
    from tailrace.spark.job import Job

_IDLE_S = 1.0


class Choosing:
    """See above; true while there is something to choose for."""

    def __init__(self, job: Job, chooser: Chooser, report_s: float) -> None:
        self._job = job
        self._chooser = chooser
        self._report_s = report_s
        self._lock = threading.Lock()  # a user may say something else at any time
        self._numbers: frozenset[int] = frozenset()
        self._replay = False
        self._replays: bool | None = None  # as workers were told; None: by somebody else
        self._before: tuple[float, dict[int, Progress]] | None = None
        self._from_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._numbers) or self._replay

    @property
    def look_s(self) -> float:
        """How often to look."""
        return self._chooser.least_s / 4 if self else _IDLE_S

    def take(self, numbers: Collection[int], *, replay: bool) -> None:
        """Choose for these streams from now on, and whether what is late is sent again."""
        with self._lock:
            self._numbers |= frozenset(numbers)
            self._replay |= replay
            self._chooser.interrupted()
            self._chooser.manage(self._labels, replay=self._replay)
            self._apply()

    def leave(self, modes: Mapping[int, Tail], replay: str | None) -> None:
        """These streams have modes again that somebody has said; so has replay, if it is given."""
        with self._lock:
            self._numbers -= modes.keys()
            if replay is not None:
                self._replay, self._replays = False, None
            if self:  # what is left to itself altogether is as it was when its turn comes again
                self._chooser.manage(self._labels, replay=self._replay)
                self._apply()
            self._tell({}, "")
            coordinator = self._job._coordinator
            coordinator.set_tail(modes)
            if replay is not None:
                coordinator.set_replay(replay)

    def interrupted(self) -> None:
        """The job does something else for a while."""
        with self._lock:
            self._interrupt()

    def _interrupt(self) -> None:
        self._before = None
        self._chooser.interrupted()

    def step(self, now_s: float) -> str:
        """Look; what was decided, if anything was."""
        with self._lock:
            if not self or now_s < self._from_s:
                return ""
            if self._before is not None and now_s - self._before[0] < self._chooser.period_s:
                return ""
            roster = self._job._coordinator.roster
            if roster.changing is not None and roster.changing.current is not None:
                self._interrupt()
                return ""
            reports = dict(roster.progress)
            if self._before is None:
                self._before = now_s, reports
                return ""
            begun_s, before = self._before
            if not self._chooser.due(now_s - begun_s, latencies_in(before, reports).total):
                return ""
            self._before = now_s, reports
            period = self._period(before, reports)
            if period is None:
                self._chooser.interrupted()
                return ""
            return self._decide(now_s, period)

    def _decide(self, now_s: float, period: Period) -> str:
        decision: Decision = self._chooser.decide(now_s, period)
        if decision.setting is not None:
            self._apply()
            self._from_s = now_s + max(self._chooser.settle_s, 1.5 * self._report_s)
        self._tell({name: str(one) for name, one in period.streams.items()}, decision.reason)
        return decision.reason

    def _period(
        self, before: Mapping[int, Progress], after: Mapping[int, Progress]
    ) -> Period | None:
        job = self._job
        roster = job._coordinator.roster
        homes = {rank: home(hello, roster.node) for rank, hello in roster.hellos.copy().items()}
        return period_of(before, after, job.deployment, homes, self._numbers, replay=self._replay)

    @property
    def _labels(self) -> frozenset[str]:
        streams = self._job._graph.streams
        return frozenset(streams[number].label for number in self._numbers)

    def _apply(self) -> None:
        """Have it be as the chooser wants it."""
        self._before = None
        present, coordinator = self._chooser.present, self._job._coordinator
        modes = dict(present.modes)
        streams = self._job._graph.streams
        coordinator.set_tail({n: modes.get(streams[n].label, OFF) for n in sorted(self._numbers)})
        if self._replay and present.replay != self._replays:
            self._replays = present.replay
            coordinator.set_replay("replay" if present.replay else "off")

    def _tell(self, figures: Mapping[str, str], why: str) -> None:
        modes = dict(self._chooser.present.modes)
        told = {name: f"{modes.get(name, OFF)} ({one}). {why}" for name, one in figures.items()}
        if self._replay and why:
            told["replay"] = f"{'on' if self._replays else 'off'}. {why}"
        self._job._coordinator.roster.tails_told = told
