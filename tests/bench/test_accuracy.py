"""Predicted against measured: what workers got of the machine is taken into account."""

import os
import subprocess

import pytest

from planner_parts.accuracy import Comparison, summary
from planner_parts.pace import watch


def comparison(
    cpu: tuple[float, ...], speed: tuple[float, ...], *, alike: bool = False
) -> Comparison:
    return Comparison("app", "plan", 1000.0, 500.0, cpu, speed, alike)


def test_half_a_core_at_half_the_speed_would_do_four_times_as_much_on_a_whole_one() -> None:
    assert comparison((0.5,), (0.5,)).undisturbed == 2000
    assert comparison((0.5,), (0.5,)).error == -0.5
    assert comparison((0.5,), (0.5,)).raw_error == 1.0


def test_what_the_busiest_worker_got_counts() -> None:
    assert comparison((0.4, 0.5), (0.5, 1.0)).undisturbed == 1000


def test_workers_that_have_the_same_to_do_count_together() -> None:
    assert comparison((0.4, 0.6), (1.0, 1.0), alike=True).undisturbed == 1000


def test_the_summary_tells_both_errors() -> None:
    found = summary([comparison((0.5,), (1.0,))])["app"]
    assert found["errors"] == {"plan": 0.0}
    assert found["raw_errors"] == {"plan": 1.0}


def test_a_process_is_watched_until_it_has_used_its_time() -> None:
    allowed = os.sched_getaffinity(0)
    pace = watch([os.getpid()], 0.005, 1.0)  # the yardstick is what it does
    assert pace.cpu[0] > 0
    assert pace.speed[0] > 0
    assert pace.end_ns > pace.begin_ns
    assert os.sched_getaffinity(0) == allowed


def test_a_process_that_does_nothing_is_not_waited_for_for_ever() -> None:
    with subprocess.Popen(["sleep", "600"]) as idle:
        try:
            pace = watch([idle.pid], 0.01, 1.0)
        finally:
            idle.kill()
    assert pace.cpu[0] == pytest.approx(0, abs=0.5)
