"""A standalone cluster of two hosts: one that scales by itself, and executors without tailrace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.standalone import quick_submit, standalone

PATIENCE_S = 300
SUMS = [[key, sum(range(key, 2000, 10))] for key in range(10)]
MODULE = """
from helpers.sums import add

import tailrace as tr

topology = tr.Topology("shipped")
numbers = topology.source(range(2000), name="numbers", parallelism=2)
numbers.key_by(lambda n: n % 10).fold(add, parallelism=2).sink(tr.sinks.ndjson({out!r}))
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone(tmp_path_factory.mktemp("standalone")) as url:
        yield url


def run(*command: str, **options: str) -> subprocess.CompletedProcess[str]:
    python = options.pop("python", sys.executable)
    return subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "PYSPARK_PYTHON": python,
            "PYSPARK_SUBMIT_ARGS": quick_submit(),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=options.pop("cwd", None),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def written(directory: Path) -> list[list[int]]:
    files = sorted(directory.glob("*"))
    return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())


def test_a_cluster_that_scales_by_itself_brings_up_executors(master: str, tmp_path: Path) -> None:
    done = run(str(Path(__file__).with_name("scaling_program.py")), master, str(tmp_path))
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["too many"].startswith("5 workers were asked for; this Spark has 4 task slots")
    assert "local[" not in found["too many"]
    assert "spark.dynamicAllocation.enabled is true; set it to false" in found["transform"]
    assert found["balanced"]
    assert written(tmp_path / "sums") == SUMS
    assert found["copies"]
    assert found["with copies"] == "running"
    assert found["drained"] == ["stopped", True]
    assert found["killed"].startswith(found["victim"])


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python with everything that is installed here, but without tailrace."""
    home = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "installed.pth").write_text(sysconfig.get_paths()["purelib"])
    python = str(home / "bin" / "python")
    assert run("-c", "import tailrace").returncode == 0
    alone = subprocess.run([python, "-c", "import pyarrow, tailrace"], capture_output=True)
    assert b"No module named 'tailrace'" in alone.stderr
    return python


def test_run_brings_tailrace_and_the_topologys_module_to_executors_without_them(
    master: str, tmp_path: Path, bare_python: str
) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "sums.py").write_text(
        "def add(total, n):\n    return (total or 0) + n\n"
    )
    (tmp_path / "shipped.py").write_text(MODULE.format(out=str(tmp_path / "out")))
    command = "from tailrace.cli import main; raise SystemExit(main())"
    options = ["--workers", "4", "--ship", "helpers.sums", "--master", master]
    done = run(
        "-c", command, "run", "shipped:topology", *options, python=bare_python, cwd=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "4 workers run after" in done.stderr
    assert "2,000 records in" in done.stdout
    assert written(tmp_path / "out") == SUMS
