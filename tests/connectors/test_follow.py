from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace import sources
from tailrace.connectors.framing import LineError
from tailrace.runtime.source import Source
from tailrace.testing import VirtualClock
from tests.connectors.reading import serve


class Follower:
    """A reader and the time it lives in."""

    def __init__(self, source: Source, index: int, parallelism: int, position: Any) -> None:
        self.clock = VirtualClock()
        self.reader = serve(source, index, parallelism, self.clock, position)

    def look(self, seconds: float = 1.0) -> list[str]:
        """What comes within that time."""
        until_ns = self.clock.now_ns + round(seconds * 1e9)
        records = []
        while self.clock.now_ns < until_ns:
            some = self.reader.poll(3)
            assert some is not None, "a followed file has no end"
            records += some
            if not some:
                due_ns = self.reader.due_ns()
                assert due_ns is not None
                assert due_ns > self.clock.now_ns
                self.clock.now_ns = due_ns
        return records


@contextmanager
def following(
    path: Path | str, index: int = 0, parallelism: int = 1, position: Any = None, **options: Any
) -> Iterator[Follower]:
    source = sources.lines(path, follow=True, **options)
    follower = Follower(source, index, parallelism, position)
    try:
        yield follower
    finally:
        follower.reader.close()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_growth_is_seen_and_partial_lines_wait_for_their_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "one\ntwo\nthr")
    with following(path) as follower:
        assert follower.look() == ["one", "two"]
        assert follower.look() == []
        append(path, "ee\nfour\n")
        assert follower.look() == ["three", "four"]


def test_more_lines_than_one_poll_takes_come_without_waiting(tmp_path: Path) -> None:
    append(tmp_path / "log", "line\n" * 10)
    with following(tmp_path / "log") as follower:
        assert len(follower.look(seconds=1e-9)) == 10


def test_it_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    with following(tmp_path / "log") as follower:
        assert follower.look() == []
        append(tmp_path / "log", "one\n")
        assert follower.look() == ["one"]


def test_from_the_end_only_what_is_new_counts(tmp_path: Path) -> None:
    for name, text in (("a", "old\n"), ("b", "old\nhalf"), ("c", "")):
        append(tmp_path / name, text)
    with following(tmp_path, from_end=True) as follower:
        assert follower.look() == []
        for name in "abc":
            append(tmp_path / name, f" of {name}\nnew in {name}\n")
        append(tmp_path / "d", "new file\n")
        expected = [" of a", "new in a", "new in b", " of c", "new in c", "new file"]
        assert sorted(follower.look()) == sorted(expected)


def test_a_cut_file_is_read_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "one\ntwo\nhalf a li")
    with following(path) as follower:
        assert follower.look() == ["one", "two"]
        path.write_text("")
        assert follower.look() == []
        append(path, "three\n")
        assert follower.look() == ["three"]


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "one\n")
    with following(path) as follower:
        assert follower.look() == ["one"]
        append(path, "two\n")
        path.rename(tmp_path / "log.1")
        append(path, "four\n")
        append(tmp_path / "log.1", "three")
        assert follower.look() == ["two", "three", "four"]


def test_a_deleted_file_may_come_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "one\n")
    with following(path) as follower:
        assert follower.look() == ["one"]
        path.unlink()
        assert follower.look() == []
        append(path, "two\n")
        assert follower.look() == ["two"]


def test_new_files_of_a_directory_are_found(tmp_path: Path) -> None:
    append(tmp_path / "a", "a1\n")
    with following(tmp_path) as follower:
        assert follower.look() == ["a1"]
        append(tmp_path / "b", "b1\n")
        append(tmp_path / ".hidden", "no\n")
        append(tmp_path / "a", "a2\n")
        assert sorted(follower.look()) == ["a2", "b1"]


def test_a_busy_file_does_not_keep_others_waiting(tmp_path: Path) -> None:
    append(tmp_path / "busy", "busy\n" * 100)
    append(tmp_path / "quiet", "quiet\n")
    with following(tmp_path) as follower:
        first = [record for _ in range(2) for record in follower.reader.poll(3) or []]
        assert "quiet" in first


def test_instances_share_the_files(tmp_path: Path) -> None:
    for number in range(20):
        append(tmp_path / str(number), f"{number}\n")
    seen = []
    for index in range(3):
        with following(tmp_path, index, 3) as follower:
            share = follower.look()
            assert share
            seen += share
    assert sorted(seen, key=int) == [str(number) for number in range(20)]


def test_a_position_goes_on_where_it_was(tmp_path: Path) -> None:
    append(tmp_path / "a", "a1\na2\na3\na4\n")
    append(tmp_path / "rotated", "r1\n")
    with following(tmp_path) as follower:
        before = [record for _ in range(2) for record in follower.reader.poll(3) or []]
        assert before == ["a1", "a2", "a3", "r1"]
        position = follower.reader.positions()
    (tmp_path / "rotated").rename(tmp_path / ".rotated")
    append(tmp_path / "rotated", "r2\n")
    append(tmp_path / "a", "a5\n")
    with following(tmp_path, position=position, from_end=True) as follower:
        assert sorted(follower.look()) == ["a4", "a5", "r2"]


def test_a_position_before_the_first_whole_line_goes_on_there(tmp_path: Path) -> None:
    append(tmp_path / "log", "old\nhalf")
    with following(tmp_path, from_end=True) as follower:
        assert follower.look() == []
        position = follower.reader.positions()
    append(tmp_path / "log", " line\nnew\n")
    with following(tmp_path, position=position, from_end=True) as follower:
        assert follower.look() == ["new"]


def test_too_many_files_are_refused_with_their_number(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path / str(number), "x\n")
    message = r"has 4 files .* to follow; at most 3"
    with pytest.raises(ValueError, match=message), following(tmp_path, most_files=3):
        pass
    (tmp_path / "0").unlink()
    with following(tmp_path, most_files=3) as follower:
        append(tmp_path / "new", "x\n")
        with pytest.raises(ValueError, match=message):
            follower.look()


def test_a_bad_last_line_of_a_rotated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n\xff")
    with following(path) as follower:
        assert follower.look() == ["one"]
        path.unlink()
        with pytest.raises(LineError, match="log:2: "):
            follower.look()
