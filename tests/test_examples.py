"""The example programs that need no Spark; tests/spark/test_examples.py runs the others."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "exactly_once_sink": "('lamp', 1) ('desk', 2) ('lamp', 3)\n",
    "join": "lamp: 25 after 30.0 s\n",
    "lookups": "499 answers, from 'answer 0' to 'answer 499'",
    "own_source": "instance 1 of two reads",
    "rates": "bursts   |█    █",
    "tail": "status 200: 3 requests",
    "to_parquet": ".parquet: 975 rows",
    "windows": "too late: Click(time_s=12, user='cid', page='home')",
}
ELSEWHERE = {"ring"} | {
    "checkpoint",
    "from_spark",
    "history",
    "locality",
    "offline_tables",
    "plan",
    "rescale",
    "savepoint",
    "short_tails",
    "socket_words",
}


def test_every_example_is_run_by_some_test() -> None:
    spark = (Path(__file__).parent / "spark" / "test_examples.py").read_text()
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAYS.keys() | ELSEWHERE
    assert all(f'"{name}"' in spark for name in ELSEWHERE - {"ring"})


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out


def test_the_example_of_the_ring_runs(tmp_path: Path) -> None:
    """In a process of its own, since it sets how processes start; and for a moment only."""
    text = (EXAMPLES / "ring.py").read_text()
    assert text.count("SECONDS = 2.0") == 1
    program = tmp_path / "ring.py"
    program.write_text(text.replace("SECONDS = 2.0", "SECONDS = 0.2"))
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["pipe", "ring"]
