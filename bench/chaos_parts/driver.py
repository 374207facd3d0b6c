"""A driver that may be killed: runs one order after the other, and says what its job does.

    python driver.py MASTER

Orders come as lines of JSON. Whenever the job's state or its processes change, a line says so: at
(ns of the monotonic clock), status, workers. So does one for every change of its deployment that
has ended (`changes.py`). At the end of a job one has `done` or `failed`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.find_spark_home import _find_spark_home

from chaos_parts.changes import keep_changing
from chaos_parts.workload import Order, topology
from tailrace.spark.job import Job
from tailrace.spark.session import QUICK_JVM, local_spark

CHECKPOINT_S = 0.1
RESTARTS = 1000
_LOOK_S = 0.001
_lines = threading.Lock()


def tell(**what: Any) -> None:
    """One line."""
    with _lines:
        print(json.dumps({"at_ns": time.monotonic_ns(), **what}), flush=True)


def session(master: str, folder: str) -> Any:
    """Spark: a local one, or executors that are processes of their own."""
    if not master.startswith("local-cluster"):
        return local_spark(4)
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} -Djava.io.tmpdir={folder}")
        .config("spark.executor.extraJavaOptions", f"{QUICK_JVM} -Djava.io.tmpdir={folder}")
        .config("spark.python.daemon.module", "tailrace.spark.daemon")
        .config("spark.python.task.killTimeout", "100ms")
        .config("spark.deploy.maxExecutorRetries", "-1")  # of those that are killed
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def watch(job: Job, changes: threading.Thread) -> None:
    """Say what becomes of it, until it has ended, and who changes it has, too."""
    before: Any = None
    while job.is_active:
        now = job.status, [(one["pid"], one["supervisor"]) for one in job.workers]
        if now != before:
            before = now
            tell(status=now[0], workers=now[1], failures=failures(job))
        time.sleep(_LOOK_S)
    changes.join()
    error = job.exception()
    if error is None:
        tell(done=True, failures=failures(job))
    else:
        events = job.last_progress.events[-20:]
        tell(failed=str(error), events=[str(event) for event in events])


def failures(job: Job) -> list[str]:
    """What went wrong that no kill explains: there is nothing wrong with records and operators."""
    return [
        one.what
        for one in job.last_progress.events
        if not re.search("is gone: killed|Spark ended the workers|before the job did", one.what)
    ]


def main(master: str) -> None:
    """Until the end of the input."""
    spark = session(master, tempfile.gettempdir())
    # Where the executors of local-cluster leave what they print.
    work = Path(_find_spark_home(), "work", spark.sparkContext.applicationId)
    tell(work=str(work))
    for line in sys.stdin:
        todo = Order(**json.loads(line))
        made = topology(todo)
        try:
            job = made.start(
                spark,
                workers=2,
                checkpoint=todo.checkpoints,
                checkpoint_s=CHECKPOINT_S,
                restarts=RESTARTS,
            )
        except Exception as error:
            tell(failed=f"it did not start: {error!r}", events=[])
            continue
        slots = spark.sparkContext.defaultParallelism if todo.changes else 0
        changes = threading.Thread(
            target=keep_changing, args=(job, f"{todo.seed} {job.resumed_epoch}", slots, tell)
        )
        changes.start()
        watch(job, changes)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
