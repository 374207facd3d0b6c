"""A program whose states are of a class of its own, in `__main__`; see test_main_classes.

    python main_program.py CHECKPOINTS OUT SAVED [RESTORE]

Counts numbers by key until some have been counted, kills a worker on the way, and stops with a
savepoint.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tailrace as tr
from tailrace.spark.session import local_spark


@dataclass(frozen=True)
class Total:
    """How many there were."""

    count: int = 0
    last: int = -1


def add(total: Total | None, n: int) -> Total:
    total = total or Total()
    assert total.last < n, "each comes once, in its order"
    return Total(total.count + 1, n)


def main(kept: str, out: str, saved: str, restore: str | None = None) -> None:
    spark = local_spark(2)
    topology = tr.Topology("totals")
    numbers = topology.source(tr.sources.rate(1_000), parallelism=1, name="numbers")
    totals = numbers.key_by(lambda n: n % 5).scan(add, name="totals", parallelism=2)
    lines = totals.shuffle().map(lambda one: one[1].count, parallelism=2)
    lines.sink(tr.sinks.text(out))
    job = topology.start(spark, workers=2, checkpoint=kept, checkpoint_s=0.1, restore=restore)

    def until(count: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and job.is_active:
            shown = sum(len(path.read_text().split()) for path in Path(out).glob("part-*"))
            if shown >= count:
                return
            time.sleep(0.01)
        raise SystemExit(f"not {count} of them; it is {job.status}: {job.exception()}")

    until(100)
    os.kill(job.workers[0]["pid"], signal.SIGKILL)
    until(500)
    job.stop(savepoint=saved)
    assert job.exception() is None
    assert job.last_progress.restarts == 1
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
