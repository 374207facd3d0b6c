"""Run by a test in a process of its own: a job, a failure and a transform by Spark Connect.

Prints what it finds as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.spark.job import JobFailedError
from tailrace.spark.session import QUICK_JVM


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


def main(out: Path) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
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
        "transformed": sorted(row["n"] for row in squares.collect()),
        "shown": len(squares.take(3)),
        "explained": topology.explain(spark).splitlines(),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
