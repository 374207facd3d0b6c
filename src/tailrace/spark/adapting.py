"""A job that follows its load: what policies decide about it is looked up, decided and applied.

One thread in the driver. What was seen and decided, and why, is in the job's progress.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tailrace.adapt.changelog import ChangeLog
from tailrace.adapt.elastic import ElasticPolicy, Size, Use
from tailrace.adapt.estimate import Held, effort_of
from tailrace.adapt.scheduling import AdaptPolicy, Load
from tailrace.control.joining import ScaleError
from tailrace.control.progress.summary import Summary
from tailrace.runtime.times import check_seconds
from tailrace.spark.changes import Change, ChangeError
from tailrace.spark.choosing import Choosing

if TYPE_CHECKING:
    from tailrace.adapt.locality import LocalityPolicy
    from tailrace.plan.model.machine import Machine
    from tailrace.spark.job import Job

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0
_PAIRS_S = 5.0
"""How often pairs of keys are looked at: workers tell them about as often."""
_PATIENCE_S = 60.0
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def seconds_in(adapt: float | str) -> float:
    """A number of seconds, or a text such as "30 s".

    >>> seconds_in("30 s"), seconds_in("2 min"), seconds_in(5)
    (30.0, 120.0, 5.0)
    """
    seconds: float | None = None
    if isinstance(adapt, str):
        number, _, unit = adapt.strip().partition(" ")
        try:
            seconds = float(number) * _UNITS[unit.strip() or "s"]
        except (ValueError, KeyError):
            raise ValueError(
                f'adapt is {adapt!r}; it must be like "30 s", with one of {list(_UNITS)}'
            ) from None
    else:
        seconds = float(adapt)
    check_seconds("adapt", seconds)
    return seconds


def elastic_of(elastic: tuple[int, int]) -> ElasticPolicy:
    """The policy of the least and the most workers; ValueError if it is not these."""
    whole = isinstance(elastic, tuple | list) and [*map(type, elastic)] == [int, int]
    if not whole:
        raise ValueError(
            f"elastic is {elastic!r}; it must be the least and the most workers, such as (2, 8)"
        )
    return ElasticPolicy(*elastic)


@dataclass(frozen=True)
class Adaptive:
    """What a job follows, and how."""

    adapt_s: float | None = None
    """How often a scheduler is asked for a better plan; None: never."""
    scheduler: str = "auto"
    elastic: ElasticPolicy | None = None
    """If the number of workers follows the load."""
    locality: bool = False
    """Whether keys that travel together are brought together."""
    machine: Machine | None = None
    """What the scheduler goes by; None: what the job was planned with at its start."""

    def __bool__(self) -> bool:
        return self.adapt_s is not None or self.elastic is not None or self.locality


class _Policy(Protocol):
    def done(self, now_s: float, took_s: float, moved_keys: int | None = None) -> None: ...

    def failed(self, now_s: float) -> None: ...


class Adapting:
    """See above. `step` is one look; the thread makes one a second.

    For short tails (`choosing`) it may look more often: periods there may be shorter than that.
    """

    def __init__(self, job: Job, wanted: Adaptive, choosing: Choosing) -> None:
        self._job = job
        self._choosing = choosing
        self._wanted = wanted
        changes = ChangeLog()
        self.changes = changes
        """What changes were expected to cost and bring, and did."""
        self._elastic = wanted.elastic
        self._schedule: AdaptPolicy | None = None
        if wanted.adapt_s is not None:
            horizon_s = max(600.0, 20 * wanted.adapt_s)
            self._schedule = AdaptPolicy(wanted.adapt_s, horizon_s=horizon_s, changes=changes)
        self._locality: LocalityPolicy | None = None
        if wanted.locality:
            # Here, for they need numpy, and a job starts sooner without.
            from tailrace.adapt.locality import LocalityPolicy
            from tailrace.control.partitioning import partition_aside

            self._locality = LocalityPolicy(changes=changes, solve=partition_aside)
        self._before: tuple[float, Summary] | None = None
        self._next_schedule_s = self._next_pairs_s = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailrace-adapting", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Decide no more; a change that runs goes on."""
        self._stopped.set()

    def _run(self) -> None:
        job, choosing = self._job, self._choosing
        job.await_running()
        next_s = time.monotonic() + _LOOK_S
        while not self._stopped.wait(min(_LOOK_S, choosing.look_s)) and job.is_active:
            if job.status != "running":
                self._before = None
                choosing.interrupted()
                continue
            now_s = time.monotonic()
            try:
                if thought := choosing.step(now_s):
                    self._note(f"tail: {thought}")
                if self._wanted and now_s >= next_s:
                    next_s = now_s + _LOOK_S
                    self.step(now_s)
            except Exception as error:  # a job goes on, whatever its policies make of it
                self._note(f"cannot adapt now: {error}")
                _LOG.debug("adapting", exc_info=True)

    def _note(self, thought: str) -> None:
        changing = self._job._coordinator.roster.changing
        if changing is not None:
            changing.thought = thought

    # ---- looks ----

    def step(self, now_s: float) -> None:
        """Look at what the job did since the last look, and have it changed if that pays."""
        summary = self._job.last_progress
        before, self._before = self._before, (now_s, summary)
        if before is None or summary.at_ns <= before[1].at_ns:
            return
        use = use_of(before[1], summary)
        if use is None or use.rate <= 0:
            return
        if self._elastic is not None and self._be_elastic(self._elastic, now_s, use):
            return
        if self._schedule is not None and now_s >= self._next_schedule_s:
            self._next_schedule_s = now_s + self._schedule.every_s
            if self._reschedule(self._schedule, now_s, use, summary):
                return
        if self._locality is not None and now_s >= self._next_pairs_s:
            self._next_pairs_s = now_s + _PAIRS_S
            self._gather(self._locality, now_s, use, summary)

    def _be_elastic(self, policy: ElasticPolicy, now_s: float, use: Use) -> bool:
        job = self._job
        workers = job._coordinator.roster.workers
        present = {chain.operators[0]: chain.parallelism for chain in job.chains}
        decision = policy.decide(now_s, use, workers, present)
        self._note(f"elastic: {decision.reason}")
        if decision.size is None:
            return False
        try:
            resize(job, decision.size)
        except (ChangeError, ScaleError, ValueError, TimeoutError) as error:
            self._note(f"elastic: {decision.reason}; that cannot be: {error}")
        finally:
            policy.changed()
            self._before = None
        return True

    def _reschedule(self, policy: AdaptPolicy, now_s: float, use: Use, summary: Summary) -> bool:
        job = self._job
        proposal = job.replan(self._wanted.scheduler, machine=self._wanted.machine)
        held = {name: Held.of(keys) for name, keys in summary.keys.items() if keys}
        graph = job._wiring.graph
        effort = effort_of(graph, proposal.present, proposal.plan, held)
        load = Load(use.rate, use.cpu)
        decision = policy.decide(now_s, proposal, effort, load)
        self._note(f"schedule: {decision.reason}")
        if decision.plan is None:
            return False
        policy.begin(now_s, decision, proposal.present, effort, load)
        plan = decision.plan
        return self._apply(policy, lambda: job.apply(plan))

    def _gather(self, policy: LocalityPolicy, now_s: float, use: Use, summary: Summary) -> None:
        job = self._job
        pairs = job.key_pairs()
        homes, routes = job._homes_and_routes()
        sources = {one.source for one in pairs}
        share = sum(summary.operators[name].records_in for name in sources)
        emitted = sum(summary.emitted.values())
        rate = use.rate * share / emitted if emitted else 0.0
        decision = policy.decide(now_s, pairs, homes, routes, rate, summary.keys)
        self._note(f"locality: {decision.reason}")
        if decision.tables is not None:
            policy.begin(now_s, decision)
            tables = decision.tables
            self._apply(policy, lambda: job.apply(tables))

    def _apply(self, policy: _Policy, apply: Callable[[], Change]) -> bool:
        try:
            change = apply()
            if not change.await_done(_PATIENCE_S):
                raise ChangeError(f"it has not come to its end within {_PATIENCE_S:g} s")
        except (ChangeError, ScaleError, ValueError, RuntimeError) as error:
            policy.failed(time.monotonic())
            self._note(f"that cannot be: {error}")
            return False
        policy.done(time.monotonic(), change.took_s, change.moved_keys)
        self._before = None
        return True


def use_of(before: Summary, after: Summary) -> Use | None:
    """What a job did between two of its summaries; None: they are not of one life of it."""
    seconds = (after.at_ns - before.at_ns) / 1e9
    cpu_s = sum(after.cpu_s.values()) - sum(
        cpu_s for rank, cpu_s in before.cpu_s.items() if rank in after.cpu_s
    )
    emitted = sum(after.emitted.values()) - sum(before.emitted.values())
    if seconds <= 0 or cpu_s < 0 or emitted < 0:
        return None
    own = {
        name: max(one.execute_s - before.operators[name].execute_s, 0.0)
        for name, one in after.operators.items()
        if name in before.operators
    }
    whole = sum(own.values())
    cpu = cpu_s / seconds
    spun_s = sum(
        one.spun_s - before.workers[rank].spun_s
        for rank, one in after.workers.items()
        if rank in before.workers
    )
    worked = max(cpu_s - max(spun_s, 0.0), 0.0) / seconds  # who spins has time to spare
    cores = {name: worked * part / whole for name, part in own.items()} if whole else {}
    for name in cores.keys() - after.emitted.keys():  # a source may also be made to wait
        cores[name] = max(cores[name], own[name] / seconds)
    return Use(emitted / seconds, cores, bool(after.throttled), cpu)


def resize(job: Job, size: Size) -> None:
    """Have so many workers, and instances of what can be rescaled; returns when that is so."""
    workers = job._coordinator.roster.workers
    if size.plan is not None:
        job.apply(size.plan).await_done(_PATIENCE_S)
        return
    numbers = _numbers(job, size.parallelism, size.workers)
    if size.workers > workers:
        job.scale_workers(size.workers, spread=not numbers)
    if numbers:
        job.rescale(numbers).await_done(_PATIENCE_S)
    if size.workers < workers:
        job.scale_workers(size.workers)


def _numbers(job: Job, wanted: Mapping[str, int], workers: int) -> dict[str, int]:
    """By chain, what of that can be: of what is tied, or by partial key, nothing."""
    found = {}
    for chain in job.chains:
        count = max((wanted.get(name, 1) for name in chain.operators), default=1)
        count = min(max(count, 1), max(workers, 1))
        if count != chain.parallelism and job._can_rescale(chain):
            found[chain.operators[0]] = count
    return found
