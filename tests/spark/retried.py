"""A DataFrame whose first attempt fails after the topology has got some of it; see test_retry."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import tailrace as tr
from tailrace.spark.session import QUICK_JVM, from_archive

FOLDER = Path(sys.argv[1])


def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        yield batch
        if task.attemptNumber() == 0 and 2500 in batch.column(0).to_pylist():
            while not (FOLDER / "some").exists():
                time.sleep(0.02)
            (FOLDER / "failed").touch()
            raise OSError("a disk has failed")


def note_some(row: dict[str, Any]) -> int:
    n: int = row["id"]
    if n == 300:
        (FOLDER / "some").touch()
    return n


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} {from_archive()}")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    # Wide, so that the sockets on the way cannot hold all of it.
    wide = spark.range(5000).selectExpr("id", "repeat('x', 2000) as text").coalesce(1)
    df = wide.mapInArrow(fail_once, "id long, text string")
    topology = tr.Topology()
    numbers = topology.source(tr.sources.dataframe(df))
    numbers.map(note_some).sink(tr.sinks.ndjson(FOLDER / "out"))
    topology.start(spark).await_termination()
    spark.stop()


if __name__ == "__main__":
    main()
