from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace as tr
from tailrace import sinks
from tailrace._arguments import OnErrorName
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run
from tests.connectors.reading import begin, write

SCHEMA = {"word": pa.string(), "count": pa.int64()}


def rows_of(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(directory).to_pylist()
    return rows


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_rows_are_dicts_or_tuples(tmp_path: Path) -> None:
    pair = namedtuple("pair", "count word")
    write(
        sinks.parquet(tmp_path, SCHEMA),
        [{"word": "a", "count": 1}, ("b", 2), pair(3, "c"), {"word": "d"}],
    )
    assert [tuple(row.values()) for row in rows_of(tmp_path)] == [
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("d", None),
    ]


def test_the_file_appears_when_the_input_has_ended(tmp_path: Path) -> None:
    sink = sinks.parquet(tmp_path, SCHEMA)
    begin(sink, 1, 2)
    sink.write(iter([("a", 1)]))
    assert all(name.startswith(".") for name in names(tmp_path))
    sink.finish()
    sink.close()
    assert names(tmp_path) == ["part-00001.parquet"]


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_nothing_is_left_after_a_failure(tmp_path: Path, schema: Any) -> None:
    write(sinks.parquet(tmp_path, schema, group_rows=100), [("a", 1)] * 5000, finish=False)
    assert names(tmp_path) == []


def test_row_groups_are_bounded_by_rows_and_by_bytes(tmp_path: Path) -> None:
    def groups(directory: Path) -> list[int]:
        file = pq.ParquetFile(directory / "part-00000.parquet")
        return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    sink = sinks.parquet(tmp_path / "rows", SCHEMA, group_rows=1000)
    begin(sink, 0, 1)
    for number in range(2500):
        sink.write(iter([("a", number)]))
    sink.finish()
    assert groups(tmp_path / "rows") == [1000, 1000, 500]
    assert [row["count"] for row in rows_of(tmp_path / "rows")] == list(range(2500))
    write(sinks.parquet(tmp_path / "bytes", SCHEMA, group_bytes=1), [("a", 1)] * 5000)
    assert groups(tmp_path / "bytes") == [4096, 904]


def test_the_first_rows_give_the_schema(tmp_path: Path) -> None:
    rows = [{"a": None, "b": 1, "c": None}, {"a": "x", "d": [1.5]}] * 2000
    write(sinks.parquet(tmp_path), rows)
    schema = pq.read_schema(tmp_path / "part-00000.parquet")
    assert {field.name: str(field.type).replace("element", "item") for field in schema} == {
        "a": "string",
        "b": "int64",
        "c": "string",
        "d": "list<item: double>",
    }
    assert len(rows_of(tmp_path)) == 4000


def test_tuples_without_a_schema_have_columns_by_number(tmp_path: Path) -> None:
    write(sinks.parquet(tmp_path), [("a", 1), ("b", 2)])
    assert rows_of(tmp_path) == [{"_1": "a", "_2": 1}, {"_1": "b", "_2": 2}]


def test_no_rows_make_an_empty_file_if_the_schema_is_known(tmp_path: Path) -> None:
    write(sinks.parquet(tmp_path / "known", SCHEMA), [])
    assert rows_of(tmp_path / "known") == []
    write(sinks.parquet(tmp_path / "unknown"), [])
    assert names(tmp_path / "unknown") == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "one"), r"column 'count' is int64: .*'one'"),
        (("a", 1.5), r"column 'count' is int64; a value is a float"),
        (("a", 1 << 70), r"column 'count' is int64: "),
        (("a",), r"a row has 1 values, .*, not 2; the columns are word: string, count: int64"),
        ({"word": "a", "color": "red"}, r"has \['color'\], which are no columns"),
        ("a", r"a str is no row, it has no columns: 'a'"),
    ],
)
def test_a_row_that_does_not_fit_fails_alone_and_by_name(
    tmp_path: Path, row: Any, message: str
) -> None:
    def topology(on_error: OnErrorName) -> tr.Topology:
        made = tr.Topology()
        rows = made.source([("a", 1), row, ("b", 2), row])
        rows.sink(sinks.parquet(tmp_path, SCHEMA), name="write", on_error=on_error)
        return made

    with pytest.raises(OperatorFailed, match=message) as failure:
        run(topology("fail"))
    assert failure.value.record == repr(row)
    assert names(tmp_path) == []
    assert run(topology("skip")).skipped["write"] == 2
    assert [row["count"] for row in rows_of(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"a": "x"}, r"does not go with the \d+ before it: .*int64 vs string"),
        ({"a": 1 << 70}, r"does not go with the \d+ before it: "),
        ({"a": object()}, r"does not go with the \d+ before it: "),
        ("a", "a row is a dict, dataclass, .*; this is a str: 'a'"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"every_rows": 4}, {"every_s": 0.5}])
def test_without_a_schema_only_the_row_that_does_not_go_with_the_others_fails(
    tmp_path: Path, options: dict[str, Any], bad: Any, message: str
) -> None:
    rows: list[Any] = [{"a": n} for n in range(14)]
    rows.insert(2, bad)

    def topology(on_error: OnErrorName) -> tr.Topology:
        made = tr.Topology()
        source = made.source(tr.sources.rate(10.0, rows.__getitem__, count=len(rows)))
        source.sink(sinks.parquet(tmp_path, **options), name="write", on_error=on_error)
        return made

    with pytest.raises(OperatorFailed, match=message) as failure:
        run(topology("fail"))
    assert failure.value.record == repr(bad)
    assert names(tmp_path) == []
    assert run(topology("skip")).skipped["write"] == 1
    assert sorted(row["a"] for row in rows_of(tmp_path)) == list(range(14))


def test_without_a_schema_a_type_grows_with_the_first_rows(tmp_path: Path) -> None:
    write(sinks.parquet(tmp_path), [{"a": 1}, {"a": 1.5}, {"a": None}, {"b": [1]}, {"b": [0.5]}])
    assert [row["a"] for row in rows_of(tmp_path)] == [1.0, 1.5, None, None, None]
    assert [row["b"] for row in rows_of(tmp_path)] == [None, None, None, [1.0], [0.5]]


def test_each_instance_of_a_topology_writes_a_file(tmp_path: Path) -> None:
    topology = tr.Topology()
    numbers = topology.source(range(1000)).map(lambda n: {"n": n})
    numbers.shuffle().sink(sinks.parquet(tmp_path), parallelism=2)
    seen = collect(numbers)
    run(topology)
    assert names(tmp_path) == ["part-00000.parquet", "part-00001.parquet"]
    assert sorted(row["n"] for row in rows_of(tmp_path)) == [row["n"] for row in seen]


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_files_appear_whole_when_they_have_their_rows(tmp_path: Path, schema: Any) -> None:
    sink = sinks.parquet(tmp_path, schema, every_rows=100)
    begin(sink, 3, 4)
    for number in range(250):
        sink.write(iter([("a", number)]))
        shown = [name for name in names(tmp_path) if not name.startswith(".")]
        assert sum(pq.read_metadata(tmp_path / name).num_rows for name in shown) == (
            (number + 1) // 100 * 100
        )
    sink.finish()
    sink.close()
    assert [list(row.values())[1] for row in rows_of(tmp_path)] == list(range(250))
    assert len(names(tmp_path)) == 3
    assert all(name.startswith("part-00003-") for name in names(tmp_path))


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_a_tick_shows_what_has_come_and_nothing_if_nothing_has(tmp_path: Path, schema: Any) -> None:
    sink = sinks.parquet(tmp_path, schema, every_s=1)
    begin(sink, 0, 1)
    sink.tick()
    assert names(tmp_path) == []
    sink.write(iter([("a", 1)]))
    sink.tick()
    sink.tick()
    assert [tuple(row.values()) for row in rows_of(tmp_path)] == [("a", 1)]
    assert len(names(tmp_path)) == 1
    sink.write(iter([("b", 2)]))
    sink.close()  # without `finish`: the job has failed
    assert [tuple(row.values()) for row in rows_of(tmp_path)] == [("a", 1)]
    assert len(names(tmp_path)) == 1


def test_rows_that_wait_appear_in_time_though_no_more_come(tmp_path: Path) -> None:
    topology = tr.Topology()
    seen: list[int] = []
    numbers = topology.source(tr.sources.bursts(3, 10.0, lambda i: {"n": i}, count=9))
    numbers.sink(sinks.parquet(tmp_path, every_s=2.0))
    looks = topology.source(tr.sources.rate(1.0, lambda i: i, count=16))
    looks.sink(lambda _: seen.append(len(rows_of(tmp_path)) if names(tmp_path) else 0))
    run(topology)
    assert seen == [0] * 2 + [3] * 10 + [6] * 4
    assert len(rows_of(tmp_path)) == 9


def test_a_second_run_adds_its_files(tmp_path: Path) -> None:
    for number in range(2):
        write(sinks.parquet(tmp_path, SCHEMA, every_rows=1), [("a", number)], job=f"job{number}")
    assert sorted(row["count"] for row in rows_of(tmp_path)) == [0, 1]


@pytest.mark.parametrize("option", ["every_s", "every_rows"])
def test_files_at_no_distance_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is 0"):
        sinks.parquet("out", **{option: 0})  # type: ignore[arg-type]


def test_groups_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="group_rows is 0"):
        sinks.parquet("out", group_rows=0)
