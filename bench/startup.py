"""How long it takes from Python's start until a topology runs, on a local Spark of two slots.

Each contestant is a fresh Python with a fresh JVM, and they take turns:

  plain   SparkSession.builder.master("local[2]"), as most people start it
  first   tailrace's `local_spark` with an empty cache folder
  ours    `local_spark` from then on

Measured: Python's start to a session, a first topology's start until all its workers run, and the
same for a second topology on the same session. JSON with the medians is the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTESTANTS = ("plain", "first", "ours")
LAST_LINES = 20
FIGURES = ("spark_s", "first_job_s", "later_job_s", "until_running_s")


def one(contestant: str, begun_s: float) -> dict[str, float]:
    """The figures of this process; `begun_s` is when it was started (of the monotonic clock)."""
    import tailrace as tr

    if contestant == "plain":
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[2]").getOrCreate()
    else:
        from tailrace.spark.session import local_spark

        spark = local_spark(2)
    started_s = time.monotonic()

    def job_s() -> float:
        topology = tr.Topology()
        topology.source(range(100)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
        before_s = time.monotonic()
        job = topology.start(spark, workers=2)
        while job.status == "starting":
            time.sleep(0.002)
        running_s = time.monotonic()
        job.await_termination()
        return running_s - before_s

    first_s = job_s()
    later_s = statistics.median(job_s() for _ in range(3))
    spark_s = started_s - begun_s
    return dict(zip(FIGURES, (spark_s, first_s, later_s, spark_s + first_s), strict=True))


def run(contestant: str, cache: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", contestant, "--begun", str(time.monotonic())]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        last_words = "\n".join(done.stderr.splitlines()[-LAST_LINES:])
        sys.exit(f"{contestant!r} ended with code {done.returncode}:\n{last_words}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def fill(cache: Path) -> None:
    """Let a program leave its archive in the cache, and wait for it."""
    from tailrace.spark.archive import make
    from tailrace.spark.session import local_archive

    os.environ["XDG_CACHE_HOME"] = str(cache)
    path = local_archive()
    if path is None or not make(path):
        print("no archive of the JVM's classes could be made; 'ours' runs without", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.begun)), flush=True)
        os._exit(0)  # without leaving the maker of an archive behind
    with tempfile.TemporaryDirectory() as folder:
        filled, empty = Path(folder, "filled"), Path(folder, "empty")
        fill(filled)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
        for _ in range(options.rounds):
            for name in CONTESTANTS:
                rounds[name].append(run(name, filled if name == "ours" else empty))
    medians = {
        name: {
            figure: round(statistics.median(found[figure] for found in rounds[name]), 3)
            for figure in FIGURES
        }
        for name in CONTESTANTS
    }
    print(f"{'':8}{'Spark':>10}{'first job':>12}{'later job':>12}{'until running':>16}")
    for name, found in medians.items():
        spark_s, first_s, later_s, all_s = (found[figure] for figure in FIGURES)
        print(f"{name:8}{spark_s:>8.2f} s{first_s:>10.2f} s{later_s:>10.2f} s{all_s:>14.2f} s")
    faster = medians["plain"]["until_running_s"] / medians["ours"]["until_running_s"]
    print(json.dumps({"rounds": options.rounds, **medians, "times_faster": round(faster, 2)}))


if __name__ == "__main__":
    main()
