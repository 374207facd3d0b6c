"""Run by a test in a process of its own: jobs on a cluster that has no executor to begin with.

Spark also copies slow tasks onto other hosts here, and workers are slow. Prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import tailrace as tr
from tailrace.spark.job import JobFailedError
from tailrace.spark.session import QUICK_JVM, from_archive


def pipeline(out: Path) -> tr.Topology:
    topology = tr.Topology("sums")
    numbers = topology.source(range(2000), name="numbers", parallelism=2)
    sums = numbers.key_by(lambda n: n % 10).fold(lambda total, n: (total or 0) + n, parallelism=2)
    sums.sink(tr.sinks.ndjson(out))
    return topology


def endless() -> tr.Topology:
    topology = tr.Topology("endless")
    topology.source(tr.sources.rate(100)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
    return topology


def main(master: str, out: Path) -> None:
    jvm = f"{QUICK_JVM} {from_archive()}"
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "2")
        .config("spark.python.daemon.module", "tailrace.spark.daemon")
        .config("spark.driver.extraJavaOptions", jvm)
        .config("spark.executor.extraJavaOptions", jvm)
        .config("spark.dynamicAllocation.enabled", "true")
        .config("spark.dynamicAllocation.shuffleTracking.enabled", "true")
        .config("spark.dynamicAllocation.minExecutors", "0")
        .config("spark.dynamicAllocation.maxExecutors", "2")
        .config("spark.speculation", "true")
        .config("spark.speculation.task.duration.threshold", "500ms")
        .getOrCreate()
    )
    found: dict[str, object] = {}
    try:
        endless().start(spark, workers=5)
    except ValueError as error:
        found["too many"] = str(error)
    try:
        endless().transform(spark.range(3), "n long")
    except ValueError as error:
        found["transform"] = str(error)
    job = pipeline(out / "sums").start(spark, workers=3)
    job.await_termination(120)
    found["balanced"] = job.last_progress.balanced
    found["hosts"] = sorted({worker["host"] for worker in job.workers})

    job = endless().start(spark, workers=2)
    roster = job._coordinator.roster
    deadline = time.monotonic() + 120
    while not roster.copies and time.monotonic() < deadline and job.is_active:
        time.sleep(0.1)
    found["copies"] = len(roster.copies) > 0
    found["with copies"] = job.status
    job.stop()
    found["drained"] = [job.status, job.last_progress.balanced]

    job = endless().start(spark, workers=2)
    job.await_running(120)
    victim = job.workers[1]
    os.kill(victim["pid"], signal.SIGKILL)
    try:
        job.await_termination(120)
    except JobFailedError as error:
        found["killed"] = str(error)
    found["victim"] = f"worker 1 (pid {victim['pid']} on {victim['host']}) is gone"
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
