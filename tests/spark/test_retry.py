"""Tasks that Spark runs again, which a local Spark does only if it is told to at its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_task_that_runs_again_delivers_nothing_twice(tmp_path: Path) -> None:
    script = Path(__file__).with_name("retried.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "failed").exists()
    lines = (tmp_path / "out" / "part-00000.ndjson").read_text().splitlines()
    assert list(map(json.loads, lines)) == list(range(5000))
