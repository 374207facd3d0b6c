"""Changes of a running job at random moments, by a seed: asked for in the job's driver."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Any

from chaos_parts.workload import COUNT, JOIN, KEYS, ORDERS, PAYMENTS, SUM
from tailrace.control.joining import ScaleError
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Place
from tailrace.plan.plan import FREE_RULES, Plan, plan_for
from tailrace.routing.tables import Table, Tables
from tailrace.runtime.deployment import with_forwarded
from tailrace.spark.changes import Change, ChangeError
from tailrace.spark.job import Job, JobFailedError

RESCALE, MOVE, TABLES, FUSION, WORKERS = "rescale", "move", "tables", "fusion", "workers"
KINDS = {RESCALE: 0.25, MOVE: 0.25, TABLES: 0.2, FUSION: 0.15, WORKERS: 0.15}
"""How often each is asked for."""
MEAN_GAP_S = 0.2
MOST_INSTANCES = 3
MOST_WORKERS = 3
PATIENCE_S = 60.0
_BY_KEY = (SUM, COUNT, JOIN)


def keep_changing(job: Job, seed: str, slots: int, tell: Callable[..., None]) -> None:
    """One change after the other until the job has ended; of each, what became of it.

    With as many workers as Spark's `slots` allow; without any, nothing is changed. That a change is
    called off is in order: workers are killed meanwhile, or the job ends. That it comes to no end
    at all is not.
    """
    chance = random.Random(seed)
    kinds = {kind: share for kind, share in KINDS.items() if kind != WORKERS or slots > 2}
    while slots and not _ends_within(job, min(chance.expovariate(1 / MEAN_GAP_S), 2.0)):
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        try:
            why = _ask(job, kind, chance, slots)
        except Exception as error:
            tell(change=kind, wrong=repr(error))
            return
        tell(change=kind, called_off=why)


def _ends_within(job: Job, seconds: float) -> bool:
    try:
        return job.await_termination(seconds)
    except JobFailedError:
        return True


def _ask(job: Job, kind: str, chance: random.Random, slots: int) -> str:
    """Ask for a change and wait for its end: why it was called off; empty: it is done."""
    if job.status not in ("running", "recovering"):
        return f"the job is {job.status}"
    try:
        if kind == WORKERS:
            job.scale_workers(chance.randint(1, min(MOST_WORKERS, slots - 1)))
        elif not _change(job, kind, chance).await_done(PATIENCE_S):
            raise TimeoutError(f"{kind} has not come to an end within {PATIENCE_S:g} s")
    except (ChangeError, ScaleError) as error:
        return str(error)
    except RuntimeError as error:
        if job.status in ("running", "recovering"):
            raise
        return str(error)
    return ""


def _change(job: Job, kind: str, chance: random.Random) -> Change:
    if kind == RESCALE:
        some = chance.sample(_BY_KEY, chance.randint(1, len(_BY_KEY)))
        return job.rescale({name: chance.randint(1, MOST_INSTANCES) for name in some})
    if kind == FUSION:
        return job.apply(_fused_otherwise(job, chance))
    numbers: dict[str, int] = {
        name: len(chain.instances) for chain in job.chains for name in chain.operators
    }
    if kind == MOVE:
        workers = len(job.workers) or 1
        every = [(name, i) for name in (ORDERS, PAYMENTS, *_BY_KEY) for i in range(numbers[name])]
        some_of: Any = chance.sample(every, chance.randint(1, 3))
        return job.move({one: chance.randrange(workers) for one in some_of})
    tables = {}
    for name in chance.sample(_BY_KEY, chance.randint(1, len(_BY_KEY))):
        keys: dict[Hashable, int] = {
            key: chance.randrange(numbers[name]) for key in range(chance.randint(0, KEYS))
        }
        tables[name] = Table(numbers[name], keys)
    return job.apply(Tables(tables))


def _fused_otherwise(job: Job, chance: random.Random) -> Plan:
    """A plan that has some operators run fused and others not, of those that may.

    What tells event time stays with its source.
    """
    before = job.deployment
    graph, numbers = before.graph, {one.name: one.parallelism for one in before.graph.operators}
    may = {
        number
        for number, stream in enumerate(graph.streams)
        if stream.grouping.rule in FREE_RULES
        and numbers[stream.source] == numbers[stream.target]
        and stream.source not in (ORDERS, PAYMENTS)
    }
    forwarded = (before.layout.forwarded or frozenset()) - may
    forwarded |= {number for number in sorted(may) if chance.random() < 0.5}
    wanted = with_forwarded(graph, forwarded)
    workers = len(job.workers) or 1
    place_of = [chance.randrange(workers) for _ in wire(wanted).ids]
    places = [Place(0, 0)] * workers
    return plan_for(wanted, places, place_of, scheduler="by chance", reason="")
