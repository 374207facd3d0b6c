"""A load that doubles and halves, and a job that has one worker more while it is high."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle

import tailrace as tr
from online_parts import steps
from tailrace.adapt.elastic import ElasticPolicy
from tailrace.connectors.generate import Generate
from tailrace.runtime.histogram import Histogram

_PATIENCE_S = 60.0
_LOOK_S = 0.25


@dataclass(frozen=True)
class Stepped:
    """Poisson arrivals whose rate steps: `rates_per_s[i]` for `seconds[i]`, then no more."""

    rates_per_s: tuple[float, ...]
    seconds: tuple[float, ...]
    seed: int = 0

    def offsets_ns(self, index: int, of: int, skip: int) -> Iterator[int]:
        """See `Pace`."""
        chance = random.Random(f"{self.seed} {index} {of}")
        at_s = end_s = 0.0
        for rate, seconds in zip(self.rates_per_s, self.seconds, strict=True):
            # Poisson processes forget: each begins where the one before has ended.
            at_s, end_s = end_s, end_s + seconds
            while (at_s := at_s + chance.expovariate(rate / of)) < end_s:
                if skip:
                    skip -= 1
                else:
                    yield int(at_s * 1e9)


@dataclass(frozen=True)
class Work:
    """So much of a core for each record."""

    us: float

    def __call__(self, record: int) -> int:
        end_ns = time.thread_time_ns() + int(self.us * 1000)
        while time.thread_time_ns() < end_ns:
            pass
        return record


def elastic(spark: Any, pace: Stepped, work_us: float, policy: ElasticPolicy) -> dict[str, Any]:
    """What a job keeps of the load, and how many workers it has, by time."""
    cloudpickle.register_pickle_by_value(steps)  # which the workers' import path does not have
    topology = tr.Topology("steps")
    source = topology.source(Generate(pace=pace), name="numbers").shuffle()
    worked = source.map(Work(work_us), name="work", parallelism=1).shuffle()
    worked.sink(lambda record: None, name="sink", parallelism=1)
    job = topology.start(spark, workers=1, elastic=policy, progress_s=0.1)
    try:
        if not job.await_running(_PATIENCE_S):
            raise RuntimeError(f"the job is {job.status} after {_PATIENCE_S:g} s")
        began_s = time.monotonic()
        workers: list[tuple[float, int]] = []
        phases = []
        last = job.last_progress
        end_s = 0.0
        for rate, seconds in zip(pace.rates_per_s, pace.seconds, strict=True):
            end_s += seconds
            while time.monotonic() - began_s < end_s:
                time.sleep(_LOOK_S)
                workers.append((time.monotonic() - began_s, len(job.workers)))
            now = job.last_progress
            latency = now.latency_since(last)
            emitted = sum(now.emitted.values()) - sum(last.emitted.values())
            elapsed_s = (now.at_ns - last.at_ns) / 1e9 if last.at_ns else seconds
            phases.append(
                {
                    "scheduled_per_s": rate,
                    "emitted_per_s": emitted / elapsed_s,
                    "delivered_per_s": latency.total / elapsed_s,
                    "p99_ms": latency.percentile_ns(99) / 1e6,
                    "mean_ms": latency.mean_ns / 1e6,
                    "workers_at_the_end": workers[-1][1],
                }
            )
            last = now
        if not job.await_termination(_PATIENCE_S):
            raise RuntimeError(f"the job did not end; it is {job.status}")
        progress = job.last_progress
        due = sum(1 for _ in pace.offsets_ns(0, 1, 0))
        return {
            "due": due,
            "emitted": sum(progress.emitted.values()),
            "delivered": progress.delivered,
            "phases": phases,
            "workers": _steps(workers),
            "used_worker_s": _area(workers),
            "p99_ms": Histogram(progress.latency.counts).percentile_ns(99) / 1e6,
            "changes": [str(change) for change in progress.changes],
        }
    finally:
        if job.is_active:
            job.stop(drain=False)


def _steps(workers: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """When there were others than before."""
    found: list[tuple[float, int]] = []
    for at_s, count in workers:
        if not found or found[-1][1] != count:
            found.append((round(at_s, 1), count))
    return found


def _area(workers: list[tuple[float, int]]) -> float:
    at = [0.0, *(at_s for at_s, _ in workers)]
    return sum(
        (one - other) * count for one, other, (_, count) in zip(at[1:], at, workers, strict=False)
    )
