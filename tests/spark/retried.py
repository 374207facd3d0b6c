"""A DataFrame whose first attempt fails after the topology has got half of it; see test_feed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import tailrace as tr
from tailrace.spark.arrow import map_in_arrow

FOLDER = Path(sys.argv[1])


def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
    task = TaskContext.get()
    assert task is not None
    for batch in batches:
        yield batch
        if task.attemptNumber() == 0 and 2500 in batch.column(0).to_pylist():
            while not (FOLDER / "half").exists():
                time.sleep(0.02)
            (FOLDER / "failed").touch()
            raise OSError("a disk has failed")


def note_half(n: int) -> int:
    if n == 2000:
        (FOLDER / "half").touch()
    return n


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    df = map_in_arrow(spark.range(5000).coalesce(1), fail_once, "id long")
    topology = tr.Topology()
    numbers = topology.source(tr.sources.dataframe(df))
    numbers.map(note_half).sink(tr.sinks.ndjson(FOLDER / "out"))
    topology.start(spark).await_termination()
    spark.stop()


if __name__ == "__main__":
    main()
