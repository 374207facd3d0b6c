from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row

import tailrace as tr
from tailrace import sinks, sources
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import run
from tests.connectors.reading import begin, read_share, write


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_lines_can_be_seen_while_the_job_runs_and_stay_after_a_failure(tmp_path: Path) -> None:
    sink = sinks.text(tmp_path)
    begin(sink)
    sink.write(iter(["a", 1]))
    sink.tick()
    assert read_share(sources.lines(tmp_path)) == ["a", "1"]
    sink.write(iter(["b"]))
    sink.close()
    assert read_share(sources.lines(tmp_path)) == ["a", "1", "b"]


def test_a_topology_that_never_ends_shows_its_lines(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look(_: int) -> None:
        seen.append(read_share(sources.lines(tmp_path)))

    topology = tr.Topology()
    numbers = topology.source(sources.rate(1))
    numbers.sink(sinks.text(tmp_path))
    numbers.sink(look)
    assert not run(topology, virtual_s=10.5).ended
    assert seen[8][:7] == [str(n) for n in range(7)]


def test_lines_at_no_distance_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every_s is 0"):
        sinks.text(tmp_path, every_s=0)


def test_hidden_names_follow_from_who_writes(tmp_path: Path) -> None:
    left = tmp_path / ".part-00002.txt.4f2a.sink.2.0.tmp"
    left.write_text("by one that was killed")
    sink = sinks.text(tmp_path, every_s=None)
    begin(sink, 2, 3, job="4f2a")
    assert names(tmp_path) == [left.name]
    sink.write(iter("x"))
    sink.finish()
    assert names(tmp_path) == ["part-00002.txt"]
    assert (tmp_path / "part-00002.txt").read_text() == "x\n"


def test_a_file_appears_when_the_input_has_ended_if_asked(tmp_path: Path) -> None:
    sink = sinks.text(tmp_path / "out", every_s=None)
    begin(sink, 2, 3)
    sink.write(iter(["a", 1, None]))
    assert all(name.startswith(".") for name in names(tmp_path / "out"))
    sink.finish()
    sink.close()
    assert names(tmp_path / "out") == ["part-00002.txt"]
    assert (tmp_path / "out" / "part-00002.txt").read_text() == "a\n1\nNone\n"


def test_nothing_is_left_after_a_failure(tmp_path: Path) -> None:
    write(sinks.ndjson(tmp_path, every_s=None), [{"a": 1}] * 100_000, finish=False)
    assert names(tmp_path) == []


def test_ndjson_is_read_back_as_it_was(tmp_path: Path) -> None:
    records: list[Any] = [{"text": "a\nb\u2028", "n": 1.5}, [], None, "x"]
    write(sinks.ndjson(tmp_path), records)
    assert read_share(sources.ndjson(tmp_path)) == records


def test_a_topology_that_fails_leaves_nothing(tmp_path: Path) -> None:
    topology = tr.Topology()
    topology.source([1, 2, 0]).map(lambda n: 1 / n).sink(sinks.text(tmp_path, every_s=None))
    with pytest.raises(OperatorFailed, match="ZeroDivisionError"):
        run(topology)
    assert names(tmp_path) == []


def test_each_instance_of_a_topology_writes_a_file(tmp_path: Path) -> None:
    topology = tr.Topology()
    topology.source(range(100), parallelism=2).shuffle().sink(sinks.ndjson(tmp_path), parallelism=3)
    run(topology, workers=2)
    assert names(tmp_path) == [f"part-0000{index}.ndjson" for index in range(3)]
    assert sorted(read_share(sources.ndjson(tmp_path))) == list(range(100))


def test_a_record_that_cannot_be_a_line_is_skipped_alone(tmp_path: Path) -> None:
    topology = tr.Topology()
    topology.source(["a", "b\nc", "d"]).sink(sinks.text(tmp_path), on_error="skip", name="write")
    assert run(topology).skipped["write"] == 1
    assert read_share(sources.lines(tmp_path)) == ["a", "d"]


def test_a_bad_last_record_does_not_lose_those_before(tmp_path: Path) -> None:
    topology = tr.Topology()
    topology.source([1, 2, object()]).sink(sinks.ndjson(tmp_path), on_error="skip")
    run(topology)
    assert read_share(sources.ndjson(tmp_path)) == [1, 2]


def test_a_file_that_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    write(sinks.text(tmp_path), ["old"])
    with pytest.raises(FileExistsError, match=r"part-00000.txt' is there already; .*overwrite"):
        write(sinks.text(tmp_path), ["new"])
    write(sinks.text(tmp_path, every_s=None, overwrite=True), ["failed"], finish=False)
    assert read_share(sources.lines(tmp_path)) == ["old"]
    write(sinks.text(tmp_path, overwrite=True), ["new"])
    assert read_share(sources.lines(tmp_path)) == ["new"]
    assert names(tmp_path) == ["part-00000.txt"]


def test_of_two_writers_at_once_the_second_fails_and_leaves_nothing(tmp_path: Path) -> None:
    first, second = (sinks.text(tmp_path, every_s=None) for _ in range(2))
    begin(first, job="one")
    begin(second, job="two")
    first.finish()
    with pytest.raises(FileExistsError):
        second.finish()
    first.close()
    second.close()
    assert names(tmp_path) == ["part-00000.txt"]


class Visit(NamedTuple):
    user: str
    seconds: int


@dataclass
class Stay:
    user: str
    seconds: int


def test_ndjson_has_names_where_records_have_them(tmp_path: Path) -> None:
    records = [Visit("a", 1), Stay("a", 1), Row(user="a", seconds=1), {"user": "a", "seconds": 1}]
    write(sinks.ndjson(tmp_path), [*records, ("a", 1)])
    assert read_share(sources.ndjson(tmp_path)) == [{"user": "a", "seconds": 1}] * 4 + [["a", 1]]
