"""What counting pairs costs: CPU time per record of a two-level keyed job, with it and without."""

from typing import Any

from pyspark import cloudpickle

from locality_parts import tuples
from locality_parts.drift import Drift
from locality_parts.tuples import InTurn, counted, placement
from tailrace.sources import unpaced

WORKERS = 2
_PATIENCE_S = 60.0
_STEP = 7919
"""A prime: posts that are neighbours in a list of all do not come together."""

cloudpickle.register_pickle_by_value(tuples)  # which the workers' import path does not have


def posts(count: int = 40_000) -> InTurn:
    """Posts of a week of drift, over and over."""
    week = next(Drift(posts=count, tags=5000).weeks())
    all_posts = [pair for pair, times in week.counts.items() for _ in range(round(times))]
    return InTurn([all_posts[i * _STEP % len(all_posts)] for i in range(len(all_posts))])


def cpu_us(spark: Any, source: InTurn, seconds: float, count_pairs: bool) -> float:
    """Of all workers, per record."""
    topology = counted(unpaced(source, seconds=seconds), WORKERS)
    job = topology.start(spark, placement=placement(WORKERS), count_pairs=count_pairs)
    if not job.await_termination(_PATIENCE_S):
        job.stop(drain=False)
        raise RuntimeError(f"the job did not end; it is {job.status}")
    progress = job.last_progress
    emitted = sum(progress.emitted.values())
    if not progress.balanced or progress.delivered != emitted:
        raise RuntimeError(f"{emitted} were emitted, {progress.delivered} delivered")
    return sum(progress.cpu_s.values()) / emitted * 1e6
