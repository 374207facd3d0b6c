"""Real worker processes on hosts whose clocks are hours apart and drift."""

from __future__ import annotations

import json
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.control.progress.summary import Summary
from tests.control.apart import Times, run_apart

HOURS = 3600.0
DRIFT = 200e-6
CLOCKS = ((9 * HOURS, DRIFT), (-1000 * HOURS, -DRIFT), (0.0, 0.0))
"""Of three hosts; the last is as the coordinator's, but goes through the same."""
Run = tuple[Summary, list[tuple[int, ...]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("apart") / "times"

    def note(times: tuple[int, int, int, int]) -> None:
        with Path(path).open("a") as file:
            file.write(json.dumps(times) + "\n")

    topology = tr.Topology("apart")
    times = topology.source(Times(2.0), parallelism=3).shuffle()
    times.map(lambda times: times, name="pass").shuffle().sink(note, parallelism=1)
    summary = run_apart(topology, (0, 1, 2, 0, 1, 2, 1), CLOCKS)
    return summary, [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def test_all_workers_read_one_clock(run: Run) -> None:
    _, times = run
    assert {index for index, *_ in times} == {0, 1, 2}
    for _, before_ns, now_ns, after_ns in times:
        # They start hours apart, so a second is as good as nothing, however busy the machine is.
        assert before_ns - 1e9 <= now_ns <= after_ns + 1e9


def test_a_workers_clock_never_goes_backwards(run: Run) -> None:
    by_true_time = sorted(run[1], key=itemgetter(1))
    for worker in range(3):
        mine = [now_ns for index, _, now_ns, _ in by_true_time if index == worker]
        assert mine == sorted(mine)


def test_latency_and_transfer_across_hosts_are_what_they_are(run: Run) -> None:
    summary, times = run
    assert summary.balanced
    assert summary.delivered == len(times)
    assert 0 < summary.latency_ms(50) < 1e6
    for stream in summary.streams.values():
        assert 0 <= stream.transfer_p50_us < 1e9


def test_progress_says_how_sure_it_is(run: Run) -> None:
    summary, _ = run
    assert set(summary.workers) == {0, 1, 2}
    each = [worker.clock_uncertainty_ms for worker in summary.workers.values()]
    assert all(uncertainty_ms > 0 for uncertainty_ms in each)
    assert summary.clock_uncertainty_ms == max(each)


def test_windows_in_processing_time_are_in_wall_clock_time_on_every_host(tmp_path: Path) -> None:
    path = tmp_path / "windows"

    def note(result: Any) -> None:
        with path.open("a") as file:
            file.write(json.dumps([result.key, result.start, result.value]) + "\n")

    topology = tr.Topology("windows")
    times = topology.source(Times(1.5), parallelism=3)
    keyed = times.key_by(lambda times: times[0])
    counted = keyed.window(tr.tumbling(0.5), time="processing").aggregate(
        lambda count, _: count + 1, initial=0
    )
    counted.sink(note)
    before_s = time.time()
    summary = run_apart(topology, (0, 1, 2, 0, 1, 2), CLOCKS)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {key for key, *_ in found} == {0, 1, 2}
    assert sum(count for *_, count in found) == sum(summary.emitted.values())
    for _, start_s, _ in found:
        assert before_s - 1 <= start_s <= time.time() + 1
