"""Tables of keys by Spark: exact counts, only the heaviest collected, and jobs that use them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.routing.forecast import forecast
from tailrace.routing.homes import Home, side_by_side
from tailrace.routing.tables import Table
from tailrace.spark.key_tables import exact_pairs, key_tables

ROWS = [(f"r{i % 12}", i % 12 * 5 + i // 12 % 5 if i % 5 else i * 31 % 60) for i in range(6000)]


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, "region string, tag long").repartition(3).cache()


def test_pairs_are_counted_exactly(rows: Any) -> None:
    counts = exact_pairs(rows, ("region", "tag"), {"tag": "hashtag"})
    assert (counts.source, counts.target) == ("region", "hashtag")
    assert counts.counts == Counter(ROWS)
    assert (counts.total, counts.floor) == (6000, 0)


def test_of_many_pairs_only_the_heaviest_are_collected(rows: Any) -> None:
    counts = exact_pairs(rows, ("region", "tag"), heaviest=20)
    true = Counter(ROWS)
    assert len(counts.counts) == 20
    assert counts.total == 6000
    assert all(true[pair] == count for pair, count in counts.counts.items())
    assert max(n for pair, n in true.items() if pair not in counts.counts) == counts.floor


def test_tables_keep_together_what_meets(rows: Any, tmp_path: Path) -> None:
    tables = key_tables(rows, [("region", "tag")], parts=3)
    homes = side_by_side(["region", "tag"], 3)
    pairs = [exact_pairs(rows, ("region", "tag"))]
    told = forecast(pairs, {name: tables[name].routes() for name in tables}, homes)
    assert told.local > 0.75 > 0.5 > forecast(pairs, {}, homes).local
    assert told.worst_imbalance < 1.031
    tables.save(tmp_path / "tables.parquet")
    assert tr.Tables.load(tmp_path / "tables.parquet") == tables


def test_instances_may_run_where_they_like(rows: Any) -> None:
    homes = {"a": [Home(0, 0), Home(1, 1)], "b": [Home(0, 0), Home(1, 1), Home(1, 1)]}
    names = {"region": "a", "tag": "b"}
    tables = key_tables(rows, [("region", "tag")], homes, operators=names)
    assert (tables["a"].parallelism, tables["b"].parallelism) == (2, 3)


def test_columns_and_operators_that_are_not_there_are_named(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"no column 'tags'; there are \['region', 'tag'\]"):
        key_tables(rows, [("region", "tags")], 2)
    with pytest.raises(ValueError, match="not said where 'tag' runs"):
        key_tables(rows, [("region", "tag")], {"region": [Home(0, 0)]})
    with pytest.raises(ValueError, match="no pairs of columns"):
        key_tables(rows, [], 2)


class Echo(tr.Operator):
    def process(self, record: Any) -> None:
        self.emit(record)


def two_steps() -> tr.Topology:
    topology = tr.Topology()
    first = topology.source(ROWS).key_by(lambda row: row[0])
    second = first.process(Echo(), name="region", parallelism=2).key_by(lambda row: row[1])
    second.process(Echo(), name="tag", parallelism=2).sink(lambda row: None)
    return topology


def stayed(job: tr.Job) -> float:
    links = [link for link in job.traffic().links if link.stream == "region -> tag"]
    assert sum(link.records for link in links) == len(ROWS)
    local = sum(link.records for link in links if link.sender_worker == link.receiver_worker)
    return local / len(ROWS)


def test_a_job_goes_by_its_tables_and_counts_what_makes_others(spark: Any, rows: Any) -> None:
    tables = key_tables(rows, [("region", "tag")], parts=2)
    placement = (0, 0, 1, 0, 1)  # the source, then regions and tags side by side
    job = two_steps().start(spark, placement=placement, tables=tables, count_pairs=True)
    job.await_termination()
    pairs = [exact_pairs(rows, ("region", "tag"))]
    told = forecast(
        pairs,
        {name: tables[name].routes() for name in tables},
        side_by_side(["region", "tag"], 2),
    )
    assert stayed(job) == pytest.approx(told.local)
    (counted,) = job.key_pairs()
    assert (counted.source, counted.target) == ("region", "tag")
    assert set(counted.counts) <= set(ROWS)
    assert counted.total == pytest.approx(len(ROWS), rel=0.1)
    again = job.key_tables()
    assert {again[name].parallelism for name in again} == {2}


def test_tables_that_do_not_fit_are_refused_before_anything_starts(spark: Any) -> None:
    with pytest.raises(ValueError, match="'region' is for 3 instances; there are 2"):
        two_steps().start(spark, tables=tr.Tables({"region": Table(3)}))
