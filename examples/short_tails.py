"""One of three workers is slow; the job finds out by itself how its records are dealt best.

python examples/short_tails.py
"""

import time

import tailrace as tr
from tailrace.tail.chooser import Chooser

LOOKUPS = 6_000


class Lookup(tr.Operator):
    """Half a millisecond, and in one of the workers far more."""

    def process(self, record: int) -> None:
        time.sleep(0.008 if self.instance.index == 2 else 0.0005)
        self.emit(record)


def lookups() -> tr.Topology:
    topology = tr.Topology("lookups")
    asked = topology.source(tr.sources.rate(500, count=LOOKUPS), name="asked")
    asked.shuffle().process(Lookup(), name="lookup", parallelism=3).sink(lambda answer: None)
    return topology


if __name__ == "__main__":
    spark = tr.local_spark(4)
    # tail="auto" looks for two seconds and more before it tries something; this one is in a hurry.
    job = lookups().start(spark, placement=(0, 1, 2, 3), tail=Chooser(least_s=0.5, records=100))
    thought = ""
    while not job.await_termination(0.1):
        if job.last_progress.thought != thought:
            thought = job.last_progress.thought
            print(thought)
    progress = job.last_progress
    print(f"{progress.delivered} answers, p99 {progress.latency_ms(99):.1f} ms")
