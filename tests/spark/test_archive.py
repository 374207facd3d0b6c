"""The archive of the JVM's classes: made when asked for, whole or not there, and bounded."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.spark import archive, session
from tailrace.spark.archive import ArchiveError, archive_path, make, remove, use


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tailrace" / "spark-1.jsa"


class Recorder:
    """Stands for the Spark that writes its classes; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Path] = []

    def __call__(self, part: Path) -> None:
        self.asked.append(part)
        part.write_bytes(b"classes")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


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


def test_one_that_was_made_is_used(path: Path, recorder: Recorder) -> None:
    assert use(path) is None
    make(path, recorder)
    assert path.read_bytes() == b"classes"
    assert use(path) == f'"-XX:SharedArchiveFile={path}" -Xlog:disable'
    make(path, recorder)
    assert len(recorder.asked) == 1


def test_it_can_be_turned_off(
    path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path, recorder)
    monkeypatch.setenv("TAILRACE_ARCHIVE", "off")
    assert use(path) is None
    monkeypatch.setenv("TAILRACE_ARCHIVE", "on")
    assert use(path) is not None


def test_somebody_elses_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    path.write_bytes(b"classes")
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert use(path) is None


def left(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


def test_a_failure_leaves_no_archive(path: Path) -> None:
    def fail(part: Path) -> None:
        part.write_bytes(b"half of the cla")
        raise ArchiveError("the JVM wrote no archive and ended with exit code 1")

    with pytest.raises(ArchiveError, match="exit code 1"):
        make(path, fail)
    assert left(path) == ["spark.lock"]


def test_a_session_makes_none_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not now, and not when the program ends."""
    done: list[object] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr(session, "new_session", lambda slots, options: options)
    monkeypatch.setattr("atexit.register", lambda *called: done.append(called))
    monkeypatch.setattr(subprocess, "Popen", lambda *command, **_: done.append(command))
    assert session.local_spark() == ""
    assert not done
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_refused(
    path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_FREE_BYTES", 1 << 62)
    with pytest.raises(ArchiveError, match=r"are free in .*XDG_CACHE_HOME"):
        make(path, recorder)
    assert not recorder.asked


def test_the_command_makes_it_and_takes_it_away(
    tmp_path: Path,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tailrace.cli.warm_up.record", recorder)
    cache = tmp_path / "tailrace"
    assert main(["warm-up", "--remove"]) == 0
    assert "there is no archive" in capsys.readouterr().out
    assert main(["warm-up"]) == 0
    assert f"kept 0 MB in {cache}" in capsys.readouterr().out
    made = session.local_archive()
    assert made is not None
    assert made.read_bytes() == b"classes"
    assert main(["warm-up"]) == 0
    assert "there is an archive already" in capsys.readouterr().out
    assert len(recorder.asked) == 1
    (cache / "machine.json").write_text("{}")  # what the planner keeps there stays
    assert main(["warm-up", "--remove"]) == 0
    assert f"in {cache}" in capsys.readouterr().out
    assert left(made) == ["machine.json"]


def test_what_is_removed_is_counted(
    path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(path.parent.parent))
    make(path, recorder)
    assert remove() == len(b"classes")
    assert remove() == 0


def test_one_that_is_too_large_is_not_kept(
    path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_MOST_BYTES", 6)
    with pytest.raises(ArchiveError, match="more than 6 are not kept"):
        make(path, recorder)
    assert left(path) == ["spark.lock"]


def test_the_three_that_were_used_last_are_kept(path: Path, recorder: Recorder) -> None:
    path.parent.mkdir()
    for age, number in enumerate([7, 9, 8, 6]):
        old = path.with_name(f"spark-{number}.jsa")
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    make(path, recorder)
    kept = sorted(found.name for found in path.parent.glob("*.jsa"))
    assert kept == ["spark-1.jsa", "spark-7.jsa", "spark-9.jsa"]


def test_only_one_process_makes_it(path: Path, recorder: Recorder) -> None:
    path.parent.mkdir()
    with path.with_name("spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ArchiveError, match="another process"):
            make(path, recorder)
    assert not recorder.asked
    make(path, recorder)
    assert recorder.asked
