"""DataFrames into running topologies, and what topologies write, read by Spark."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.spark.job import JobFailedError
from tailrace.testing import collect, run

PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    """Look again and again, for as long as the test run has patience."""
    while not condition():
        threading.Event().wait(0.02)


def written(directory: Path) -> list[Any]:
    lines = [line for part in directory.glob("part-*") for line in part.read_text().splitlines()]
    return list(map(json.loads, lines))


def put_numbers(directory: Path, name: str, numbers: range) -> None:
    """A file of rows that a stream of files finds whole, or not yet."""
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
    hidden.rename(directory / name)


def stream_of(spark: Any, directory: Path) -> Any:
    directory.mkdir(exist_ok=True)
    reader = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    return reader.json(str(directory))


@pytest.fixture(autouse=True)
def nothing_is_left(spark: Any) -> Iterator[None]:
    yield
    assert not spark.streams.active
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    for thread in threading.enumerate():
        if thread.name.startswith("tailrace"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_bounded_dataframe_comes_whole_and_ends_the_job(
    spark: Any, tmp_path: Path, parallelism: int
) -> None:
    df = spark.range(30_000).selectExpr("id as n", "id % 7 as kind").repartition(5)
    topology = tr.Topology()
    rows = topology.source(tr.sources.dataframe(df), parallelism=parallelism)
    rows.sink(tr.sinks.ndjson(tmp_path))
    job = topology.start(spark)
    assert job.await_termination(PATIENCE_S)
    expected = [{"n": n, "kind": n % 7} for n in range(30_000)]
    assert sorted(written(tmp_path), key=lambda row: row["n"]) == expected
    assert job.status == "stopped"
    assert job.last_progress.emitted == {"source": 30_000}
    assert job.last_progress.latency_ms(99) > 0


def test_a_partition_keeps_its_order_and_one_column_is_the_value(
    spark: Any, tmp_path: Path
) -> None:
    topology = tr.Topology()
    numbers = topology.source(tr.sources.dataframe(spark.range(20_000).coalesce(1)))
    numbers.sink(tr.sinks.ndjson(tmp_path))
    assert topology.start(spark).await_termination(PATIENCE_S)
    assert written(tmp_path) == list(range(20_000))


def test_a_dataframe_without_rows_ends_its_source(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(tr.sources.dataframe(spark.range(0)), parallelism=2).sink(print)
    job = topology.start(spark)
    assert job.await_termination(PATIENCE_S)
    assert job.last_progress.emitted == {"source": 0}


def test_two_dataframes_feed_one_topology(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology()
    left = topology.source(tr.sources.dataframe(spark.range(100)), name="left")
    right = topology.source(tr.sources.dataframe(spark.range(100, 300)), name="right")
    left.merge(right).map(lambda n: n).sink(tr.sinks.ndjson(tmp_path))
    assert topology.start(spark).await_termination(PATIENCE_S)
    assert sorted(written(tmp_path)) == list(range(300))


def test_in_a_test_a_bounded_dataframe_is_collected(spark: Any) -> None:
    df = spark.range(10).selectExpr("id as n", "id * 2 as twice")
    topology = tr.Topology()
    source = tr.sources.dataframe(df, lambda row: row["n"] + row["twice"])
    seen = collect(topology.source(source, parallelism=2))
    run(topology)
    assert sorted(seen) == [3 * n for n in range(10)]


def test_in_a_test_a_streaming_dataframe_is_refused(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology()
    topology.source(tr.sources.dataframe(stream_of(spark, tmp_path))).sink(print)
    with pytest.raises(BaseException, match="a streaming DataFrame needs Spark to run it"):
        run(topology)


def test_a_trigger_for_a_bounded_dataframe_is_refused(spark: Any) -> None:
    with pytest.raises(ValueError, match="the DataFrame is not a streaming one"):
        tr.sources.dataframe(spark.range(3), trigger={"availableNow": True})


def test_what_is_available_now_comes_whole_and_ends_the_job(spark: Any, tmp_path: Path) -> None:
    for batch in range(4):
        put_numbers(tmp_path / "in", f"{batch}.json", range(batch * 100, batch * 100 + 100))
    topology = tr.Topology()
    source = tr.sources.dataframe(
        stream_of(spark, tmp_path / "in"), lambda row: -row["n"], trigger={"availableNow": True}
    )
    topology.source(source, parallelism=2).sink(tr.sinks.ndjson(tmp_path / "out"))
    job = topology.start(spark)
    assert job.await_termination(PATIENCE_S)
    assert sorted(written(tmp_path / "out")) == list(range(-399, 1))


def test_with_a_checkpoint_the_next_job_goes_on(spark: Any, tmp_path: Path) -> None:
    for turn in range(2):
        put_numbers(tmp_path / "in", f"{turn}.json", range(turn * 50, turn * 50 + 50))
        topology = tr.Topology()
        source = tr.sources.dataframe(
            stream_of(spark, tmp_path / "in"),
            trigger={"availableNow": True},
            checkpoint=str(tmp_path / "checkpoint"),
        )
        topology.source(source).sink(tr.sinks.ndjson(tmp_path / f"out{turn}"))
        assert topology.start(spark).await_termination(PATIENCE_S)
    assert written(tmp_path / "out0") == list(range(50))
    assert written(tmp_path / "out1") == list(range(50, 100))


@pytest.mark.parametrize("drain", [True, False])
def test_rows_that_come_later_come_through_until_the_job_is_stopped(
    spark: Any, tmp_path: Path, drain: bool
) -> None:
    topology = tr.Topology()
    source = tr.sources.dataframe(stream_of(spark, tmp_path / "in"))
    topology.source(source).sink(tr.sinks.ndjson(tmp_path / "out", every_s=None))
    job = topology.start(spark)
    for batch in range(3):
        put_numbers(tmp_path / "in", f"{batch}.json", range(batch * 10, batch * 10 + 10))
        until(lambda: job.last_progress.delivered >= (batch + 1) * 10 or not job.is_active)  # noqa: B023
    job.stop(drain=drain)
    assert job.exception() is None
    assert job.last_progress.delivered == 30
    assert written(tmp_path / "out") == (list(range(30)) if drain else [])


def test_a_query_that_somebody_stops_ends_the_source(spark: Any, tmp_path: Path) -> None:
    put_numbers(tmp_path / "in", "0.json", range(10))
    topology = tr.Topology()
    source = tr.sources.dataframe(stream_of(spark, tmp_path / "in"))
    topology.source(source).sink(tr.sinks.ndjson(tmp_path / "out"))
    job = topology.start(spark)
    until(lambda: job.last_progress.delivered == 10 or not job.is_active)
    for query in spark.streams.active:
        query.stop()
    assert job.await_termination(PATIENCE_S)
    assert job.status == "stopped"
    assert written(tmp_path / "out") == list(range(10))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_failing_dataframe_fails_the_job_and_says_why(
    spark: Any, tmp_path: Path, streaming: bool
) -> None:
    def check(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if 7 in batch.column(0).to_pylist():
                raise ValueError("7 is an unlucky number")
            yield batch

    put_numbers(tmp_path / "in", "0.json", range(10))
    df = stream_of(spark, tmp_path / "in") if streaming else spark.range(10)
    topology = tr.Topology()
    source = tr.sources.dataframe(df.mapInArrow(check, "n long"))
    topology.source(source, name="luck").sink(lambda _: None)
    job = topology.start(spark)
    with pytest.raises(JobFailedError, match=r"DataFrame of 'luck' failed: .*an unlucky number"):
        job.await_termination(PATIENCE_S)


def test_a_failing_topology_stops_the_query(spark: Any, tmp_path: Path) -> None:
    put_numbers(tmp_path / "in", "0.json", range(10))
    topology = tr.Topology()
    source = tr.sources.dataframe(stream_of(spark, tmp_path / "in"))
    topology.source(source).map(lambda n: 1 // (n - 7), name="divide").sink(lambda _: None)
    job = topology.start(spark)
    with pytest.raises(JobFailedError, match="'divide' failed on 7"):
        job.await_termination(PATIENCE_S)


def test_a_job_that_is_stopped_before_it_runs_starts_no_query(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology()
    topology.source(tr.sources.dataframe(stream_of(spark, tmp_path))).sink(lambda _: None)
    job = topology.start(spark)
    job.stop()
    assert job.exception() is None


class Gate(tr.Sink):
    """Says that it has got something, and takes its time until somebody opens."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, records: Iterator[Any]) -> None:
        (self.directory / "reached").touch()
        until((self.directory / "open").exists)
        deque(records, maxlen=0)


def test_a_slow_topology_holds_up_spark(spark: Any, tmp_path: Path) -> None:
    computed = tmp_path / "computed"
    computed.touch()

    def note(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            with computed.open("a") as file:
                file.write(f"{batch.num_rows}\n")
            yield batch

    def rows() -> int:
        return sum(map(int, computed.read_text().split()))

    # 100 MB: the sockets on the way hold some of it.
    wide = spark.range(100_000).selectExpr("id", "repeat('x', 1000) as text").coalesce(1)
    df = wide.mapInArrow(note, "id long, text string")
    topology = tr.Topology()
    topology.source(tr.sources.dataframe(df)).sink(Gate(tmp_path))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    job = topology.start(spark, workers=1)
    try:
        until((tmp_path / "reached").exists)
        before = -1
        while before != (now := rows()):  # until Spark has come to a stand
            before = now
            threading.Event().wait(1.0)
        assert 0 < before < 50_000
        (tmp_path / "open").touch()
        assert job.await_termination(PATIENCE_S)
    finally:
        (tmp_path / "open").touch()
        job.stop(drain=False)
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert rows() == 100_000
    assert job.last_progress.delivered == 100_000


def test_a_dataframe_needs_a_slot_that_is_no_workers(spark: Any) -> None:
    topology = tr.Topology()
    source = topology.source(tr.sources.dataframe(spark.range(10)), parallelism=8, name="rows")
    source.sink(lambda _: None)
    message = (
        r"4 workers were asked for; this Spark has 4 task slots, and the DataFrame of 'rows' needs"
        r" one of them .*local\[5\]"
    )
    with pytest.raises(ValueError, match=message):
        topology.start(spark, workers=4)
    job = topology.start(spark)
    assert job.await_termination(PATIENCE_S)
    assert len(job.workers) == 3


class Endless(tr.Source):
    """{"n": 0}, {"n": 1} ... without end."""

    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> tr.Reader:
        return tr.sources.rate(2000.0, lambda i: {"n": i}).open(split, clock_ns)


def test_spark_reads_the_output_of_a_running_job_as_a_table_and_as_a_stream(
    spark: Any, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    seen: list[int] = []
    topology = tr.Topology()
    topology.source(Endless()).shuffle().sink(tr.sinks.parquet(out, every_s=0.2), parallelism=2)
    job = topology.start(spark, workers=2)
    until(lambda: list((tmp_path / "out").glob("part-*")) or not job.is_active)
    stream = spark.readStream.schema("n long").parquet(out).writeStream
    query = stream.foreachBatch(lambda df, _: seen.extend(row.n for row in df.collect())).start()
    try:
        counts = [spark.read.parquet(out).count()]
        until(lambda: len(seen) > 2000 or not query.isActive or not job.is_active)
        counts.append(spark.read.parquet(out).count())
        assert job.is_active
        assert 0 < counts[0] < counts[1]
        job.stop()
        total = job.last_progress.delivered
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(row.n for row in spark.read.parquet(out).collect()) == list(range(total))
    assert sorted(seen) == list(range(total))


def test_spark_reads_what_is_whole_of_a_parquet_sink(spark: Any, tmp_path: Path) -> None:
    at = [datetime(2026, 1, day) for day in (1, 2)]
    rows = [{"word": "δ", "count_": n, "tags": ["x"], "at": at[n]} for n in range(2)]
    topology = tr.Topology()
    topology.source(rows).sink(tr.sinks.parquet(tmp_path))
    run(topology)
    (tmp_path / ".part-00001.parquet.0.tmp").write_bytes(b"left by a process that was killed")
    found = spark.read.parquet(str(tmp_path)).orderBy("at").collect()
    assert [row.asDict() for row in found] == rows
