"""Jobs on a real, local Spark that lose their workers: they go on, exactly, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.spark.job import Job, JobFailedError

PATIENCE_S = 60.0
RECORDS, KEYS = 3_000, 7


def slowly(n: int) -> int:
    time.sleep(0.0002)
    return n


def counted(folder: Path, step: Callable[[int], int] = slowly) -> tr.Topology:
    """Counts by key, all of them in the folder at the end."""
    topology = tr.Topology("counted")
    numbers = topology.source(range(RECORDS), parallelism=2).shuffle()
    keyed = numbers.map(step, parallelism=2, name="step").key_by(lambda n: n % KEYS)
    counts = keyed.fold(lambda count, n: (count or 0) + 1, parallelism=2)
    counts.sink(tr.sinks.ndjson(folder, every_s=None, overwrite=True))
    return topology


def endless() -> tr.Topology:
    topology = tr.Topology("endless")
    numbers = topology.source(tr.sources.rate(500)).shuffle()
    numbers.map(lambda n: n, parallelism=2).sink(lambda _: None)
    return topology


def results(folder: Path) -> dict[int, int]:
    lines = [line for path in folder.glob("part-*") for line in path.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    assert len(found) == len(dict(found))
    return dict(found)


EXACT = Counter(n % KEYS for n in range(RECORDS))


class Watched:
    """A job, and all processes it has ever had."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pids: set[int] = set()
        self.supervisors: set[int] = set()

    def workers(self) -> list[dict[str, Any]]:
        workers = self.job.workers
        self.pids |= {worker["pid"] for worker in workers}
        self.supervisors |= {worker["supervisor"] for worker in workers}
        return workers

    def until_running(self, restarts: int = 0) -> list[dict[str, Any]]:
        """Wait until it runs, after so many restarts at least."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.job.is_active:
            restarted = self.job.last_progress.restarts
            if self.job.status == "running" and restarted >= restarts:
                return self.workers()
            time.sleep(0.01)
        raise AssertionError(f"it is {self.job.status}: {self.job.exception()}")

    def kill_in_turn(self, workers: int) -> None:
        """Kill one worker after the other, each when another epoch counts."""
        job = self.job
        for rank in range(workers):
            present = self.until_running(rank)
            before = job.last_checkpoint
            while job.is_active and job.last_checkpoint == before:
                time.sleep(0.005)
            if job.is_active:
                with suppress(ProcessLookupError):  # it has ended by itself meanwhile
                    os.kill(present[rank]["pid"], signal.SIGKILL)

    def nothing_is_left(self) -> None:
        """Spark keeps the supervisors' processes, with nothing of ours in them."""
        for pid in self.pids:
            gone(pid)
        for pid in self.supervisors:
            with suppress(FileNotFoundError):
                assert not Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            assert not any("tailrace" in link for link in descriptors(pid))


def gone(pid: int) -> None:
    """Wait until a process is."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.002)
    raise AssertionError(f"process {pid} is still there")


def descriptors(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(entry.readlink()))
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it was faster
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def watched(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Starts jobs that recover; afterwards they are over and nothing of them is there."""
    jobs: list[Watched] = []

    def begin(topology: tr.Topology, **options: Any) -> Watched:
        options = {"workers": 2, "restarts": 100, **options}
        jobs.append(Watched(topology.start(spark, checkpoint=tmp_path / "state", **options)))
        return jobs[-1]

    yield begin
    for one in jobs:
        one.job.stop(drain=False)
        assert not one.job.is_active
        one.nothing_is_left()


def took_ms(job: Job) -> str:
    return ", ".join(f"{event.took_ms:.0f}" for event in job.last_progress.events)


@pytest.mark.parametrize("node", ["memory", "worker"])
def test_workers_that_are_killed_again_and_again_change_no_result(
    watched: Callable[..., Watched], tmp_path: Path, node: str
) -> None:
    one = watched(counted(tmp_path / "out"), node=node)
    supervisors = {worker["supervisor"] for worker in one.until_running()}
    for number in range(1, 7):
        kill(one.until_running(number - 1)[number % 2]["pid"])
    one.until_running(6)
    assert one.job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == EXACT
    progress = one.job.last_progress
    assert progress.restarts == len(progress.events) == 6
    assert progress.balanced
    assert one.supervisors == supervisors  # Spark has noticed nothing
    print(f"\nkill noticed to running, by {node}: {took_ms(one.job)} ms")


def test_all_workers_at_once_come_back(watched: Callable[..., Watched], tmp_path: Path) -> None:
    one = watched(counted(tmp_path / "out"))
    for worker in one.until_running():
        kill(worker["pid"])
    one.until_running(1)
    assert one.job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == EXACT
    print(f"\nboth killed, noticed to running: {took_ms(one.job)} ms")


def test_a_supervisor_takes_its_worker_along_and_spark_starts_both_anew(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    one = watched(counted(tmp_path / "out"))
    victim = one.until_running()[1]
    kill(victim["supervisor"])
    gone(victim["pid"])
    workers = one.until_running(1)
    assert victim["supervisor"] not in {worker["supervisor"] for worker in workers}
    assert one.job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == EXACT
    progress = one.job.last_progress
    assert progress.restarts == 1
    assert any("Spark ended the workers" in event.what for event in progress.events)
    print(f"\nsupervisor killed, noticed to running: {took_ms(one.job)} ms")


def test_progress_keeps_what_happened(watched: Callable[..., Watched]) -> None:
    one = watched(endless())
    victim = one.until_running()[0]["pid"]
    kill(victim)
    one.until_running(1)
    [event] = one.job.last_progress.events
    assert f"worker 0 (pid {victim} on 127.0.0.1) is gone" in event.what
    assert event.took_ms > 0
    deadline = time.monotonic() + PATIENCE_S
    while not any(summary.events for summary in one.job.recent_progress):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    one.job.stop()
    assert one.job.status == "stopped"
    assert one.job.last_progress.balanced


def test_a_worker_holds_nothing_of_its_supervisor_but_where_it_prints(
    watched: Callable[..., Watched],
) -> None:
    one = watched(endless())
    kill(one.until_running()[0]["pid"])
    for worker in one.until_running(1):
        theirs, ours = descriptors(worker["supervisor"]), descriptors(worker["pid"])
        kept = {link for link in ours if link.startswith("socket:")} & {*theirs}
        prints = [
            [str(Path(f"/proc/{worker[who]}/fd/{fd}").readlink()) for fd in (1, 2)]
            for who in ("pid", "supervisor")
        ]
        assert prints[0] == prints[1]
        assert not kept - {*prints[0]}


class FailsOnce:
    """Raises on a record, unless a file says that it has before; then the file is there."""

    def __init__(self, file: Path, record: int) -> None:
        self.file = file
        self.record = record

    def __call__(self, n: int) -> int:
        if n == self.record and not self.file.exists():
            self.file.touch()
            raise ValueError("not this time")
        return slowly(n)


def test_code_that_raises_once_is_forgiven(watched: Callable[..., Watched], tmp_path: Path) -> None:
    one = watched(counted(tmp_path / "out", FailsOnce(tmp_path / "failed", 1_000)))
    assert one.job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == EXACT
    [event] = one.job.last_progress.events
    assert "operator 'step' failed on 1000: ValueError('not this time')" in event.what


def test_code_that_always_raises_on_a_record_fails_the_job_with_it(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    def divide(n: int) -> int:
        return n // (n - 777)

    one = watched(counted(tmp_path / "out", divide))
    with pytest.raises(
        JobFailedError, match=r"'step' failed on 777: .* 3 times in a row"
    ) as failed:
        one.job.await_termination(PATIENCE_S)
    assert "ZeroDivisionError" in str(failed.value)
    assert "in divide" in str(failed.value)
    assert one.job.last_progress.restarts == 2


def test_what_is_found_damaged_while_a_job_runs_fails_it_at_once(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    one = watched(endless(), checkpoint_s=1000.0)
    victim = one.until_running()[1]["pid"]
    one.job.savepoint(tmp_path / "saved")
    for path in (tmp_path / "state" / "data").iterdir():
        path.write_bytes(path.read_bytes()[:5])
    kill(victim)
    with pytest.raises(JobFailedError, match=r"data/\d+-1\.0-\d\.bin' in .* is damaged") as failed:
        one.job.await_termination(PATIENCE_S)
    assert "Start the job again" in str(failed.value)
    assert one.job.last_progress.restarts == 1, "the one after the kill"


def test_a_stop_that_cannot_make_its_savepoint_stops_nothing(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    one = watched(endless())
    one.until_running()
    with pytest.raises(ValueError, match="drain=False ends the job without a last epoch"):
        one.job.stop(drain=False, savepoint=tmp_path / "saved")
    assert one.job.status == "running"
    assert one.job.savepoint(tmp_path / "saved")


def test_without_a_restart_left_the_job_fails_and_says_so(watched: Callable[..., Watched]) -> None:
    one = watched(endless(), restarts=1, checkpoint_s=1000.0)
    kill(one.until_running()[0]["pid"])
    victim = one.until_running(1)[1]["pid"]
    kill(victim)
    with pytest.raises(JobFailedError) as failed:
        one.job.await_termination(PATIENCE_S)
    assert f"worker 1 (pid {victim} on 127.0.0.1) is gone" in str(failed.value)
    assert "all 1 restarts (restarts=1) are used up" in str(failed.value)


class Waits(tr.Sink):
    """Opens when a file is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, index: int, parallelism: int) -> None:
        (self.folder / f"opening-{os.getpid()}").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.01)

    def write(self, records: Iterator[Any]) -> None:
        for _ in records:
            pass


def test_a_supervisor_may_be_killed_before_the_job_has_ever_run(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    topology = counted(tmp_path / "out")
    topology.source(range(2), name="few").sink(Waits(tmp_path), name="waits")
    one = watched(topology)
    deadline = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("opening-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    victim = one.workers()[1]
    assert one.job.status == "starting"
    kill(victim["supervisor"])
    gone(victim["pid"])
    (tmp_path / "go").touch()
    one.until_running()
    assert one.job.await_termination(PATIENCE_S)
    assert one.job.exception() is None
    assert results(tmp_path / "out") == EXACT


class Strict(tr.Sink):
    """Wants nothing after its end; the second instance takes its time for that."""

    every_s = 0.001
    closed = False

    def open(self, index: int, parallelism: int) -> None:
        self.index = index

    def write(self, records: Iterator[Any]) -> None:
        for _ in records:
            self.tick()

    def tick(self) -> None:
        if self.closed:
            raise ValueError(f"instance {self.index} is closed")

    def close(self) -> None:
        self.closed = True
        time.sleep(0.3 * self.index)


def test_nothing_is_processed_after_the_last_epoch(watched: Callable[..., Watched]) -> None:
    topology = tr.Topology("strict")
    numbers = topology.source(tr.sources.rate(5_000), parallelism=2).shuffle()
    numbers.sink(Strict(), parallelism=2)
    one = watched(topology)
    one.until_running()
    one.job.stop()
    assert one.job.exception() is None
    assert one.job.last_progress.restarts == 0


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("who", ["pid", "supervisor"])
def test_a_job_can_be_stopped_while_it_recovers(
    watched: Callable[..., Watched], drain: bool, who: str
) -> None:
    one = watched(endless())
    victim = one.until_running()[1][who]
    os.kill(victim, signal.SIGKILL)
    while one.job.status == "running":
        threading.Event().wait(0.0005)
    one.job.stop(drain=drain)
    assert one.job.status == "stopped"


def test_a_worker_that_dies_whenever_it_opens_uses_up_the_budget(
    watched: Callable[..., Watched],
) -> None:
    class Deadly(tr.Sink):
        def open(self, index: int, parallelism: int) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    topology = tr.Topology()
    topology.source(range(10)).sink(Deadly())
    one = watched(topology, workers=1, restarts=3)
    with pytest.raises(JobFailedError, match="all 3 restarts"):
        one.job.await_termination(PATIENCE_S)


def test_when_the_driver_is_killed_workers_and_supervisors_end(tmp_path: Path) -> None:
    program = Path(__file__).with_name("orphan_program.py")
    with subprocess.Popen(
        [sys.executable, program, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        pids = json.loads(driver.stdout.readline())
        driver.kill()
    assert len(pids) == 4
    for pid in pids:
        gone(pid)
