"""DataFrames that feed jobs with checkpoints: workers are killed, and every row counts once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tests.spark.test_feed import nothing_is_left, put_numbers, stream_of, until, written

assert nothing_is_left  # a fixture, for these tests as well
PATIENCE_S = 120.0
ROWS = 6_000


def slowly(n: int) -> int:
    time.sleep(0.0002)
    return n


def into(folder: Path, df: Any, **options: Any) -> tr.Topology:
    topology = tr.Topology()
    rows = topology.source(tr.sources.dataframe(df, **options), parallelism=2)
    rows.map(slowly).sink(tr.sinks.ndjson(folder / "out"))
    return topology


def kill_one(job: Any, folder: Path, after: int) -> None:
    """Kill a worker when so many rows can be seen, and wait until the job has gone on."""
    until(lambda: len(written(folder / "out")) >= after or not job.is_active)
    restarts = job.last_progress.restarts
    with suppress(ProcessLookupError):
        os.kill(job.workers[restarts % 2]["pid"], signal.SIGKILL)
    until(lambda: job.last_progress.restarts > restarts or not job.is_active)


@pytest.mark.parametrize("kills", [(1,), (1, 2_000, 4_000)])
def test_rows_of_a_bounded_dataframe_count_once(
    spark: Any, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    df = spark.range(ROWS).selectExpr("id as n").repartition(5)
    job = into(tmp_path, df).start(
        spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_s=0.1, restarts=20
    )
    for after in kills:
        kill_one(job, tmp_path, after)
    assert job.await_termination(PATIENCE_S), job.status
    assert job.exception() is None
    assert sorted(written(tmp_path / "out")) == list(range(ROWS))
    assert job.last_progress.restarts >= 1


def test_rows_of_a_stream_count_once_and_the_next_job_goes_on(spark: Any, tmp_path: Path) -> None:
    arrivals = tmp_path / "in"
    options: Any = {"workers": 2, "checkpoint": tmp_path / "kept", "checkpoint_s": 0.1}

    def seen(count: int) -> Callable[[], bool]:
        return lambda: len(written(tmp_path / "out")) >= count or not job.is_active

    job = into(tmp_path, stream_of(spark, arrivals)).start(spark, restarts=20, **options)
    for number in range(3):
        put_numbers(arrivals, str(number), range(number * 1000, (number + 1) * 1000))
        kill_one(job, tmp_path, number * 1000 + 1)
    until(seen(3_000))
    job.stop()
    assert job.exception() is None
    put_numbers(arrivals, "3", range(3_000, 4_000))
    job = into(tmp_path, stream_of(spark, arrivals)).start(spark, **options)
    until(seen(4_000))
    job.stop()
    assert job.exception() is None
    assert sorted(written(tmp_path / "out")) == list(range(4_000))


def test_a_stream_goes_on_from_a_savepoint_in_another_folder(spark: Any, tmp_path: Path) -> None:
    arrivals, saved = tmp_path / "in", tmp_path / "saved"

    def seen(count: int) -> Callable[[], bool]:
        return lambda: len(written(tmp_path / "out")) >= count or not job.is_active

    put_numbers(arrivals, "0", range(500))
    job = into(tmp_path, stream_of(spark, arrivals)).start(
        spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_s=0.1
    )
    until(seen(500))
    put_numbers(arrivals, "1", range(500, 1_000))
    until(seen(600))  # in the middle of a micro-batch, or behind it
    job.stop(savepoint=saved)
    assert job.exception() is None
    put_numbers(arrivals, "2", range(1_000, 1_500))
    job = into(tmp_path, stream_of(spark, arrivals)).start(
        spark, workers=2, checkpoint=tmp_path / "new", checkpoint_s=0.1, restore=saved
    )
    until(seen(1_500))
    job.stop()
    assert job.exception() is None
    assert sorted(written(tmp_path / "out")) == list(range(1_500))
