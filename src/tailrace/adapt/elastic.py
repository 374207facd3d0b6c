"""Elastic jobs: how many workers, and instances of each operator, the load needs.

What operators used lately says what a record takes; what comes says how much is needed. It follows
loads that stay and not bursts: more is had when most of some seconds were too much, and less when
even the fullest of the last minute would have fitted, with room to spare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import NamedTuple

from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan
from tailrace.plan.schedulers.for_rate import HEADROOM, for_rate
from tailrace.plan.schedulers.scheduler import Scheduler

_THROTTLED = 1.5
"""What is held up may be any amount: so much more is tried, until nothing is."""
_MOST_LOOKS = 4096


class Use(NamedTuple):
    """What a job did between two looks at it."""

    rate: float
    """Records per second that the sources emitted."""
    cores: Mapping[str, float]
    """That the instances of each operator kept busy, all together: by CPU time of their workers,
    or by the clock where that is more. Who waits for others, or for a core, can do nothing else."""
    throttled: bool = False
    """Whether sources were held up: more would have come than was taken."""
    cpu: float = 0.0
    """Cores that its workers used, by their CPU time alone."""


class Size(NamedTuple):
    """What a load needs."""

    workers: int
    parallelism: Mapping[str, int]
    plan: Plan | None = None


Sizing = Callable[[Use, float], Size]
"""What is needed if `rate` records come, by what was used for those that came."""


def by_use(headroom: float = HEADROOM) -> Sizing:
    """As many workers as cores are needed, none fuller than that; likewise instances."""

    def size(use: Use, rate: float) -> Size:
        factor = rate / use.rate if use.rate else 1.0
        need = {name: cores * factor / headroom for name, cores in use.cores.items()}
        workers = max(1, ceil(sum(need.values()) - 1e-9))
        return Size(workers, {name: max(1, ceil(one - 1e-9)) for name, one in need.items()})

    return size


def by_model(
    graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...], make: Scheduler
) -> Sizing:
    """By the performance model: the scheduler's plan for the fewest of the places."""

    def size(use: Use, rate: float) -> Size:
        plan = for_rate(make, graph, profile, machine, places, rate)
        return Size(len(set(plan.place_of)), plan.parallelism, plan)

    return size


@dataclass(frozen=True)
class Decision:
    """What to go over to, or None, and why."""

    size: Size | None
    reason: str


class ElasticPolicy:
    """Workers and instances follow the load. Pure: observations and a clock in, decisions out.

    Bursts shorter than half of `up_s` change nothing. More is had after `up_s` of too much, up to
    `most` workers, less after `down_s` in which less would have done, down to `least`; after each
    change it looks anew. What a smaller size is to take may fill it by `slack` of what is allowed,
    so that noise around a limit does not swing it.
    """

    def __init__(
        self,
        least: int,
        most: int,
        *,
        sizing: Sizing | None = None,
        up_s: float = 10.0,
        down_s: float = 60.0,
        slack: float = 0.85,
    ) -> None:
        if not 1 <= least <= most:
            raise ValueError(
                f"elastic is ({least}, {most}); it must be the least number of workers, at least 1,"
                " and the most"
            )
        if not 0 < up_s <= down_s:
            raise ValueError(f"up_s is {up_s} and down_s {down_s}; giving back must take longer")
        self.least = least
        self.most = most
        self.up_s = up_s
        self.down_s = down_s
        self.slack = slack
        self._sizing = sizing or by_use()
        self._looks: deque[tuple[float, Use]] = deque(maxlen=_MOST_LOOKS)
        self._since_s: float | None = None

    def changed(self) -> None:
        """A change was made, or has failed: what was seen before it says nothing any more."""
        self._looks.clear()
        self._since_s = None

    def decide(
        self,
        now_s: float,
        use: Use,
        workers: int,
        parallelism: Mapping[str, int] | None = None,
    ) -> Decision:
        """How many workers and instances there should be, of `workers` and `parallelism` now."""
        if self._since_s is None:
            self._since_s = now_s
        self._looks.append((now_s, use))
        while self._looks[0][0] < now_s - self.down_s:
            self._looks.popleft()
        seen_s = now_s - self._since_s
        if seen_s < self.up_s:
            return Decision(None, f"seen for {seen_s:.0f} s, of {self.up_s:g}")
        lately = [one for at_s, one in self._looks if at_s > now_s - self.up_s]
        rate = _demand(lately)
        need = self._bounded(self._sizing(_mean(lately), rate))
        short = [
            name
            for name, count in need.parallelism.items()
            if count > (parallelism or {}).get(name, count)
        ]
        if need.workers > workers or (short and need.workers >= workers):
            what = f"{need.workers} workers" if need.workers > workers else f"more of {short}"
            return Decision(need, f"{rate:,.0f} records/s need {what}; there are {workers}")
        if workers <= self.least:
            return Decision(None, f"{rate:,.0f} records/s; there are no fewer than {workers}")
        if seen_s < self.down_s:
            return Decision(
                None, f"{rate:,.0f} records/s; fewer only after {self.down_s:g} s of less"
            )
        peak = self._peak(now_s)
        fewer = self._bounded(
            self._sizing(_mean([one for _, one in self._looks]), peak / self.slack)
        )
        if fewer.workers < workers:
            return Decision(
                fewer,
                f"at most {peak:,.0f} records/s in {self.down_s:g} s need {fewer.workers} workers;"
                f" there are {workers}",
            )
        return Decision(None, f"{rate:,.0f} records/s fit {workers} workers")

    def _peak(self, now_s: float) -> float:
        """The most that came for some time: of stretches of `up_s`, what half of each exceeds."""
        stretches: dict[int, list[Use]] = {}
        for at_s, use in self._looks:
            stretches.setdefault(int((now_s - at_s) / self.up_s), []).append(use)
        return max(map(_demand, stretches.values()))

    def _bounded(self, size: Size) -> Size:
        workers = min(max(size.workers, self.least), self.most)
        if workers == size.workers:
            return size
        counts = {name: min(count, workers) for name, count in size.parallelism.items()}
        return Size(workers, counts, size.plan if size.workers > workers else None)


def _demand(uses: Sequence[Use]) -> float:
    """Records per second, of which half the time has more; what is held up counts as more."""
    return median(use.rate * (_THROTTLED if use.throttled else 1.0) for use in uses)


def _mean(uses: Sequence[Use]) -> Use:
    names = dict.fromkeys(name for use in uses for name in use.cores)
    return Use(
        sum(use.rate for use in uses) / len(uses),
        {name: sum(use.cores.get(name, 0.0) for use in uses) / len(uses) for name in names},
    )
