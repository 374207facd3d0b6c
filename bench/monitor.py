"""What the monitor costs: a job whose workers report twice a second beside one that reports never.

Word count and a chain of two hops on local Spark with two workers, unpaced, both ways in turns. A
report holds everything: progress, latencies, and the traffic of every link. What is counted on the
way (two additions for each message) is counted in both; one report at the end is sent in both.

`overhead` is how much more CPU time a record takes with reports, as a part of what it takes
without: the median over pairs of neighbouring runs. `slower` is the same of the highest rate. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

from tailrace.bench import WORKLOADS
from tailrace.control.protocol import Settings
from tailrace.sources import unpaced
from tailrace.spark.session import local_spark

REPORTING = {"on": Settings.progress_s, "off": 1e6}
_PATIENCE_S = 120.0


def run(spark: Any, workload: str, seconds: float, progress_s: float) -> tuple[float, float]:
    """Records per second, and CPU time per record in microseconds."""
    build, make, fan_out = WORKLOADS[workload]
    with patch("tailrace.spark.job.Settings", partial(Settings, progress_s=progress_s)):
        job = build(unpaced(make, seconds=seconds)).start(spark, workers=2)
    if not job.await_termination(_PATIENCE_S):
        job.stop(drain=False)
        raise RuntimeError(f"{job.name!r} did not end")
    progress = job.last_progress
    emitted = sum(progress.emitted.values())
    if not progress.balanced or progress.delivered != emitted * fan_out:
        raise RuntimeError(f"{job.name!r} lost records, or delivered some twice")
    return emitted / job.traffic().seconds, sum(progress.cpu_s.values()) / emitted * 1e6


def measure(spark: Any, workload: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Both ways in turns; who is first changes from round to round."""
    run(spark, workload, 1.0, REPORTING["on"])  # to warm up
    rates: dict[str, list[float]] = {way: [] for way in REPORTING}
    cpus: dict[str, list[float]] = {way: [] for way in REPORTING}
    for number in range(rounds):
        for way in sorted(REPORTING, reverse=bool(number % 2)):
            rate_per_s, cpu_us = run(spark, workload, seconds, REPORTING[way])
            rates[way].append(rate_per_s)
            cpus[way].append(cpu_us)
    more = [on / off - 1 for on, off in zip(cpus["on"], cpus["off"], strict=True)]
    slower = [1 - on / off for on, off in zip(rates["on"], rates["off"], strict=True)]
    return {
        "rate_per_s": {way: round(median(found)) for way, found in rates.items()},
        "cpu_us_per_record": {way: round(median(found), 3) for way, found in cpus.items()},
        "overhead": round(median(more), 4),
        "overhead_range": [round(min(more), 4), round(max(more), 4)],
        "slower": round(median(slower), 4),
    }


def main() -> None:
    """Measure all workloads and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 2 s, not 9 of 5 s")
    options = parser.parse_args()
    rounds, seconds = (3, 2.0) if options.quick else (9, 5.0)
    spark = local_spark(2)
    results = {name: measure(spark, name, rounds, seconds) for name in WORKLOADS}
    for name, found in results.items():
        least, most = found["overhead_range"]
        print(
            f"{name:12} {found['overhead']:+.2%} CPU per record, {least:+.2%} to {most:+.2%} over"
            " the rounds"
        )
    worst = max(found["overhead"] for found in results.values())
    print(json.dumps({"monitor_overhead": worst, "workloads": results}))


if __name__ == "__main__":
    main()
