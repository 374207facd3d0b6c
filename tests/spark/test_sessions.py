"""Other Sparks than a local one: by Spark Connect, and with two executors.

A process can have one kind of session only, so each has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

PATIENCE_S = 300
SUMS = [[key, sum(range(key, 2000, 10))] for key in range(10)]


def run(program: str, *arguments: Path | str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]
    assert done.returncode == 0, "\n".join(told)[-20_000:]  # Spark's traces would hide the cause
    return json.loads(done.stdout.splitlines()[-1])


def written(directory: Path) -> list[Any]:
    files = sorted(directory.glob("*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_connect_session_runs_jobs_and_transforms(tmp_path: Path) -> None:
    found = run("connect_program.py", tmp_path)
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["workers"] == 2
    assert found["balanced"]
    assert found["delivered"] == 1000
    assert sorted(written(tmp_path / "squares")) == [n * n for n in range(1000)]
    assert "'divide' failed on 7" in found["failure"]
    assert "ZeroDivisionError" in found["failure"]
    assert found["stopped"] == "stopped"
    assert found["fed"] == 100
    assert found["found"]
    assert found["other master"].startswith("--master is local[9], but Spark runs at local[2]")
    assert found["bench master"] == "local[2]"
    assert found["transformed"] == [n * n for n in range(100)]
    assert found["shown"] == 3
    assert "worker 1" in found["explained"]
    assert found["after its end"].startswith("the Spark session has been stopped; make a new one")


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Spark's own, but for the directory `work`, into which the executors of a cluster write."""
    home = tmp_path / "home"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def test_two_executors_use_rings_within_and_tcp_between(tmp_path: Path, spark_home: Path) -> None:
    found = run("cluster_program.py", tmp_path, SPARK_HOME=str(spark_home))
    assert found["planned"]["ways"] == [[False, "tcp"], [True, "ring"]]
    assert found["planned"]["balanced"]
    assert found["planned"]["nodes"] == [0, 0, 1, 1]
    assert found["frugal"] == {"workers": 4, "nodes": 1, "balanced": True}
    assert sorted(written(tmp_path / "frugal" / "sums")) == SUMS
    assert found["ways"] == [["ring", "tcp", "tcp"]] * 4
    assert found["balanced"]
    assert sorted(written(tmp_path / "sums")) == SUMS
    assert found["transformed"] == SUMS
    workers = [line for line in found["explained"] if line.startswith("worker")]
    assert len(workers) == 4
    assert all("ring to " in line and "tcp to " in line for line in workers)
    assert found["given up"] == ["2 before", "0 of them left"]
    assert found["after its end"].startswith("the Spark session has been stopped; make a new one")


def test_every_job_ends_when_spark_is_stopped_while_they_start() -> None:
    early, later = run("stopping_program.py", "0.05", "0.2")
    for ended in [*early, *later]:
        assert set(ended) <= {"failed", "stopped"}
    assert all(later)  # early, Spark may be gone before any job has begun
