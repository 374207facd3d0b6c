"""Run by a test in a process of its own: Spark is stopped while many jobs start. Prints JSON."""

from __future__ import annotations

import json
import sys
import threading
import time

import tailrace as tr
from tailrace.spark.job import Job
from tailrace.spark.session import local_spark

JOBS = 18
PATIENCE_S = 60.0


def topology() -> tr.Topology:
    made = tr.Topology("endless")
    made.source(tr.sources.rate(10)).sink(lambda _: None)
    return made


def stopped_after(pause_s: float, first: bool) -> list[str]:
    """How the jobs have ended that were started meanwhile; `first`: the pause begins with one."""
    spark = local_spark(4)
    jobs: list[Job] = []

    def begin() -> None:
        try:
            jobs.append(topology().start(spark, workers=1))
        except Exception:  # refused: Spark had been stopped
            return

    threads = [threading.Thread(target=begin) for _ in range(JOBS)]
    for thread in threads:
        thread.start()
    while first and not jobs and any(thread.is_alive() for thread in threads):
        time.sleep(0.005)
    time.sleep(pause_s)
    spark.stop()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + PATIENCE_S
    while any(job.is_active for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [job.status if not job.is_active else f"still {job.status}" for job in jobs]


if __name__ == "__main__":
    pauses = [float(pause) for pause in sys.argv[1:]]
    print(
        json.dumps([[stopped_after(pause, first) for pause in pauses] for first in (False, True)])
    )
