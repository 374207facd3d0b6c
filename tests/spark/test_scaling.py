"""Running jobs on a real, local Spark whose workers come and go: records flow on, exactly."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.control.joining import ScaleError
from tailrace.spark.job import Job

PATIENCE_S = 60.0
RECORDS, KEYS = 20_000, 7
EXACT = Counter(n % KEYS for n in range(RECORDS))


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


class Counted:
    """Counts by key, which go slowly until they are let go, so that they run for long enough."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "out"
        self.gate = folder / "go on"
        self.topology = tr.Topology("counted")
        gate = self.gate

        def slowly(n: int) -> int:
            if not gate.exists():
                time.sleep(0.002)
            return n

        numbers = self.topology.source(range(RECORDS), parallelism=2).shuffle()
        keyed = numbers.map(slowly, parallelism=2, name="step").key_by(lambda n: n % KEYS)
        counts = keyed.fold(lambda count, n: (count or 0) + 1, parallelism=2)
        counts.sink(tr.sinks.ndjson(self.folder, every_s=None, overwrite=True))

    def results(self, job: Job) -> dict[int, int]:
        self.gate.touch()
        assert job.await_termination(PATIENCE_S)
        paths = self.folder.glob("part-*")
        lines = [line for path in paths for line in path.read_text().splitlines()]
        found = [json.loads(line) for line in lines]
        assert len(found) == len(dict(found))
        return dict(found)


def flows(job: Job) -> None:
    """Wait until more records have gone through the job than by now."""
    before = job.last_progress.operators["step"].records_in
    until(lambda: job.last_progress.operators["step"].records_in > before, "records flow")


@pytest.fixture
def start(spark: Any) -> Iterator[Callable[..., Job]]:
    """Starts jobs of two workers; afterwards they are over, with all their processes."""
    jobs: list[Job] = []

    def begin(topology: tr.Topology, **options: Any) -> Job:
        job = topology.start(spark, **{"workers": 2, **options})
        jobs.append(job)
        assert job.await_running(PATIENCE_S)
        return job

    yield begin
    for job in jobs:
        pids = [worker["pid"] for worker in job.workers]
        job.stop(drain=False)
        assert not job.is_active
        if job.workers and job.workers[0]["supervisor"]:
            for pid in pids:
                gone(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> None:
    until(lambda: not alive(pid), f"the end of process {pid}")


def two_epochs(job: Job) -> None:
    """Wait until an epoch that has begun by now counts, and one that has not."""
    known = job.last_checkpoint
    wanted = (known.epoch if known else 0) + 2
    until(
        lambda: job.last_checkpoint is not None and job.last_checkpoint.epoch >= wanted,
        f"epoch {wanted}",
    )


def anew(job: Job, before: set[int], workers: int) -> None:
    """Wait until the job runs with so many workers, and without the processes of before."""
    until(
        lambda: (
            len(job.workers) == workers
            and not {worker["pid"] for worker in job.workers} & before
            and job.status == "running"
        ),
        f"{workers} workers run, and none of {before}",
    )


def busy_slots(spark: Any) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("node", ["memory", "worker"])
@pytest.mark.parametrize("kept", [False, True], ids=["plain", "checkpoints"])
def test_a_third_worker_comes_and_goes_while_records_flow(
    start: Callable[..., Job], tmp_path: Path, spark: Any, kept: bool, node: str
) -> None:
    counted = Counted(tmp_path)
    checkpoint = {"checkpoint": tmp_path / "state", "checkpoint_s": 0.05} if kept else {}
    job = start(counted.topology, node=node, **checkpoint)
    pids = [worker["pid"] for worker in job.workers]
    for _ in range(2):
        job.scale_workers(3)
        way = "ring" if node == "memory" else "tcp"
        assert [worker["ways"] for worker in job.workers] == [
            {other: way for other in range(3) if other != rank} for rank in range(3)
        ]
        assert [worker["pid"] for worker in job.workers[:2]] == pids
        until(lambda: 2 in job.last_progress.workers, "the new worker reports")
        flows(job)
        if kept:
            two_epochs(job)
        third = job.workers[2]["pid"]
        job.scale_workers(2)
        assert len(job.workers) == 2
        assert sorted(job.last_progress.workers) == [0, 1]
        assert all(set(worker["ways"]) == {1 - worker["rank"]} for worker in job.workers)
        if kept:
            gone(third)
        until(lambda: busy_slots(spark) == 2, "its slot is free")
        flows(job)
    assert job.status == "running"
    assert counted.results(job) == EXACT
    assert job.last_progress.restarts == 0
    assert job.last_progress.balanced


def test_what_ends_with_three_workers_ends_as_with_two(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    for name, checkpoint in (("plain", {}), ("kept", {"checkpoint": tmp_path / "state"})):
        counted = Counted(tmp_path / name)
        job = start(counted.topology, **checkpoint)
        counted.gate.parent.mkdir(exist_ok=True)
        job.scale_workers(4)
        assert counted.results(job) == EXACT


def test_a_worker_may_be_killed_while_another_joins(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    counted = Counted(tmp_path)
    job = start(counted.topology, checkpoint=tmp_path / "state", checkpoint_s=0.05, restarts=100)
    for number in range(6):
        victim = job.workers[number % 2]["pid"]
        killer = threading.Timer(0.05 * number, kill, [victim])
        killer.start()
        job.scale_workers(3)
        killer.join()
        anew(job, {victim}, 3)
        if number == 2:  # also the one that has joined is replaced
            third = job.workers[2]["pid"]
            kill(third)
            anew(job, {third}, 3)
        job.scale_workers(2)
    assert job.last_progress.restarts >= 6
    assert counted.results(job) == EXACT


@pytest.mark.parametrize("kept", [False, True], ids=["plain", "checkpoints"])
def test_one_that_is_killed_while_it_joins_costs_at_most_that(
    start: Callable[..., Job], tmp_path: Path, kept: bool
) -> None:
    """A worker that is stopped meets nobody, so the third is not in before it is killed."""
    counted = Counted(tmp_path)
    checkpoint = {"checkpoint": tmp_path / "state"} if kept else {}
    job = start(counted.topology, node="worker", **checkpoint)
    joining = job._coordinator.roster.joining
    os.kill(job.workers[0]["pid"], signal.SIGSTOP)
    errors: list[ScaleError] = []

    def grow() -> None:
        try:
            job.scale_workers(3)
        except ScaleError as error:
            errors.append(error)

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        until(lambda: joining.growth is not None and joining.growth.introduced, "they meet")
        assert joining.growth is not None
        kill(joining.growth.hellos[2].pid)
        if not kept:
            growing.join(PATIENCE_S)
    finally:
        os.kill(job.workers[0]["pid"], signal.SIGCONT)
    growing.join(PATIENCE_S)
    assert not growing.is_alive()
    if kept:  # another has joined in its place
        assert (errors, len(job.workers)) == ([], 3)
    else:
        assert "The number of workers stays 2" in str(errors[0])
        flows(job)
        job.scale_workers(3)
    assert job.last_progress.restarts == 0
    assert counted.results(job) == EXACT


def test_all_stages_are_started_anew_as_one_when_spark_loses_a_task(
    start: Callable[..., Job], tmp_path: Path, spark: Any
) -> None:
    counted = Counted(tmp_path)
    job = start(counted.topology, checkpoint=tmp_path / "state", checkpoint_s=0.05)
    job.scale_workers(3)
    for lost in (2, 0, 2):  # of the further stage, of the first, of the one that followed
        before = job.workers
        kill(before[lost]["supervisor"])
        anew(job, {worker["pid"] for worker in before}, 3)
        until(lambda: busy_slots(spark) == 3, "nothing else runs")
    job.scale_workers(2)
    assert counted.results(job) == EXACT


def test_what_cannot_be_is_refused_and_the_job_goes_on(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    counted = Counted(tmp_path)
    job = start(counted.topology)
    with pytest.raises(ScaleError, match=r"5 workers were asked for.* 4 task slots.*local\[5\]"):
        job.scale_workers(5)
    with pytest.raises(ValueError, match=r"fold\[1\] cannot move, and would have to"):
        job.scale_workers(1)
    with pytest.raises(ValueError, match="workers is 0"):
        job.scale_workers(0)
    with pytest.raises(TypeError, match="workers is '3'"):
        job.scale_workers("3")  # type: ignore[arg-type]
    job.scale_workers(2)
    assert counted.results(job) == EXACT
    with pytest.raises(ScaleError, match="the job has ended"):
        job.scale_workers(3)


def test_workers_that_find_no_slot_do_not_join_and_leave_nothing_behind(
    start: Callable[..., Job], tmp_path: Path, spark: Any
) -> None:
    counted = Counted(tmp_path)
    job, other = start(counted.topology), start(Counted(tmp_path / "other").topology)
    with pytest.raises(ScaleError, match=r"1 of 1 workers have not started within 1 s"):
        job.scale_workers(3, timeout_s=1.0)
    until(lambda: len(spark.sparkContext.statusTracker().getActiveJobsIds()) == 2, "it is gone")
    other.stop(drain=False)
    job.scale_workers(3)
    assert counted.results(job) == EXACT
