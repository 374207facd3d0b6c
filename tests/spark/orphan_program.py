"""Run by a test in a process of its own, which is killed: a job that recovers. Prints its pids."""

from __future__ import annotations

import json
import sys
import threading

import tailrace as tr
from tailrace.spark.session import local_spark

if __name__ == "__main__":
    topology = tr.Topology("endless")
    topology.source(tr.sources.rate(100)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
    job = topology.start(local_spark(2), workers=2, checkpoint=sys.argv[1])
    job.await_running()
    pids = [worker[who] for worker in job.workers for who in ("pid", "supervisor")]
    print(json.dumps(pids), flush=True)
    threading.Event().wait()
