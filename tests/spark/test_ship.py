"""What is brought to executors, as a file; see test_standalone for it in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

import tailrace as tr
from tailrace.control.protocol import VERSION
from tailrace.spark.cluster import checked
from tailrace.spark.ship import pack, ship, shipped


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that can be imported: `alone`, and the package `many`."""
    (tmp_path / "alone.py").write_text("x = 1\n")
    (tmp_path / "many" / "inner").mkdir(parents=True)
    for path in ("many/__init__.py", "many/inner/__init__.py", "many/inner/part.py"):
        (tmp_path / path).write_text("")
    (tmp_path / "many" / "table.csv").write_text("1,2\n")
    (tmp_path / "many" / "__pycache__").mkdir()
    (tmp_path / "many" / "__pycache__" / "old.pyc").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_modules_packages_and_their_data_are_packed_beside_tailrace(modules: Path) -> None:
    pack(modules / "out.zip", ["alone", "many.inner.part"])
    names = set(ZipFile(modules / "out.zip").namelist())
    assert {"alone.py", "many/__init__.py", "many/inner/part.py", "many/table.csv"} <= names
    assert {"tailrace/__init__.py", "tailrace/spark/daemon.py"} <= names
    assert any(
        name.startswith("tailrace/transport/ring/") and name.endswith(".so") for name in names
    )
    assert not any("__pycache__" in name or name.endswith(".pyx") for name in names)


def test_the_name_stands_for_the_content(modules: Path) -> None:
    first = pack(modules / "1.zip", ["alone"])
    assert pack(modules / "2.zip", ["alone"]) == first
    (modules / "alone.py").write_text("x = 2\n")
    assert pack(modules / "3.zip", ["alone"]) != first


def test_what_was_packed_runs_without_anything_installed(modules: Path) -> None:
    pack(modules / "out.zip", ["alone"])
    ZipFile(modules / "out.zip").extractall(modules / "unpacked")
    found = subprocess.run(
        [sys.executable, "-c", "import tailrace.transport.ring, alone; print(tailrace.__file__)"],
        env={"PYTHONPATH": str(modules / "unpacked")},
        cwd=modules / "unpacked",
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith(str(modules / "unpacked"))


@pytest.mark.parametrize("name", ["no_such_module", "__main__"])
def test_what_cannot_be_imported_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"'{name}' was to be shipped; it cannot be"):
        pack(tmp_path / "out.zip", [name])


class Context:
    """A driver's, as far as shipping goes."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.added: list[str] = []

    def addArchive(self, path: str) -> None:  # noqa: N802
        self.added.append(path.partition("#")[2])


def test_the_newest_comes_first_and_nothing_is_sent_twice(modules: Path) -> None:
    context = Context(master="spark://h:7077")
    spark: Any = SimpleNamespace(sparkContext=context)
    tr.ship(spark, ["alone"])
    tr.ship(spark, ["many"])
    tr.ship(spark, ["alone"])
    assert len(context.added) == 2
    assert shipped(context) == context.added


def test_a_local_spark_has_everything_already() -> None:
    context = Context(master="local[2]")
    ship(SimpleNamespace(sparkContext=context))
    assert context.added == shipped(context) == []


def test_another_tailrace_on_executors_is_refused_before_anything_is_unpickled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = checked(lambda: "answer")
    assert ask() == "answer"
    monkeypatch.setattr("tailrace.control.protocol.VERSION", "tailrace 9")
    with pytest.raises(RuntimeError, match="the executors run tailrace 9; the driver runs") as told:
        ask()
    assert VERSION in str(told.value)
