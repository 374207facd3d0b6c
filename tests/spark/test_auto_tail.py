"""tail="auto" in real processes: it finds what helps, says why, and sums stay exact."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.spark.job import Job
from tailrace.tail.chooser import Chooser
from tests.spark.test_recovery import EXACT, Watched, counted, results
from tests.spark.test_tail import more_slowly

PATIENCE_S = 60.0
STREAM = "numbers -> work"


def quick() -> Chooser:
    return Chooser(least_s=0.4, records=100, again_s=30.0)


class Slow(tr.Operator):
    """Works in its sleep; in one worker so long that a third of the records is too much for it."""

    def process(self, n: int) -> None:
        time.sleep(0.008 if self.instance.index == 2 else 0.0005)
        self.emit(n)


def uneven(folder: Path, seconds: float) -> tr.Topology:
    topology = tr.Topology("uneven")
    numbers = topology.source(tr.sources.rate(500, seconds=seconds), name="numbers")
    work = numbers.shuffle().process(Slow(), name="work", parallelism=3)
    work.sink(tr.sinks.ndjson(folder, every_s=None, overwrite=True), parallelism=3)
    return topology


def written(folder: Path) -> list[int]:
    return sorted(
        int(line) for path in folder.glob("part-*") for line in path.read_text().splitlines()
    )


def until(job: Job, what: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    deadline = time.monotonic() + PATIENCE_S
    while not what(told := job.last_progress.tails):
        assert job.is_active and time.monotonic() < deadline, f"{told}, {job.last_progress.thought}"
        time.sleep(0.01)
    return told


def dealt(told: dict[str, str]) -> bool:
    """Whether it has been decided, and not only tried."""
    one = told.get(STREAM, "")
    return one.startswith(("balance (", "shared (")) and " with it" in one


def test_with_a_slow_worker_records_are_dealt_otherwise_and_sums_stay_exact(
    spark: Any, tmp_path: Path
) -> None:
    job = uneven(tmp_path, 12.0).start(spark, placement=(0, 1, 2, 3), tail=quick(), progress_s=0.05)
    told = until(job, dealt)
    assert "times as slow as the fastest" in told[STREAM]
    assert "p99" in job.last_progress.thought
    assert job.await_termination(PATIENCE_S)
    assert written(tmp_path) == list(range(6000))


def test_auto_is_turned_on_and_off_in_a_running_job(spark: Any, tmp_path: Path) -> None:
    job = uneven(tmp_path, 300.0).start(spark, placement=(0, 1, 2, 3), progress_s=0.05)
    assert job.await_running(PATIENCE_S)
    assert not job.last_progress.tails
    job._choosing._chooser = quick()
    job.set_tail("auto")
    until(job, dealt)
    job.set_tail("off", [STREAM])
    assert STREAM not in job.last_progress.tails
    job.set_tail("auto", [STREAM])
    until(job, lambda told: STREAM in told)
    with pytest.raises(ValueError, match="no shuffled stream 'work'"):
        job.set_tail("auto", ["work"])
    job.stop()
    found = written(tmp_path)
    assert found == list(range(len(found))) and found


def test_one_stream_may_be_left_to_itself(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology("two")
    numbers = topology.source(tr.sources.rate(500), name="numbers")
    first = numbers.shuffle(tail="auto").map(lambda n: n, name="first", parallelism=2)
    first.shuffle(tail="shared").map(lambda n: n, name="second", parallelism=2).sink(lambda n: None)
    job = topology.start(spark, workers=2, progress_s=0.05)
    assert job._choosing._numbers == {0}
    job._choosing._chooser = quick()
    told = until(job, bool)
    assert told.keys() == {"numbers -> first"}
    job.stop()


def test_after_kills_every_record_counts_once_with_auto(spark: Any, tmp_path: Path) -> None:
    topology = counted(tmp_path / "out", more_slowly)
    job = topology.start(
        spark,
        workers=3,
        checkpoint=tmp_path / "kept",
        checkpoint_s=0.05,
        tail=Chooser(least_s=0.1, records=100, again_s=0.5),
        progress_s=0.02,
    )
    watched = Watched(job)
    watched.kill_in_turn(3)
    assert job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == EXACT
    watched.nothing_is_left()


def test_what_a_stream_may_be_told(spark: Any) -> None:
    topology = tr.Topology()
    with pytest.raises(ValueError, match=r"tail is 'replay'; it must be one of .*, or 'auto'"):
        topology.source([1]).shuffle(tail="replay")  # type: ignore[arg-type]
    topology.source([1], name="ones").map(abs).sink(print)
    with pytest.raises(ValueError, match=r"it must be one of .*'replay', 'auto'"):
        topology.start(spark, tail="automatic")
