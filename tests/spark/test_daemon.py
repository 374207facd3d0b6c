"""What workers are forked from: the right pyspark, everything imported, and one thread only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tailrace.spark.daemon import installed_first


def run(code: str) -> str:
    """What a fresh process prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


@pytest.fixture
def spark_lib(tmp_path: Path) -> list[str]:
    """Spark's zips, as it puts them in front of the module search path."""
    with ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/version.py", "4.3.0")
    with ZipFile(tmp_path / "py4j-0.10-src.zip", "w") as archive:
        archive.writestr("py4j/version.py", "0.10")
    return [str(tmp_path / "pyspark.zip"), str(tmp_path / "py4j-0.10-src.zip")]


def install(folder: Path, version: str) -> str:
    (folder / "site" / "pyspark").mkdir(parents=True)
    (folder / "site" / "pyspark" / "version.py").write_text(version)
    return str(folder / "site")


def test_an_installed_pyspark_of_the_same_version_comes_before_the_zips(
    spark_lib: list[str], tmp_path: Path
) -> None:
    site = install(tmp_path, "4.3.0")
    assert installed_first(["", *spark_lib, site]) == ["", site, *spark_lib]


def test_another_version_or_none_leaves_the_search_path_alone(
    spark_lib: list[str], tmp_path: Path
) -> None:
    assert installed_first(["", *spark_lib, "/nowhere"]) == ["", *spark_lib, "/nowhere"]
    site = install(tmp_path, "4.2.0")
    assert installed_first(["", *spark_lib, site]) == ["", *spark_lib, site]


def test_a_zip_that_cannot_be_read_leaves_the_search_path_alone(tmp_path: Path) -> None:
    site = install(tmp_path, "4.3.0")
    broken = tmp_path / "pyspark.zip"
    broken.write_text("not a zip")
    assert installed_first([str(broken), site]) == [str(broken), site]


def test_importing_tailrace_imports_no_pyspark_and_nothing_with_threads() -> None:
    """The daemon is a module of the package: the wrong pyspark would be there before it runs."""
    code = "import sys, tailrace.spark.daemon; print({'pyspark', 'pyarrow'} & sys.modules.keys())"
    assert run(code) == "set()"


def test_what_is_preloaded_starts_no_thread() -> None:
    assert run("from tailrace.spark.daemon import preload; print(preload())") == "True"


def test_a_process_with_a_thread_is_not_forked() -> None:
    code = """
import threading
from tailrace.spark.daemon import preload
done = threading.Event()
threading.Thread(target=done.wait).start()
print(preload())
done.set()
"""
    assert run(code) == "False"


def test_workers_of_a_local_spark_come_from_it(spark: Any) -> None:
    def facts(_: Any) -> list[Any]:
        import os

        import pyspark

        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
        return [parent[1:3], pyspark.__file__.endswith("site-packages/pyspark/__init__.py")]

    found = spark.sparkContext.parallelize([0], 1).mapPartitions(facts).collect()
    assert found == [[b"-m", b"tailrace.spark.daemon"], True]


def test_without_a_module_it_needs_spark_own_daemon_serves() -> None:
    code = """
import os, sys
import tailrace.spark.daemon as daemon
daemon._PRELOADED = ("no_such_module",)
sys.argv = ["daemon", "pyspark.worker"]
os.execv = lambda program, arguments: (print(arguments[1:]), os._exit(0))
sys.stdout.reconfigure(line_buffering=True)
daemon.main()
"""
    assert run(code) == "['-m', 'pyspark.daemon', 'pyspark.worker']"
