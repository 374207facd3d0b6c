"""The command around a benchmark: it ends what it has started, whoever interrupts."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

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
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as left:
            main(Interrupted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert left.value.code == code
    assert ended
