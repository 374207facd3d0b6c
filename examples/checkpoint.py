"""Totals that survive: a worker is killed in the middle, and no sale is lost or counted twice.

python examples/checkpoint.py
"""

import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import tailrace as tr

SALES = 20_000
SHOPS = ("north", "south", "east")


def totals(results: Path) -> tr.Topology:
    topology = tr.Topology("sales")
    (
        topology.source(tr.sources.rate(5_000, lambda i: (SHOPS[i % 3], 1), count=SALES))
        .key_by(lambda sale: sale[0])
        .fold(lambda total, sale: total + sale[1], initial=0, name="total", parallelism=2)
        .sink(tr.sinks.text(results))
    )
    return topology


if __name__ == "__main__":
    spark = tr.local_spark(2)
    with TemporaryDirectory() as folder:
        results = Path(folder, "results")
        job = totals(results).start(spark, checkpoint=Path(folder, "kept"), checkpoint_s=0.5)
        while job.last_progress.emitted.get("source", 0) < SALES // 2:
            time.sleep(0.05)
        os.kill(job.workers[0]["pid"], signal.SIGKILL)
        job.await_termination()
        print(*job.last_progress.events, sep="\n")
        for file in sorted(results.iterdir()):
            print(file.read_text(), end="")
