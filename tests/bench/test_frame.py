"""The command around a benchmark: what it obeys, prints, and ends, whoever interrupts."""

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from harness.frame import Benchmark, main


@pytest.mark.parametrize(
    ("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "term"]
)
def test_interrupts_while_it_ends_are_left_for_later(
    first: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    class Interrupted(Benchmark):
        name, description, quick_help = "interrupted", "", ""

        def measure(self) -> None:
            os.kill(os.getpid(), first)

        def end(self) -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
            ended.append(True)

        def table(self) -> str:
            raise AssertionError

        def headline(self) -> dict[str, Any]:
            raise AssertionError

        def document(self, figures: dict[str, Any]) -> dict[str, Any]:
            raise AssertionError

    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path)])
    # Whoever runs the tests in the background has it ignored.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as left:
            main(Interrupted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGINT, ignored)
    assert left.value.code == code
    assert ended


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float


class Counting(Benchmark):
    name, description, quick_help = "counting", "", ""
    settings: ClassVar[tuple[str, ...]] = ("rounds", "seconds")

    def measure(self) -> None:
        self.order: list[str] = []
        for name in ("first", "second"):
            self.ends.callback(self.order.append, name)

    def table(self) -> str:
        return "a table"

    def headline(self) -> dict[str, Any]:
        plan = self.plan(Plan(1, 2.0), Plan(3, 20.0))
        return {"rounds": plan.rounds, "seconds": plan.seconds, "ended": self.order}

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        return {"headline": figures}


@pytest.mark.parametrize(
    ("words", "rounds", "seconds"),
    [
        ([], 3, 20.0),
        (["--quick"], 1, 2.0),
        (["--quick", "--rounds", "5"], 5, 2.0),
        (["--seconds", "0.5"], 3, 0.5),
    ],
)
def test_the_headline_of_the_plan_asked_for_is_the_last_line(
    words: list[str],
    rounds: int,
    seconds: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path), *words])
    before = signal.getsignal(signal.SIGTERM)
    try:
        main(Counting)
    finally:
        signal.signal(signal.SIGTERM, before)
    headline = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert headline.pop("stolen_rounds") == 0
    assert headline == {"rounds": rounds, "seconds": seconds, "ended": ["second", "first"]}
    headline["stolen_rounds"] = 0
    assert json.loads((tmp_path / "counting.json").read_text()) == {"headline": headline}


def test_a_setting_that_a_benchmark_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Single(Counting):
        settings = ()

    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path), "--rounds", "2"])
    with pytest.raises(SystemExit):
        main(Single)
    assert "unrecognized arguments: --rounds 2" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("rounds", "0"), ("seconds", "-1.0")])
def test_nothing_at_all_cannot_be_measured(
    name: str,
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path), f"--{name}", value])
    with pytest.raises(SystemExit):
        main(Counting)
    assert f"--{name} is {value}; it must be more than 0" in capsys.readouterr().err


def test_a_file_where_the_results_should_go_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setattr(sys, "argv", ["bench", "--out", str(tmp_path / "taken")])
    with pytest.raises(SystemExit):
        main(Counting)
    assert "taken; that cannot be a folder: File exists" in capsys.readouterr().err
