"""Ways to deal shuffled records, in real processes: changed while a job runs, and under kill -9."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.tail.modes import Tail
from tests.spark.test_recovery import EXACT, PATIENCE_S, Watched, counted, results

MODES: tuple[Tail, ...] = ("shared", "balance", "du", "storm")


def more_slowly(n: int) -> int:
    """So that it is not over before it was killed often enough."""
    time.sleep(0.002)
    return n


@pytest.mark.parametrize("tail", MODES[:2])
def test_after_a_kill_every_record_counts_once(spark: Any, tmp_path: Path, tail: Tail) -> None:
    """Records of the one that is killed were in its queue, in a ring and at other workers."""
    topology = counted(tmp_path / "out", more_slowly)
    job = topology.start(
        spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_s=0.05, tail=tail
    )
    watched = Watched(job)
    watched.kill_in_turn(3)
    assert job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == EXACT
    watched.nothing_is_left()


def test_modes_change_while_a_job_runs_and_nothing_is_lost(spark: Any) -> None:
    topology = tr.Topology("changing")
    stream = topology.source(tr.sources.rate(2000), parallelism=2)
    first = stream.shuffle().map(lambda n: n, name="first", parallelism=3)
    first.local_or_shuffle().map(lambda n: n, name="second", parallelism=2).sink(lambda _: None)
    job = topology.start(spark, workers=3, tail="shared")
    assert job.await_running(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    for turn in range(20):
        some = None if turn % 2 else ["source -> first"]
        job.set_tail(("off", *MODES)[turn % 5], some)
        before = job.last_progress.emitted
        while job.last_progress.emitted == before and time.monotonic() < deadline:
            time.sleep(0.002)
    with pytest.raises(ValueError, match="no shuffled stream 'first'"):
        job.set_tail("off", ["first"])
    job.stop()
    assert all(not one.under_way for one in job.last_progress.streams.values())
    assert sum(job.last_progress.emitted.values()) > 0


def test_an_unknown_mode_is_refused_before_anything_starts(spark: Any) -> None:
    with pytest.raises(ValueError, match="tail is 'quick'; it must be one of 'off', 'balance'"):
        counted(Path("nowhere")).start(spark, tail="quick")
