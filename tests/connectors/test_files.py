from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import sources
from tailrace.connectors.framing import LineError
from tailrace.testing import VirtualClock
from tests.connectors.reading import read_all, read_share, serve


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("a\r\n\nδ\u2028δ\nlast".encode())
    assert read_share(sources.lines(path)) == ["a", "", "δ\u2028δ", "last"]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert read_share(sources.lines(tmp_path / "log")) == []


def test_a_directory_gives_its_files_by_name_and_passes_over_hidden_ones(tmp_path: Path) -> None:
    for name in ("b", "a", ".a.tmp", "_SUCCESS"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    (tmp_path / "directory").mkdir()
    assert read_share(sources.lines(tmp_path)) == ["a1", "a2", "b1", "b2"]


def test_a_pattern_gives_the_files_that_match(tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "c.txt"):
        (tmp_path / name).write_text(name)
    assert read_share(sources.lines(f"{tmp_path}/*.log")) == ["a.log", "b.log"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*absent'"):
        read_share(sources.lines(tmp_path / "absent"))


def test_blocks_do_not_cut_lines(tmp_path: Path) -> None:
    lines = [f"{i:0{1 + i * 37 % 9000}}" for i in range(300)]
    (tmp_path / "log").write_text("\n".join(lines))
    assert read_share(sources.lines(tmp_path / "log"), most=7) == lines


contents = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=9), max_size=20
)


@given(lines=contents, ended=st.booleans(), parallelism=st.integers(1, 7))
def test_byte_ranges_give_each_line_to_one_instance(
    lines: list[str], ended: bool, parallelism: int
) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    expected = text.split("\n")[: None if text and not text.endswith("\n") else -1]
    with TemporaryDirectory() as directory:
        (Path(directory) / "log").write_bytes(text.encode())
        source = sources.lines(directory, split_bytes=1)
        shares = [read_share(source, index, parallelism) for index in range(parallelism)]
    assert sorted(line for share in shares for line in share) == sorted(expected)


@given(lines=contents, index=st.integers(0, 2), taken=st.integers(0, 8))
def test_a_position_goes_on_with_the_next_line(lines: list[str], index: int, taken: int) -> None:
    with TemporaryDirectory() as directory:
        for name in "ab":
            (Path(directory) / name).write_bytes("\n".join(lines).encode())
        source = sources.lines(directory, split_bytes=1)
        reader = serve(source, index, 3)
        before: list[str] = []
        while len(before) < taken and (some := reader.poll(1)) is not None:
            before += some
        positions = reader.positions()
        reader.close()
        after = read_all(serve(source, index, 3, positions=positions))
        assert before + after == read_share(source, index, 3)


def test_a_line_too_long_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("good\n" + "x" * 200_000)
    source = sources.lines(path, most_line_bytes=100_000)
    with pytest.raises(LineError, match=r"log, after byte 5: .* longer than 100000 bytes.*xxx"):
        read_share(source)


def test_bytes_that_are_not_text_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n\xff\n")
    with pytest.raises(LineError, match=r"log:3: .*invalid start byte"):
        read_share(sources.lines(path))


@dataclass
class Visit:
    user: str
    seconds: int


def test_ndjson_gives_values(tmp_path: Path) -> None:
    path = tmp_path / "visits"
    path.write_text('{"user": "a", "seconds": 3}\r\n[1, null]\n')
    assert read_share(sources.ndjson(path)) == [{"user": "a", "seconds": 3}, [1, None]]


def test_ndjson_gives_typed_records(tmp_path: Path) -> None:
    path = tmp_path / "visits"
    path.write_text('{"user": "a", "seconds": 3}\n')
    assert read_share(sources.ndjson(path, Visit)) == [Visit("a", 3)]


@pytest.mark.parametrize("most", [1, 100])
def test_a_bad_line_is_named_by_file_and_line_in_every_share(tmp_path: Path, most: int) -> None:
    path = tmp_path / "visits"
    good = '{"user": "a", "seconds": 3}\n'
    path.write_text(good * 7 + '{"user": "b"}\n' + good)
    source = sources.ndjson(path, Visit, split_bytes=1)
    with pytest.raises(LineError, match=r"visits:8: .*`seconds`; the line is b'{\"user\": \"b\"}'"):
        for split in source.splits(2)[1:]:
            read_all(source.open(split, VirtualClock()), most)
    assert len(read_all(source.open(source.splits(2)[0], VirtualClock()), most)) == 5
