"""Run by a test in a process of its own: jobs and a transform on two executors.

Prints what it finds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.plan.model.machine import cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.spark.classic import Classic
from tailrace.spark.session import QUICK_JVM, from_archive


def pipeline(out: Path) -> tr.Topology:
    topology = tr.Topology("sums")
    numbers = topology.source(range(2000), name="numbers", parallelism=2)
    sums = numbers.key_by(lambda n: n % 10).fold(lambda total, n: (total or 0) + n, parallelism=4)
    sums.sink(tr.sinks.ndjson(out / "sums"))
    return topology


def planned(spark: Any, out: Path) -> dict[str, Any]:
    """A plan for two nodes of two workers: do those of a node share memory, and only those?"""
    topology = pipeline(out)
    made = topology.plan(4, "consolidate", profile=Profile({}), machine=cluster(2, cores=2))
    plan = replace(made.plan, core_of=())
    job = topology.start(spark, plan=plan, node="executor")
    job.await_termination(120)
    rank_of = dict(zip(plan.place_of, job.placement, strict=True))
    ways = {
        (plan.places[one].node == plan.places[other].node, job.workers[rank]["ways"][peer])
        for one, rank in rank_of.items()
        for other, peer in rank_of.items()
        if one != other
    }
    surveyed = pipeline(out / "surveyed").start(spark, scheduler="round robin", node="executor")
    surveyed.await_termination(120)
    assert surveyed.plan is not None
    return {
        "ways": sorted(ways),
        "balanced": job.last_progress.balanced and surveyed.last_progress.balanced,
        "nodes": [place.node for place in surveyed.plan.places],
    }


def frugal(spark: Any, out: Path) -> dict[str, Any]:
    """A plan for a low rate: what is on one of two nodes, while workers of the other sleep."""
    topology = pipeline(out)
    costs = {operator.name: OperatorProfile(Work(1000.0)) for operator in topology.graph.operators}
    made = topology.plan(
        4, "consolidate", profile=Profile(costs), machine=cluster(2, cores=2), rate=1000
    )
    job = topology.start(spark, plan=replace(made.plan, core_of=()), node="executor")
    job.await_termination(120)
    return {
        "workers": len(job.workers),
        "nodes": len({made.plan.places[place].node for place in made.plan.place_of}),
        "balanced": job.last_progress.balanced,
    }


def given_up(spark: Any) -> list[str]:
    """Executors whose host is taken for silent: which ones there are before, and then."""
    classic = Classic(spark)
    before = {one.id: one.host for one in classic._executors()}
    classic.forget(sorted(set(before.values())))
    deadline_s = time.monotonic() + 120
    while before.keys() & {one.id for one in classic._executors()}:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.05)
    after = [one.id for one in classic._executors()]
    return [f"{len(before)} before", f"{len(before.keys() & set(after))} of them left"]


def main(out: Path) -> None:
    from pyspark.sql import SparkSession

    jvm = f"{QUICK_JVM} {from_archive()}"
    spark = (
        SparkSession.builder.master("local-cluster[2,2,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.python.daemon.module", "tailrace.spark.daemon")
        .config("spark.driver.extraJavaOptions", jvm)
        .config("spark.executor.extraJavaOptions", jvm)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
        .getOrCreate()
    )
    topology = pipeline(out)
    job = topology.start(spark, workers=4, node="executor")
    job.await_termination(120)
    rows = topology.transform(spark.range(2000), "key long, total long", workers=4).collect()
    found = {
        "planned": planned(spark, out / "planned"),
        "frugal": frugal(spark, out / "frugal"),
        "ways": sorted(sorted(worker["ways"].values()) for worker in job.workers),
        "balanced": job.last_progress.balanced,
        "explained": job.explain().splitlines(),
        "transformed": sorted([row["key"], row["total"]] for row in rows),
    }
    found["given up"] = given_up(spark)
    spark.stop()
    try:
        topology.start(spark)
    except ValueError as error:
        found["after its end"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
