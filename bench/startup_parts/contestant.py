"""One start of Spark and of some topologies, in a process of its own.

python contestant.py plain|first|ours MONOTONIC_SECONDS_WHEN_IT_WAS_STARTED
"""

import json
import os
import sys
import time
from statistics import median
from typing import Any

import tailrace as tr


def session(contestant: str) -> Any:
    """A Spark of two slots."""
    if contestant == "plain":
        from pyspark.sql import SparkSession

        return SparkSession.builder.master("local[2]").getOrCreate()
    from tailrace.spark.session import local_spark

    return local_spark(2)


def job_s(spark: Any) -> float:
    """From a topology's start until all its workers run."""
    topology = tr.Topology()
    topology.source(range(100)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
    before_s = time.monotonic()
    job = topology.start(spark, workers=2)
    while job.status == "starting":
        time.sleep(0.002)
    running_s = time.monotonic()
    job.await_termination()
    return running_s - before_s


def main(contestant: str, begun_s: float) -> None:
    """Answer with the figures of this process, as a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Spark prints must not look like the answer
    spark = session(contestant)
    spark_s = time.monotonic() - begun_s
    first_s = job_s(spark)
    later_s = median(job_s(spark) for _ in range(3))
    figures = {
        "spark_s": spark_s,
        "first_job_s": first_s,
        "later_job_s": later_s,
        "until_running_s": spark_s + first_s,
    }
    answers.write(json.dumps(figures) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
