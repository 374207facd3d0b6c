"""`make demo`: the word count on local Spark, and the same as a micro-batch for comparison."""

from __future__ import annotations

import sys
import time
from typing import Any

from tailrace.apps import word_count
from tailrace.cli.command import summary
from tailrace.cli.view import watch
from tailrace.spark.session import local_spark

_PER_S = 10_000


def demo(seconds: float) -> int:
    """Run both and say how they compare."""
    started = time.monotonic()
    print("starting Spark on this machine ...", file=sys.stderr)
    spark = local_spark(2)
    topology = word_count.topology(_PER_S)
    print(
        f"Spark is up after {time.monotonic() - started:.1f} s."
        f" Word count, {_PER_S:,} sentences/s of ten words, two workers, Python operators:\n",
        file=sys.stderr,
    )
    job = topology.start(spark, workers=2)
    try:
        watch(job, seconds)
    finally:
        job.stop()
    print()
    print(summary(job))
    print("the same as a Spark micro-batch (Structured Streaming, Python operators) ...")
    batch_ms = micro_batch_ms(spark, seconds=8.0)
    ours_ms = job.last_progress.latency_ms(50)
    if batch_ms:
        print(
            f"one micro-batch of {_PER_S // 10:,} sentences took {batch_ms:.0f} ms (median);"
            f" an answer waits at least that long, {batch_ms / ours_ms:,.0f} times our median"
        )
    spark.stop()
    return 0


def micro_batch_ms(spark: Any, seconds: float) -> float | None:
    """How long Spark's own engine takes for a batch of a tenth of a second's sentences."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, StringType

    make = word_count.sentences()

    split = f.udf(lambda i: make(i).split(), ArrayType(StringType()), useArrow=False)
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", _PER_S // 10)
        .option("numPartitions", 2)
        .load()
    )
    counts = numbers.select(f.explode(split("value")).alias("word")).groupBy("word").count()
    query = counts.writeStream.outputMode("update").format("noop").start()
    try:
        query.awaitTermination(seconds)
        took = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
    finally:
        query.stop()
    took = sorted(took[1:])  # the first one warms up
    return took[len(took) // 2] if took else None
