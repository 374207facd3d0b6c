"""Run by a test in a process of its own: a job and a transform on two executors.

Prints what it finds as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tailrace as tr
from tailrace.spark.session import QUICK_JVM


def pipeline(out: Path) -> tr.Topology:
    topology = tr.Topology("sums")
    numbers = topology.source(range(2000), name="numbers", parallelism=2)
    sums = numbers.key_by(lambda n: n % 10).fold(lambda total, n: (total or 0) + n, parallelism=4)
    sums.sink(tr.sinks.ndjson(out / "sums"))
    return topology


def main(out: Path) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local-cluster[2,2,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.executor.extraJavaOptions", QUICK_JVM)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
        .getOrCreate()
    )
    topology = pipeline(out)
    job = topology.start(spark, workers=4, node="executor")
    job.await_termination(120)
    rows = topology.transform(spark.range(2000), "key long, total long", workers=4).collect()
    found = {
        "ways": sorted(sorted(worker["ways"].values()) for worker in job.workers),
        "balanced": job.last_progress.balanced,
        "explained": job.explain().splitlines(),
        "transformed": sorted([row["key"], row["total"]] for row in rows),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
