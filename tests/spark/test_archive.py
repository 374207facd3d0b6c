"""The archive of the JVM's classes: whole or not there, bounded, and never in the way."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tailrace.spark import archive, session
from tailrace.spark.archive import archive_path, make, use


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tailrace" / "spark-1.jsa"


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands for the Spark that writes its classes; the list holds what it was asked for."""
    asked = []

    def record(part: Path) -> bool:
        asked.append(part)
        part.write_bytes(b"classes")
        return True

    monkeypatch.setattr(archive, "_record", record)
    return asked


def test_each_java_pyspark_and_set_of_options_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = archive_path("-XX:+UseSerialGC")
    assert first is not None
    assert first.parent == tmp_path / "tailrace"
    assert first == archive_path("-XX:+UseSerialGC") != archive_path("-XX:+UseG1GC")
    monkeypatch.setattr("pyspark.__version__", "9.9")
    assert first != archive_path("-XX:+UseSerialGC")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # no Java there
    assert archive_path("-XX:+UseSerialGC") is None


def test_one_that_was_made_is_used(path: Path, records: list[Path]) -> None:
    assert use(path) is None
    assert make(path)
    assert path.read_bytes() == b"classes"
    assert use(path) == f'"-XX:SharedArchiveFile={path}" -Xlog:disable'
    assert not make(path)
    assert len(records) == 1


def test_somebody_elses_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    path.write_bytes(b"classes")
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert use(path) is None


def left(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


def test_a_failure_leaves_no_archive(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(part: Path) -> bool:
        part.write_bytes(b"half of the cla")
        return False

    monkeypatch.setattr(archive, "_record", fail)
    assert not make(path)
    assert left(path) == ["spark-1.failed", "spark.lock"]


def test_after_three_failures_nobody_tries_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def fail(part: Path) -> bool:
        raise RuntimeError("no Spark today")

    monkeypatch.setattr(archive, "_record", fail)
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: started.append(command))
    for _ in range(3):
        archive.make_later(path)
        with pytest.raises(RuntimeError, match="no Spark today"):
            make(path)
    archive.make_later(path)
    assert len(started) == 3
    archive.make_later(path.with_name("spark-2.jsa"))
    assert len(started) == 4


def test_a_success_forgets_the_failures(
    path: Path, records: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(archive, "_record", lambda part: False)
        assert not make(path)
    assert make(path)
    assert left(path) == ["spark-1.jsa", "spark.lock"]


def test_a_program_whose_spark_did_not_start_leaves_no_maker_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: list[object] = []

    def fail(slots: int | None, options: str) -> None:
        raise RuntimeError("no Spark today")

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr(session, "new_session", fail)
    monkeypatch.setattr(archive, "use", lambda path: None)
    monkeypatch.setattr("atexit.register", lambda *called: registered.append(called))
    with pytest.raises(RuntimeError, match="no Spark today"):
        session.local_spark()
    assert not registered


def test_one_that_is_too_large_is_not_kept(
    path: Path, records: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_MOST_BYTES", 6)
    assert not make(path)
    assert left(path) == ["spark-1.failed", "spark.lock"]


def test_the_three_that_were_used_last_are_kept(path: Path, records: list[Path]) -> None:
    path.parent.mkdir()
    for age, number in enumerate([7, 9, 8, 6]):
        old = path.with_name(f"spark-{number}.jsa")
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    assert make(path)
    kept = sorted(found.name for found in path.parent.glob("*.jsa"))
    assert kept == ["spark-1.jsa", "spark-7.jsa", "spark-9.jsa"]


def test_only_one_process_makes_it(path: Path, records: list[Path]) -> None:
    path.parent.mkdir()
    with path.with_name("spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make(path)
    assert not records
    assert make(path)
