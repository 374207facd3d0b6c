"""Sinks of users under checkpoints: the example, and functions that get ids."""

from __future__ import annotations

import pickle
import runpy
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace import sinks
from tailrace.connectors.memory import CallWithId, RecordId
from tailrace.runtime.sink import Sink
from tailrace.testing import run
from tests.connectors.epochs import chances, in_child, kill, live, step_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "exactly_once_sink.py"


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute("select * from results"))


def test_the_example_is_exactly_once_whenever_it_is_killed(tmp_path: Path) -> None:
    into_sqlite = runpy.run_path(str(EXAMPLE))["IntoSqlite"]
    records = [(f"word {n}", n) for n in range(20)]
    statuses = []
    for seed in range(15):
        path, chance = tmp_path / f"{seed}.db", chances(seed)

        class Dying(into_sqlite):  # type: ignore[misc, valid-type]
            left = chance.randint(1, 25)

            def run(self, *statements: Any) -> None:
                """One call is all or nothing: it dies before one or behind it."""
                for do in (lambda: super(Dying, self).run(*statements), lambda: None):
                    Dying.left -= 1
                    if Dying.left == 0:
                        kill()
                    do()

        def once(path: Path = path, dying: Any = Dying) -> None:
            live(lambda: dying(path), records, path.with_suffix(".manifest"))

        statuses.append(in_child(once))
        live(lambda: into_sqlite(path), records, path.with_suffix(".manifest"))  # noqa: B023
        assert rows(path) == sorted(records)
    assert set(statuses) <= {0, 9}
    assert statuses.count(9) > 5


def test_a_function_gets_ids_that_count_the_records_of_its_instance() -> None:
    seen: list[RecordId] = []
    topology = tr.Topology()
    numbers = topology.source(range(5))
    numbers.sink(sinks.call(lambda record, id: seen.append(id), with_id=True), name="see")
    run(topology)
    assert seen == [RecordId("see", 0, None, number) for number in range(5)]


def numbered(seen: list[tuple[str, RecordId]]) -> CallWithId:
    return sinks.call(lambda record, id: seen.append((record, id)), with_id=True)


def test_a_record_that_comes_again_has_its_number_again() -> None:
    seen: list[tuple[str, RecordId]] = []
    step = step_of(numbered(seen), 0)
    step.process(iter("ab"), 0)
    step.cut(1)
    shared = pickle.loads(pickle.dumps(step.shared()))
    step.committed(1)
    step.process(iter("cd"), 0)
    step.cut(2)
    step.process(iter("e"), 0)
    step.roll_back(1)
    step.process(iter("cde"), 0)
    elsewhere = step_of(numbered(seen), 1)
    elsewhere.put_shared(shared)
    elsewhere.process(iter("cde"), 0)
    elsewhere.roll_back(1)
    elsewhere.process(iter("cde"), 0)
    assert {record for record, _ in seen} == set("abcde")
    assert {(record, id.number) for record, id in seen} == set(zip("abcde", range(5), strict=True))
    assert {(record, id.epoch) for record, id in seen} == {
        *(("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 3)),
        ("e", 2),
    }


def test_several_instances_that_become_one_give_no_number_twice() -> None:
    seen: list[tuple[str, RecordId]] = []
    step = step_of(numbered(seen), 7)
    for counted in (5, 9, 2):
        step.put_shared((8, counted))
    step.process(iter("a"), 0)
    assert seen == [("a", RecordId("sink", 0, 8, 9))]


def test_a_record_that_raises_has_its_number_all_the_same() -> None:
    seen: list[int] = []

    def see(record: int, id: RecordId) -> None:
        if record == 1:
            raise ValueError(record)
        seen.append(id.number)

    topology = tr.Topology()
    topology.source(range(3)).sink(sinks.call(see, with_id=True), on_error="skip")
    run(topology)
    assert seen == [0, 2]


@pytest.mark.parametrize(
    ("sink", "guarantee"),
    [
        (sinks.text("x"), "exactly once"),
        (sinks.ndjson("x"), "exactly once"),
        (sinks.parquet("x"), "exactly once"),
        (sinks.console(), "at least once"),
        (sinks.socket("x", 1), "at least once"),
        (sinks.call(print), "at least once"),
        (sinks.call(print, with_id=True), "at least once"),
        (Sink(), "at least once"),
    ],
)
def test_sinks_say_what_they_guarantee(sink: Sink, guarantee: str) -> None:
    assert sink.guarantee == guarantee


def test_sinks_that_know_no_epochs_have_nothing_to_commit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    step = step_of(sinks.console(), 0)
    step.process(iter("a"), 0)
    assert capsys.readouterr().out == "a\n"
    assert step.cut(1) is None
    assert step.shared() is None
    step.committed(1)
    step.roll_back(1)
    step.process(iter("a"), 0)
    step.finish()
    step.close()
    assert capsys.readouterr().out == "a\n"
