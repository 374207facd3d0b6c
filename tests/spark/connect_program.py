"""Run by a test in a process of its own: jobs, a failure and a transform by Spark Connect.

Prints what it finds as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.cli.bench import measure
from tailrace.spark.job import JobFailedError
from tailrace.spark.session import QUICK_JVM, find_spark, from_archive


def pipeline(out: Path) -> tr.Topology:
    topology = tr.Topology("squares")
    source = topology.source(range(1000), name="numbers")
    squares = source.shuffle().map(lambda n: n * n, parallelism=2)
    squares.sink(tr.sinks.ndjson(out / "squares"))
    return topology


def fail(spark: Any) -> str:
    topology = tr.Topology()
    topology.source(range(10)).map(lambda n: 1 / (n - 7), name="divide").sink(print)
    try:
        topology.start(spark, workers=2).await_termination(60)
    except JobFailedError as error:
        return str(error)
    return "it did not fail"


def stop(spark: Any) -> str:
    topology = tr.Topology()
    topology.source(tr.sources.rate(100)).sink(lambda _: None)
    job = topology.start(spark, workers=1)
    while not job.last_progress.delivered and job.is_active:
        job.await_termination(0.02)
    job.stop()
    return job.status


def fed(spark: Any) -> int:
    topology = tr.Topology()
    rows = topology.source(tr.sources.dataframe(spark.range(100)), name="rows, as they come")
    rows.sink(lambda _: None)
    job = topology.start(spark, workers=1)
    job.await_termination(60)
    return job.last_progress.delivered


def refusal(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except ValueError as error:
        return str(error)
    return "it was not refused"


def main(out: Path) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} {from_archive()}")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    topology = pipeline(out)
    job = topology.start(spark)
    job.await_termination(60)
    squares = topology.transform(spark.range(100), "n long")
    found = {
        "session": type(spark).__module__,
        "workers": len(job.workers),
        "balanced": job.last_progress.balanced,
        "delivered": job.last_progress.delivered,
        "failure": fail(spark),
        "stopped": stop(spark),
        "fed": fed(spark),
        "found": find_spark() is spark,
        "other master": refusal(lambda: find_spark("local[9]")),
        "bench master": measure(spark, 0.1, 200, workers=2)["master"],
        "transformed": sorted(row["n"] for row in squares.collect()),
        "shown": len(squares.take(3)),
        "explained": topology.explain(spark).splitlines(),
    }
    spark.stop()
    found["after its end"] = refusal(lambda: topology.start(spark))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
