"""Late records are sent again in real processes that are stopped and killed: sums stay exact."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.spark.job import Job

PATIENCE_S = 60.0
PER_S, SECONDS, KEYS = 2_000, 5.0, 7
PLACEMENT = (0, 1, *range(4), *range(4), *range(4), 2, 3)
"""Sources in the first two of four workers, all else in all of them."""


def line(folder: Path) -> tr.Topology:
    """Everything by itself into files, and counted by key, behind two shuffles."""
    topology = tr.Topology("line")
    stream = topology.source(tr.sources.rate(PER_S, seconds=SECONDS), parallelism=2, name="numbers")
    for name in ("one", "two"):
        stream = stream.shuffle().map(lambda n: n, parallelism=4, name=name)
    counts = stream.key_by(lambda n: n % KEYS).fold(lambda sofar, n: (sofar or 0) + 1)
    counts.sink(tr.sinks.ndjson(folder / "counts", every_s=None, overwrite=True))
    stream.shuffle().sink(
        tr.sinks.ndjson(folder / "all", every_s=None, overwrite=True), parallelism=2, name="all"
    )
    return topology


def lines(folder: Path) -> list[Any]:
    found = [text for path in folder.glob("part-*") for text in path.read_text().splitlines()]
    return [json.loads(text) for text in found]


def stop_for_a_moment(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.03)
        os.kill(pid, signal.SIGCONT)


def disturbed(job: Job, kills: int) -> None:
    """Have workers stopped, and so many killed, until the job has ended."""
    chance = random.Random(1)
    assert job.await_running(PATIENCE_S)
    begun = time.monotonic()
    while not job.await_termination(chance.uniform(0.05, 0.15)):
        if job.status != "running":
            continue
        workers = job.workers
        stop_for_a_moment(chance.choice(workers[2:])["pid"])
        if kills and time.monotonic() - begun > 1.5:
            kills -= 1
            begun = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(chance.choice(workers)["pid"], signal.SIGKILL)


def audit(folder: Path) -> None:
    emitted = round(PER_S * SECONDS)
    seen = Counter(lines(folder / "all"))
    assert len(seen) == emitted and not emitted - seen.total()
    assert dict(lines(folder / "counts")) == Counter(n % KEYS for n in range(emitted))


def test_sums_are_exact_though_workers_are_stopped_and_records_sent_again(
    spark: Any, tmp_path: Path
) -> None:
    job = line(tmp_path).start(spark, placement=PLACEMENT, tail="replay")
    assert "tail='replay', numbers: may be sent again" in job.explain()
    disturbed(job, kills=0)
    audit(tmp_path)
    replays = job.last_progress.replays
    assert replays["copies"] and replays["overtaken"]
    assert replays["copies"] <= 0.06 * replays["runs"]
    print(replays)


def test_sums_are_exact_though_workers_are_killed_and_half_of_all_is_sent_twice(
    spark: Any, tmp_path: Path
) -> None:
    job = line(tmp_path / "out").start(
        spark,
        placement=PLACEMENT,
        checkpoint=tmp_path / "checkpoint",
        checkpoint_s=0.2,
    )
    job.set_tail("replicate 50%")  # who takes another's place hears of it, too
    disturbed(job, kills=3)
    assert job.last_progress.restarts >= 1
    assert job.last_progress.replays["copies"] > 500
    audit(tmp_path / "out")


def test_replay_is_turned_on_and_off_in_a_running_job(spark: Any, tmp_path: Path) -> None:
    job = line(tmp_path).start(spark, placement=PLACEMENT, progress_s=0.05)
    assert job.await_running(PATIENCE_S)
    assert "tail" not in job.explain()
    job.set_tail("replicate 100%")
    while job.last_progress.replays.get("copies", 0) < 100:
        assert job.is_active
        time.sleep(0.01)
    job.set_tail("off")
    assert job.await_termination(PATIENCE_S)
    replays = job.last_progress.replays
    assert 100 <= replays["runs"] < 0.9 * PER_S * SECONDS
    audit(tmp_path)
