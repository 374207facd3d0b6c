"""The command line: what it loads, what it says, and how it ends."""

from __future__ import annotations

import pytest

from tailrace.cli import load, main


def test_a_topology_is_loaded_by_module_and_name() -> None:
    assert load("tailrace.apps.word_count:topology").name == "word count"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonsense", "'nonsense' does not name a topology; write it as module:name"),
        ("tailrace.apps.word_count:nothing", "module 'tailrace.apps.word_count' has no 'nothing'"),
        ("tailrace.apps.word_count:VOCABULARY", "is a tuple; expected a Topology"),
        ("no_such_module:topology", "No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_explain_says_what_runs_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "tailrace.apps.word_count:topology", "--workers", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "word count",
        "  sentences -> split (shuffle)",
        "  split -> count (key)",
        "  count -> sink (forward)",
        "worker 0",
        "  sentences",
        "  split (2 of 2)",
        "  count + sink (2 of 2)",
        "worker 1",
        "  split (1 of 2)",
        "  count + sink (1 of 2)",
    ]
