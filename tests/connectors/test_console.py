from __future__ import annotations

import io
import os
import sys

import pytest

from tailrace.connectors.console import Console
from tailrace.testing import VirtualClock
from tests.connectors.reading import write


def test_it_prints_so_many_in_a_second_and_counts_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = VirtualClock()
    sink = Console(per_s=3, clock_ns=clock)
    sink.open(0, 1)
    sink.write(iter("ab"))
    sink.write(iter("cdefg"))
    assert capsys.readouterr().out == "a\nb\nc\n"
    clock.now_ns = 1_000_000_000
    sink.write(iter("h"))
    assert capsys.readouterr().out == "... and 4 more that were not printed\nh\n"
    sink.write(iter("ijk"))
    sink.finish()
    sink.close()
    assert capsys.readouterr().out == "i\nj\n... and 1 more that were not printed\n"


def test_several_instances_say_which_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Console(format=repr)
    sink.open(1, 2)
    sink.write(iter(["a"]))
    assert capsys.readouterr().out == "[1] 'a'\n"


def test_records_before_one_that_fails_are_printed_and_it_is_the_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = Console(format=lambda record: str(1 // record))
    sink.open(0, 1)
    records = iter([1, 0, 1])
    with pytest.raises(ZeroDivisionError):
        sink.write(records)
    assert capsys.readouterr().out == "1\n"
    assert list(records) == [1]


def test_it_goes_on_when_there_is_no_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    write(Console(), ["a"])


def test_it_goes_on_when_stdout_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    write(Console(per_s=1), ["a", "b"])


def test_it_goes_on_when_nobody_reads_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    # Unbuffered, so that nothing is left to write when it is closed.
    with io.TextIOWrapper(io.FileIO(writing, "w"), write_through=True) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        write(Console(), ["a", "b"])


def test_what_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, "ascii"))
    write(Console(), ["δ", "d"])
    assert buffer.getvalue() == b"\\u03b4\nd\n"


def test_a_rate_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="per_s is 0"):
        Console(per_s=0)
