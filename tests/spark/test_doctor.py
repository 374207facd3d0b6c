"""What `tailrace doctor` says, by what it is told, and on the local Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cli import doctor as room
from tailrace.cli.doctor import Check, doctor, executors, java, settings, task_slots


def told(**other: Any) -> dict[str, Any]:
    fine = {
        "host": "a",
        "version": "tailrace 1",
        "installed": True,
        "missing": [],
        "ring": "",
        "cores": 2,
        "quota": None,
        "at_s": 105.0,
    }
    return {**fine, **other}


def judged(*tasks: dict[str, Any]) -> dict[str, Check]:
    return {check.name: check for check in executors(tasks, 100.0, 110.0)}


def test_where_all_is_well_nothing_is_to_be_done() -> None:
    checks = judged(told(), told(host="b"))
    assert set(checks) == {"executors", "rings", "clocks", "cores"}
    assert not any(check.todo for check in checks.values())
    assert str(checks["executors"]) == "ok    executors         tailrace 1 on a, b"


@pytest.mark.parametrize(
    ("task", "name", "words", "fatal"),
    [
        ({"installed": False}, "shipping", "tailrace.ship(spark)", False),
        ({"missing": ["msgspec"]}, "packages", "executors lack msgspec", True),
        ({"ring": "OSError(1)"}, "rings", "b: OSError(1)", True),
        ({"at_s": 97.5}, "clocks", "b is -2.5 s from here", False),
        ({"at_s": 3710.0}, "clocks", "b is +3600.0 s from here", False),
        ({"quota": 0.5}, "cores", "2 cores under a quota of 0.5", False),
    ],
)
def test_what_is_wrong_on_one_host_is_told_with_a_remedy(
    task: dict[str, Any], name: str, words: str, fatal: bool
) -> None:
    check = judged(told(), told(host="b", **task))[name]
    assert words in str(check)
    assert check.todo
    assert check.fatal == fatal
    assert str(check).startswith("bad " if fatal else "note")


def test_java_must_be_there_and_new_enough() -> None:
    assert java(None).fatal
    assert java('openjdk version "11.0.2" 2019-01-15').fatal
    assert not java('openjdk version "21" 2023-09-19').fatal


def test_a_cluster_without_executors_runs_nothing_unless_it_scales_by_itself() -> None:
    assert task_slots(0, scales=False).fatal
    assert not task_slots(0, scales=True).fatal


def test_settings_that_cost_time_on_a_cluster_are_named() -> None:
    said = " ".join(map(str, settings(lambda _: "", is_local=False)))
    assert "maxConcurrentTasksCheck.interval=1s" in said
    assert "spark.network.timeout=10s" in said
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.network.timeout": "10s"}
    (check,) = settings(lambda name: dynamic.get(name, ""), is_local=False)
    assert "transform() needs a session with" in check.todo
    assert list(settings(lambda _: "", is_local=True)) == []


def test_on_a_spark_that_works_jobs_can_run(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(lambda: spark) == 0
    out = capsys.readouterr().out
    assert "jobs can run here" in out
    assert "by ring)" in out
    assert "by tcp)" in out
    assert "bad " not in out


def test_a_spark_that_does_not_start_is_told_and_is_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find() -> Any:
        raise RuntimeError("the master does not answer")

    assert doctor(find) == 1
    out = capsys.readouterr().out
    assert "bad   Spark             the master does not answer" in out
    assert "a job could not run here" in out


def test_executors_that_cannot_run_our_code_are_the_exit_code(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look() -> str:
        raise ImportError("No module named 'tailrace'")

    monkeypatch.setattr(room, "look", look)
    assert doctor(lambda: spark) == 1
    out = capsys.readouterr().out
    assert "bad   executors         ImportError: No module named 'tailrace' (on the" in out
    assert "tailrace.ship(spark) brings it there" in out
