"""A running count gets more instances, then another worker; the stream goes on meanwhile.

python examples/rescale.py
"""

import time

import tailrace as tr

CLICKS = 40_000


def clicks() -> tr.Topology:
    topology = tr.Topology("clicks")
    (
        topology.source(tr.sources.rate(10_000, lambda i: f"user {i % 1000}", count=CLICKS))
        .key_by()
        .fold(lambda n, user: n + 1, initial=0, name="count", parallelism=2)
        .shuffle()
        .sink(lambda total: None, parallelism=1)
    )
    return topology


if __name__ == "__main__":
    spark = tr.local_spark(3)
    job = clicks().start(spark, workers=2)
    job.await_running()
    time.sleep(0.5)
    change = job.rescale(count=3)  # a third of the users move, with their counts
    change.await_done()
    print(f"{change.moved_keys} users moved in {change.took_s * 1000:.0f} ms")
    job.scale_workers(3)  # a further Spark task, which gets its share of the instances
    print(job.explain())
    job.await_termination()
    progress = job.last_progress
    print(f"{progress.operators['count'].records_in} clicks, p99 {progress.latency_ms(99):.1f} ms")
    print(*progress.changes, sep="\n")
