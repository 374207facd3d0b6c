import subprocess
import sys
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Topology
from tailrace.graph.validate import TopologyError
from tailrace.runtime.core import Limits
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.float64())])


class Point(NamedTuple):
    x: int
    y: float


def doubled(batch: Any) -> Any:
    return batch.set_column(0, "x", pc.multiply(batch.column("x"), 2))


def inverted(batch: Any) -> Any:
    return batch.set_column(1, "y", pc.divide(100, batch.column("x")))


@given(
    st.lists(st.tuples(st.integers(-1000, 1000), st.floats(allow_nan=False) | st.none())),
    st.integers(1, 3),
    st.integers(1, 20),
)
def test_tuples_with_a_schema_come_out_as_tuples(
    points: list[tuple[int, float | None]], workers: int, poll_records: int
) -> None:
    topology = Topology()
    stream = topology.source(points).shuffle().map_arrow(doubled, schema=SCHEMA, parallelism=2)
    results = collect(stream)
    run(topology, workers=workers, limits=Limits(poll_records=poll_records))
    assert sorted(results, key=repr) == sorted(((2 * x, y) for x, y in points), key=repr)


def test_dicts_come_out_as_dicts() -> None:
    topology = Topology()
    results = collect(topology.source([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]).map_arrow(doubled))
    run(topology)
    assert results == [{"x": 2, "y": "a"}, {"x": 4, "y": "b"}]


@pytest.mark.parametrize("record", [(1.7, 2.0), Point(1.7, 2.0), {"x": 1.7, "y": 2.0}])  # type: ignore[arg-type]
def test_a_schema_of_integers_takes_no_floats(record: Any) -> None:
    topology = Topology()
    topology.source([record]).map_arrow(doubled, schema=SCHEMA).sink(lambda _: None)
    with pytest.raises(OperatorFailed, match="column 'x' is int64; a value is a float"):
        run(topology)


def test_named_tuples_keep_their_class_while_the_columns_are_its_fields() -> None:
    topology = Topology()
    points = topology.source([Point(1, 0.5), Point(2, 1.5)])
    same = collect(points.map_arrow(doubled))
    fewer = collect(points.map_arrow(lambda batch: batch.select(["y"])))
    run(topology)
    assert same == [Point(2, 0.5), Point(4, 1.5)]
    assert {type(one) for one in same} == {Point}
    assert fewer == [(0.5,), (1.5,)]
    assert {type(one) for one in fewer} == {tuple}


def test_rows_may_be_left_out_and_tables_given() -> None:
    def large(batch: Any) -> Any:
        return pa.Table.from_batches([batch]).filter(pc.greater(batch.column("x"), 7))

    topology = Topology()
    results = collect(topology.source([{"x": n} for n in range(10)]).map_arrow(large))
    none = collect(topology.source([{"x": 1}], name="other").map_arrow(large))
    run(topology)
    assert results == [{"x": 8}, {"x": 9}]
    assert none == []


def test_a_record_at_fault_fails_the_job_by_name() -> None:
    topology = Topology()
    collect(topology.source([Point(1, 0), Point(0, 1), Point(2, 2)]).map_arrow(inverted))
    with pytest.raises(OperatorFailed, match=r"'map_arrow' failed on Point\(x=0, y=1\)"):
        run(topology)


def test_only_the_records_at_fault_are_skipped() -> None:
    records: list[Any] = [Point(n % 10, 0.0) for n in range(100)]
    topology = Topology()
    stream = topology.source(records).map_arrow(inverted, on_error="dead letter")
    results, dead = collect(stream), collect(stream.dead_letters())
    report = run(topology)
    assert [one.x for one in results] == [n % 10 for n in range(100) if n % 10]
    assert [record for record, _ in dead] == [Point(0, 0.0)] * 10
    assert report.skipped["map_arrow"] == 10


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        (5, {}, "got a int; records must be dicts, dataclasses, NamedTuples"),
        ((1, 2.0), {}, "got a plain tuple; give it a schema"),
        (
            (1,),
            {"schema": SCHEMA},
            r"has 1 values, \(1,\), not 2; the columns are x: int64",
        ),
        ((1, "a"), {"schema": SCHEMA}, "failed on .*'a'"),
        ({"x": 1}, {"function": lambda batch: 5}, "gave a int; it must give a pyarrow.RecordBatch"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_so(
    record: Any, options: dict[str, Any], message: str
) -> None:
    topology = Topology()
    collect(topology.source([record]).map_arrow(**{"function": doubled, **options}))
    with pytest.raises(OperatorFailed, match=message):
        run(topology)


def test_a_schema_that_is_none_is_refused_when_the_topology_is_built() -> None:
    with pytest.raises(TopologyError, match=r"schema of map_arrow is \['x'\]"):
        Topology().source([1]).map_arrow(doubled, schema=["x"])


def test_arrow_is_imported_only_when_it_is_used() -> None:
    code = "import sys, tailrace.runtime.arrow; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
