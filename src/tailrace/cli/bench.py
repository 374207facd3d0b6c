"""`tailrace bench`: what this Spark does with two small topologies, from the installed package.

Word count (sentences of ten words, split and counted by key) and a chain of two operators that do
nothing, shuffled at every hop. Each runs unpaced, for its highest rate, and then at a given rate,
for its latency. Numbers of different machines do not compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tailrace
from tailrace.apps import sol, word_count
from tailrace.runtime.source import Source
from tailrace.sources import rate, unpaced
from tailrace.spark.cluster import cluster_of
from tailrace.topology import Topology

_WARM_S = 1.0
_PATIENCE_S = 60.0
PERCENTS = (50, 99, 99.9)


def _word_count(source: Source) -> Topology:
    topology, counts = word_count.word_count(source)
    counts.sink(_ignore)
    return topology


def _chain(source: Source) -> Topology:
    topology, messages = sol.sol(source, parallelism=1, hops=2)
    messages.shuffle().sink(_ignore)
    return topology


def _ignore(record: object) -> None:
    pass


WORKLOADS: dict[str, tuple[Callable[[Source], Topology], Callable[[int], Any], int]] = {
    "word count": (_word_count, word_count.sentences(), word_count.WORDS_PER_SENTENCE),
    "chain": (_chain, sol.messages(), 1),
}
"""How to build each, its i-th record, and how many results come of one record."""


def measure(
    spark: Any, seconds: float, rate_per_s: float, workers: int | None = None
) -> dict[str, Any]:
    """All workloads: the highest rate, and percentiles of the latency at `rate_per_s`.

    The highest rate counts from the start of the sources until everything has been processed; the
    latency is from a record's due time to the end of its sink, without the first second.
    """
    results: dict[str, Any] = {
        "tailrace": tailrace.__version__,
        "master": cluster_of(spark).master(),
        "seconds": seconds,
        "rate_per_s": rate_per_s,
    }
    for name, (build, make, fan_out) in WORKLOADS.items():
        most = _run(build(unpaced(make, seconds=seconds)), spark, workers, fan_out)
        paced = rate(rate_per_s, make, seconds=_WARM_S + seconds)
        found = _run(build(paced), spark, workers, fan_out)
        results["workers"] = most["workers"]
        results[name] = {
            "most_per_s": round(most["rate_per_s"]),
            **{f"p{percent}_ms": round(found[percent], 3) for percent in PERCENTS},
            "exact": most["exact"] and found["exact"],
        }
    return results


def _run(topology: Topology, spark: Any, workers: int | None, fan_out: int) -> dict[Any, Any]:
    job = topology.start(spark, workers=workers)
    try:
        job.await_running()
        warm = job.last_progress
        if not job.await_termination(_WARM_S):
            warm = job.last_progress
        if not job.await_termination(_PATIENCE_S):
            raise RuntimeError(f"{job.name!r} did not end; it is {job.status}")
    finally:
        if job.is_active:
            job.stop(drain=False)
    progress = job.last_progress
    emitted = sum(progress.emitted.values())
    latency = progress.latency_since(warm)
    return {
        "workers": len(job.workers),
        "rate_per_s": emitted / job.traffic().seconds,
        "exact": progress.balanced and progress.delivered == emitted * fan_out,
        **{percent: latency.percentile_ns(percent) / 1e6 for percent in PERCENTS},
    }


def table(results: dict[str, Any]) -> str:
    """The results for people."""
    lines = [
        f"tailrace {results['tailrace']}, Spark at {results['master']},"
        f" {results['workers']} workers",
        f"{'':12}{'highest rate':>16}{'p50':>10}{'p99':>10}{'p99.9':>10}"
        f"   at {results['rate_per_s']:,.0f} records/s",
    ]
    for name in WORKLOADS:
        found = results[name]
        times = "".join(f"{found[f'p{percent}_ms']:>7.2f} ms" for percent in PERCENTS)
        exact = "nothing lost, nothing twice" if found["exact"] else "THE AUDIT DOES NOT BALANCE"
        lines.append(f"{name:12}{found['most_per_s']:>14,}/s{times}   {exact}")
    return "\n".join(lines)
