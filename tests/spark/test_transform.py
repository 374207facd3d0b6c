"""Topologies over DataFrames: results, Spark's actions on them, failures, and bounded memory."""

from __future__ import annotations

import os
import runpy
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark import TaskContext

import tailrace as tr

WORDS = ["to be or not to be", "that is the question"] * 50


def word_count(parallelism: int = 2) -> tr.Topology:
    topology = tr.Topology("word count")
    lines = topology.source(tr.sources.lines("/nowhere/live.log"))
    words = lines.flat_map(str.split, parallelism=parallelism)
    counts = words.key_by().fold(lambda count, word: (count or 0) + 1, parallelism=parallelism)
    counts.sink(lambda _: None)
    return topology


@pytest.fixture(scope="module")
def lines(spark: Any) -> Any:
    return spark.createDataFrame([(line,) for line in WORDS], "line string")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_word_count_over_a_dataframe_is_exact(lines: Any, workers: int) -> None:
    result = word_count().transform(lines, "word string, count long", workers=workers)
    assert dict(map(tuple, result.collect())) == Counter(" ".join(WORDS).split())
    assert result.schema.simpleString() == "struct<word:string,count:bigint>"


def numbers_doubled(spark: Any, count: int = 1000) -> Any:
    topology = tr.Topology()
    stream = topology.source(tr.sources.unpaced(), parallelism=2)
    stream.shuffle().map(lambda n: 2 * n, parallelism=2).sink(print)
    return topology.transform(spark.range(count), "n long", workers=2)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (lambda df: df.count(), 1000),
        (lambda df: len(df.take(3)), 3),
        (lambda df: df.limit(7).count(), 7),
        (lambda df: df.first()["n"] % 2, 0),
        (lambda df: df.show(2), None),
        (lambda df: sum(row["n"] for row in df.toLocalIterator()), 999_000),
        (lambda df: df.where("n < 10").count(), 5),
        (lambda df: df.coalesce(1).selectExpr("sum(n) as s").first()["s"], 999_000),
        (lambda df: df.orderBy("n").tail(1)[0]["n"], 1998),
        (lambda df: df.union(df).count(), 2000),
        (lambda df: df.join(df.selectExpr("n"), "n").count(), 1000),
    ],
)
def test_the_result_is_a_dataframe_like_any_other(
    spark: Any, action: Callable[[Any], Any], expected: Any
) -> None:
    assert action(numbers_doubled(spark)) == expected


def test_what_was_written_is_all_there(spark: Any, tmp_path: Path) -> None:
    numbers_doubled(spark).write.parquet(str(tmp_path / "out"))
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["n"] for row in found) == list(range(0, 2000, 2))


def test_a_cached_result_is_computed_once(spark: Any, tmp_path: Path) -> None:
    def note(n: int) -> int:
        (tmp_path / f"{n}-{threading.get_native_id()}-{os.urandom(4).hex()}").touch()
        return n

    topology = tr.Topology()
    topology.source([0]).map(note).sink(print)
    result = topology.transform(spark.range(3), "n long", workers=1).cache()
    assert result.count() == 3
    assert sorted(row["n"] for row in result.collect()) == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 3
    result.unpersist()


def test_it_works_without_adaptive_execution(spark: Any) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        assert len(numbers_doubled(spark).take(5)) == 5
        assert numbers_doubled(spark).count() == 1000
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_it_may_be_evaluated_by_several_at_a_time(spark: Any) -> None:
    """More tasks are wanted than there are slots; the stages wait for each other."""
    result = numbers_doubled(spark)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: result.count(), range(3))) == [1000] * 3


def test_an_empty_dataframe_gives_an_empty_result(spark: Any) -> None:
    for empty in (spark.range(0), spark.range(5).where("false"), spark.range(5).where("id > 7")):
        assert word_count().transform(empty, "word string, count long", workers=2).collect() == []


def test_a_source_with_more_instances_than_workers_gets_every_row_once(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([0], parallelism=5).map(lambda n: n).sink(print)
    result = topology.transform(spark.range(20_000), "n long", workers=2)
    assert sorted(row["n"] for row in result.collect()) == list(range(20_000))


def test_many_small_partitions_feed_all_instances(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([0], parallelism=4).map(lambda n: n).sink(print)
    small = spark.range(0, 8, 1, 8)  # one row in each partition

    def where(row: dict[str, Any]) -> int:
        task = TaskContext.get()
        assert task is not None
        return int(task.partitionId())

    result = topology.transform(small, "rank long", workers=4, record=where)
    assert Counter(row["rank"] for row in result.collect()) == dict.fromkeys(range(4), 2)


def test_rows_are_ordered_per_key_if_asked_for(spark: Any) -> None:
    topology = tr.Topology()
    records = topology.source([0], parallelism=3)
    keyed = records.key_by(lambda row: row["key"])
    keyed.scan(lambda seen, row: [*(seen or []), row["at"]], parallelism=2).sink(print)
    df = spark.range(300).selectExpr("id % 7 as key", "(id * 97) % 300 as at")
    result = topology.transform(
        df, "key long, seen array<long>", workers=3, partition_by="key", order_by="at"
    )
    rows = result.collect()
    assert len(rows) == 300
    assert all(row["seen"] == sorted(row["seen"]) for row in rows)


def windows(time: Callable[[Any], Any] = lambda row: row["at"]) -> tr.Topology:
    topology = tr.Topology()
    timed = topology.source([0]).event_time(time, max_delay_s=0)
    counts = timed.key_by(lambda row: row["key"]).window(tr.tumbling(10))
    counts.aggregate(lambda count, _: count + 1, 0, parallelism=2, name="count").sink(print)
    return topology


WINDOWS = "key long, start double, end double, value long"


@pytest.fixture(scope="module")
def unordered(spark: Any) -> Any:
    return spark.range(600).selectExpr("id % 3 as key", "(id * 7) % 600 as at").repartition(5)


@pytest.mark.parametrize("options", [{}, {"order_by": "at"}])
def test_windows_in_event_time_see_history_in_order(unordered: Any, options: Any) -> None:
    rows = windows().transform(unordered, WINDOWS, workers=2, **options).collect()
    assert sum(row["value"] for row in rows) == 600  # none was late


def test_event_time_of_which_the_column_is_unknown_is_refused(unordered: Any) -> None:
    squared = windows(lambda row: row["at"] ** 2)
    with pytest.raises(tr.TopologyError, match=r"more than read a column. Say transform.*order_by"):
        squared.transform(unordered, WINDOWS, workers=2)


def test_late_rows_are_told_in_the_drivers_log(
    unordered: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rows = windows().transform(unordered, WINDOWS, workers=2, order_by=[]).collect()
    late = 600 - sum(row["value"] for row in rows)
    assert late > 0
    told: list[Any] = [one.args for one in caplog.records if one.name == "tailrace.transform"]
    assert {name for _, name in told} == {"count"}
    assert sum(count for count, _ in told) == late


class Pair(NamedTuple):
    a: int
    b: str


def test_rows_become_records_as_the_function_says(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([Pair(0, "")]).map(lambda pair: pair.b * pair.a).sink(print)
    df = spark.createDataFrame([(3, "x"), (2, "y")], "a int, b string")
    result = topology.transform(df, "text string", workers=1, record=lambda row: Pair(**row))
    assert sorted(row["text"] for row in result.collect()) == ["xxx", "yy"]


def test_times_and_decimals_come_back_as_they_went_in(spark: Any) -> None:
    df = spark.sql("select timestamp'2024-03-01 12:00:00' as at, 1.25bd as price, map('k', 1) as m")
    topology = tr.Topology()
    topology.source([0]).map(lambda row: row).sink(print)
    assert topology.transform(df, df.schema, workers=1).collect() == df.collect()


def test_a_result_that_is_no_row_fails_with_record_and_schema(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([0]).map(lambda n: (1, "y") if n != 3 else ("x", "y")).sink(print)
    message = "'sink' failed on .'x', 'y'.: .*column 'a' is int32: .*; the columns are a: int32, b"
    with pytest.raises(Exception, match=message):
        topology.transform(spark.range(9), "a int, b string", workers=1).collect()


def test_an_error_in_user_code_fails_the_query_with_operator_record_and_traceback(
    spark: Any,
) -> None:
    def divide(n: int) -> float:
        return 1 / (n - 77)

    topology = tr.Topology()
    topology.source([0]).shuffle().map(divide, name="divide", parallelism=2).sink(print)
    with pytest.raises(Exception, match="'divide' failed on 77") as failure:
        topology.transform(spark.range(100), "x double", workers=2).count()
    assert "ZeroDivisionError" in str(failure.value)
    assert "in divide" in str(failure.value)


def test_a_record_function_that_raises_names_the_row(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([0]).sink(print)
    result = topology.transform(spark.range(3), "x long", workers=1, record=lambda row: row["no"])
    with pytest.raises(Exception, match=r"the record function failed on the row \{'id': 0\}"):
        result.count()


@pytest.mark.parametrize("rank", [0, 1])
def test_after_a_killed_worker_spark_runs_the_stage_again(
    spark: Any, tmp_path: Path, rank: int
) -> None:
    """Also if it was the one with the coordinator, rank 0."""

    def fall_over_once(n: int) -> int:
        mark = tmp_path / "fell"
        if n == 500 and not mark.exists():
            mark.write_text(str(TaskContext.get().partitionId()))
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    topology = tr.Topology()
    stream = topology.source([0])
    first = stream.map(fall_over_once if rank == 0 else lambda n: n)
    second = first.gather().map(fall_over_once if rank == 1 else lambda n: n)
    second.sink(print)
    result = topology.transform(spark.range(1000), "n long", workers=2)
    assert sorted(row["n"] for row in result.collect()) == list(range(1000))
    assert (tmp_path / "fell").read_text() == str(rank)


def test_only_what_leads_to_the_sink_runs(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology()
    stream = topology.source([0], name="in")
    stream.map(lambda n: n + 1).sink(print, name="result")
    stream.sink(tr.sinks.text(tmp_path / "live"), name="live")
    result = topology.transform(spark.range(3), "n long", workers=1, sink="result")
    assert sorted(row["n"] for row in result.collect()) == [1, 2, 3]
    assert not (tmp_path / "live").exists()


def test_other_sources_run_as_they_are(spark: Any) -> None:
    topology = tr.Topology()
    stream = topology.source([0], name="rows").merge(topology.source([100, 101], name="more"))
    stream.gather().map(lambda n: n).sink(print)
    result = topology.transform(spark.range(3), "n long", workers=2, source="rows")
    assert sorted(row["n"] for row in result.collect()) == [0, 1, 2, 100, 101]


def test_input_is_read_and_output_handed_over_as_it_goes(spark: Any, tmp_path: Path) -> None:
    """A worker that gathered all of it would need several times the memory that this one grows."""

    def large(n: int) -> bytes:
        if n % 1000 == 0:
            status = Path("/proc/self/status").read_text()
            used = next(line.split()[1] for line in status.splitlines() if "VmRSS" in line)
            (tmp_path / f"{n}").write_text(used)
        return bytes(20_000)

    topology = tr.Topology()
    topology.source([0]).map(lambda row: row["id"]).map(large).sink(print)
    df = spark.range(20_000).selectExpr("id", "repeat('x', 5000) as text")
    result = topology.transform(df, "data binary", workers=1)
    assert result.selectExpr("sum(length(data)) as s").first()["s"] == 400_000_000
    used_kb = [int(file.read_text()) for file in tmp_path.iterdir()]
    assert max(used_kb) - min(used_kb) < 200_000


def test_the_example_runs_over_its_recorded_past(spark: Any) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "history.py"))
    result = example["topology"].transform(
        example["recorded"](spark),
        "key string, start double, end double, value long",
        order_by="at_s",
    )
    assert {(row["key"], row["value"]) for row in result.collect()} == {
        ("home", 20),
        ("search", 20),
        ("basket", 20),
    }


def test_more_workers_than_slots_are_refused_at_once(spark: Any) -> None:
    with pytest.raises(ValueError, match="9 workers were asked for; this Spark has 4 task slots"):
        word_count().transform(spark.range(1), "word string, count long", workers=9)
