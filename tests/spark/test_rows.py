"""Records as rows: by name, by position, by value; and what is said of those that are none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row

import tailrace as tr
from tailrace import sinks
from tailrace.runtime.rows import records_of, to_batch
from tailrace.spark.partition import INSTANCE, Partition, Results
from tailrace.testing import collect, run
from tests.connectors.reading import serve, write

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string())])


class Pair(NamedTuple):
    b: str
    a: int


@dataclass
class Data:
    b: str
    a: int


class Struct(msgspec.Struct):
    b: str
    a: int


@pytest.mark.parametrize(
    "record",
    [
        {"b": "x", "a": 1},
        Pair("x", 1),
        Data("x", 1),
        Struct("x", 1),
        (1, "x"),
        [1, "x"],
        Row(b="x", a=1),
    ],
)
def test_all_take_the_same_rows_by_name_or_by_position(record: Any, tmp_path: Path) -> None:
    assert to_batch([record], SCHEMA).to_pylist() == [{"a": 1, "b": "x"}]
    sink = sinks.parquet(tmp_path, SCHEMA)
    write(sink, [record, (2, "y"), record])
    assert pq.read_table(tmp_path).to_pylist()[::2] == [{"a": 1, "b": "x"}] * 2
    topology = tr.Topology()
    results = collect(topology.source([record]).map_arrow(lambda batch: batch, schema=SCHEMA))
    run(topology)
    assert to_batch(results, SCHEMA).to_pylist() == [{"a": 1, "b": "x"}]


def test_what_is_missing_is_null_if_it_may_be() -> None:
    assert to_batch([{"a": 1}, {}], SCHEMA).to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": None},
    ]
    strict = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
    with pytest.raises(ValueError, match="a row has None for 'b', which must have a value"):
        to_batch([{"a": 1}], strict)


def test_a_single_column_takes_rows_and_values() -> None:
    number = pa.schema([("n", pa.int64())])
    assert to_batch([1, {"n": 2}, (3,), {}], number).to_pydict() == {"n": [1, 2, 3, None]}
    struct = pa.schema([("s", pa.struct([("s", pa.int64())]))])
    assert to_batch([{"s": 1}], struct).to_pylist() == [{"s": {"s": 1}}]
    with pytest.raises(ValueError, match=r"a row has \['m'\], which are no columns"):
        to_batch([{"m": 2}], number)


@pytest.mark.parametrize("record", [7, None])
def test_with_one_column_a_record_is_its_value(record: Any) -> None:
    assert to_batch([record], pa.schema([("n", pa.int64())])).to_pylist() == [{"n": record}]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((1,), r"has 1 values, \(1,\), not 2; the columns are a: int32, b: string"),
        ({"a": 1, "b": "x", "c": 2}, r"has \['c'\], which are no columns: .*; the columns are a:"),
        (7, "a int is no row, it has no columns: 7"),
        (("x", "y"), "column 'a' is int32: .*; the columns are a: int32, b: string"),
        ((1 << 40, "y"), "column 'a' is int32: .*; the columns are a: int32, b: string"),
        ((1.7, "y"), "column 'a' is int32; a value is a float; the columns are"),
    ],
)
def test_what_is_no_row_is_told_with_the_columns(record: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_batch([record], SCHEMA)


def test_none_is_refused_where_the_schema_says_so() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(ValueError, match="None for 'n'"):
        to_batch([None], schema)


@pytest.mark.parametrize("others", [{}, {"n": 1}])
def test_a_map_is_a_dict_if_python_takes_its_keys(others: dict[str, Any]) -> None:
    schema = pa.schema(
        [("m", pa.map_(pa.string(), pa.int32())), *((n, pa.int64()) for n in others)]
    )
    rows = [{"m": {"a": 1, "b": 2}} | others, {"m": None} | others]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    assert records_of(batch) == (rows if others else [row["m"] for row in rows])
    assert records_of(batch, lambda row: row["m"]) == [row["m"] for row in rows]
    lists = pa.array([[([1], 2)]], pa.map_(pa.list_(pa.int32()), pa.int32()))
    assert records_of(pa.RecordBatch.from_arrays([lists], ["m"])) == [[([1], 2)]]


def batches(rows: int, instances: int, size: int = 10) -> list[pa.RecordBatch]:
    table = pa.table({"n": range(rows), INSTANCE: [n % instances for n in range(rows)]})
    return list(table.to_batches(max_chunksize=size))


def test_each_instance_gets_its_rows_in_order_and_then_the_end() -> None:
    partition = Partition(iter(batches(100, 3)), range(3), None)
    partition.prepare()
    for index in (2, 0, 1):
        found: list[int] = []
        while (records := partition.take(index, 7)) is not None:
            found += records
        assert found == list(range(index, 100, 3))


def test_rows_are_read_only_as_they_are_polled() -> None:
    unread = iter(batches(100, 1))
    partition = Partition(unread, [0], None)
    assert partition.take(0, 5) == [0, 1, 2, 3, 4]
    assert len(list(unread)) == 9


def test_rows_that_wait_for_a_slow_instance_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.spark.partition._AHEAD_ROWS", 20)
    unread = iter(batches(1000, 2))
    partition = Partition(unread, range(2), None)
    while partition.take(0, 100):
        pass
    assert partition.take(0, 100) == []  # instance 1 has its turn now
    assert partition.take(1, 100) == list(range(1, 50, 2))[:20]
    assert partition.take(0, 100)


def test_an_instance_that_waits_for_a_slow_one_does_not_ask_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.spark.partition._AHEAD_ROWS", 20)
    partition = Partition(iter(batches(1000, 2)), range(2), None)
    fast, slow = (serve(partition, index, 2, lambda: 5) for index in range(2))
    assert fast.due_ns() == 0
    while fast.poll(100):
        assert fast.due_ns() == 0
    assert fast.due_ns() == 100_005
    assert slow.poll(100)
    assert fast.poll(100)
    assert fast.due_ns() == 0


def test_rows_for_an_instance_that_is_elsewhere_are_an_error() -> None:
    partition = Partition(iter(batches(10, 2)), [0], None)
    with pytest.raises(RuntimeError, match="rows of instance 1 of the source came to a worker"):
        partition.take(0, 5)


def test_results_come_in_batches_of_bounded_size() -> None:
    results = Results(pa.schema([("n", pa.int64())]))
    for start in range(0, 20_000, 100):
        results.add(to_batch(list(range(start, start + 100)), results.schema))
    assert results.plenty
    taken = results.take()
    assert [batch.num_rows for batch in taken] == [8192, 8192, 3616]
    assert results.take() == []


def test_a_few_large_rows_are_plenty_too() -> None:
    results = Results(pa.schema([("data", pa.binary())]))
    results.add(to_batch([bytes(5 << 20)], results.schema))
    assert results.plenty
