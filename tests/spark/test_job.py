"""Topologies on a real, local Spark: results, failures, kills, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.core import Limits
from tailrace.spark import launch
from tailrace.spark.job import Job, JobFailedError
from tailrace.testing import collect

PATIENCE_S = 60.0


class Lines(tr.Sink):
    """Sends the repr of every record to a socket of the test, line by line."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.socket: socket.socket | None = None

    def open(self, index: int, parallelism: int) -> None:
        self.socket = socket.create_connection(self.address)

    def write(self, records: Iterator[Any]) -> None:
        assert self.socket is not None
        self.socket.sendall("".join(f"{record!r}\n" for record in records).encode())

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


class Inbox:
    """Receives what `Lines` sinks send, until they have all closed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.sink = Lines(self._listener.getsockname())

    def accept(self, sinks: int) -> None:
        for _ in range(sinks):
            connection, _ = self._listener.accept()
            thread = threading.Thread(target=self._read, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile() as file:
            for line in file:
                self.lines.append(line.strip())

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        self._listener.close()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    box = Inbox()
    yield box
    box.close()


class Endless(tr.Source):
    """0, 1, 2 ... without end, a few at a time."""

    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> tr.Reader:
        return _EndlessReader()


class _EndlessReader(tr.Reader):
    def __init__(self) -> None:
        self._next = 0

    def poll(self, most: int) -> list[int]:
        self._next += 3
        return [self._next - 3, self._next - 2, self._next - 1]


def pids(job: Job) -> list[int]:
    return [worker["pid"] for worker in job.workers]


def running(job: Job) -> None:
    """Wait until the workers have reported something."""
    while not job.last_progress.emitted and job.is_active:
        threading.Event().wait(0.02)


def descriptors(pid: int) -> list[str]:
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue
    return [link for link in links if "tailrace" in link]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_word_count_is_exact_and_its_audit_balances(
    spark: Any, inbox: Inbox, workers: int
) -> None:
    text = ["to be or not to be", "that is the question"] * 500
    topology = tr.Topology("word count")
    words = topology.source(text, parallelism=2).flat_map(str.split, parallelism=3)
    counts = words.key_by().fold(lambda count, word: (count or 0) + 1, parallelism=2)
    counts.sink(inbox.sink)
    job = topology.start(spark, workers=workers)
    inbox.accept(2)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert dict(map(eval, inbox.lines)) == Counter(" ".join(text).split())
    progress = job.last_progress
    assert job.status == "stopped"
    assert progress.emitted == {"source": 1000}
    assert progress.operators["fold"].records_in == 5000
    assert progress.balanced
    assert {way for worker in job.workers for way in worker["ways"].values()} <= {"ring"}


def test_workers_that_share_no_memory_talk_by_tcp(spark: Any, inbox: Inbox) -> None:
    """In one executor all do; the option to tell executors apart is tried on a cluster."""
    topology = tr.Topology()
    topology.source(range(20_000)).shuffle().map(lambda n: n + 1, parallelism=2).sink(inbox.sink)
    job = topology.start(spark, workers=2, node="worker")
    inbox.accept(2)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert sorted(map(int, inbox.lines)) == list(range(1, 20_001))
    assert {way for worker in job.workers for way in worker["ways"].values()} == {"tcp"}
    assert job.last_progress.balanced


def test_tiny_queues_and_every_operator_on_every_worker_do_not_deadlock(
    spark: Any, inbox: Inbox
) -> None:
    topology = tr.Topology()
    stream = topology.source(range(3_000), parallelism=4)
    for _ in range(3):
        stream = stream.shuffle().map(lambda n: n, parallelism=4)
    stream.key_by(lambda n: n % 7).scan(lambda total, n: (total or 0) + n, parallelism=4).sink(
        inbox.sink
    )
    job = topology.start(
        spark, workers=4, limits=Limits(window_records=8, gathered_records=4, poll_records=3)
    )
    inbox.accept(4)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert len(inbox.lines) == 3_000
    assert job.last_progress.balanced


def test_an_error_in_user_code_fails_the_job_with_operator_record_and_traceback(spark: Any) -> None:
    def divide(n: int) -> float:
        return 1 / (n - 77)

    topology = tr.Topology()
    topology.source(range(100)).map(divide, name="divide").sink(lambda _: None)
    job = topology.start(spark, workers=1)
    with pytest.raises(JobFailedError, match="'divide' failed on 77") as failure:
        job.await_termination(PATIENCE_S)
    assert "ZeroDivisionError" in str(failure.value)
    assert "in divide" in str(failure.value)
    assert job.status == "failed"


def test_stop_drains_what_is_under_way(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(Endless()).shuffle().map(lambda n: n, parallelism=2).sink(lambda _: None)
    job = topology.start(spark, workers=2)
    running(job)
    job.stop()
    progress = job.last_progress
    assert job.status == "stopped"
    assert progress.balanced
    assert progress.delivered == progress.emitted["source"] > 0


def test_a_job_can_be_stopped_before_its_workers_are_there(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(Endless()).shuffle().map(lambda n: n, parallelism=2).sink(lambda _: None)
    job = topology.start(spark, workers=2)
    job.stop()
    assert job.status == "stopped"
    assert job.exception() is None


@pytest.mark.parametrize("drain", [True, False])
def test_when_a_job_is_over_so_are_its_tasks(spark: Any, drain: bool) -> None:
    topology = tr.Topology()
    topology.source(Endless()).shuffle().map(lambda n: n, parallelism=2).sink(lambda _: None)
    job = topology.start(spark, workers=2)
    running(job)
    tracker = spark.sparkContext.statusTracker()
    (number,) = tracker.getJobIdsForGroup(job.id)
    assert number in tracker.getActiveJobsIds()
    job.stop(drain=drain)
    deadline = time.monotonic() + PATIENCE_S
    while tracker.getJobInfo(number).status == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.01)  # Spark hears of it a moment later
    assert tracker.getJobInfo(number).status == "SUCCEEDED"  # and not cancelled


def test_recent_progress_has_what_was_reported_though_nobody_asked(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(tr.sources.rate(1000)).sink(lambda _: None)
    job = topology.start(spark, workers=1)
    while len(job.recent_progress) < 3 and job.is_active:
        time.sleep(0.05)
    job.stop()
    emitted = [summary.emitted["source"] for summary in job.recent_progress]
    assert len(emitted) >= 3
    assert emitted == sorted(emitted)
    assert emitted[-1] == job.last_progress.emitted["source"]


def test_the_users_context_is_left_as_it_was(
    spark: Any, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "/usr/bin/no-python")
    before = (context.pythonExec, dict(context.environment))
    topology = tr.Topology()
    topology.source(range(10)).sink(inbox.sink)
    topology.explain(spark)
    job = topology.start(spark, workers=1)  # it runs our Python nevertheless
    inbox.accept(1)
    assert job.await_termination(PATIENCE_S)
    rows = topology.transform(spark.range(3), "n long", workers=1).collect()
    assert sorted(row["n"] for row in rows) == [0, 1, 2]
    assert (context.pythonExec, dict(context.environment)) == before


class NeverDone(Lines):
    def close(self) -> None:
        raise OSError("the disk is full")


def test_a_sink_that_cannot_close_fails_the_job(spark: Any, inbox: Inbox) -> None:
    topology = tr.Topology()
    topology.source([1, 2, 3]).sink(NeverDone(inbox.sink.address), name="disk")
    job = topology.start(spark, workers=1)
    inbox.accept(1)
    with pytest.raises(JobFailedError, match=r"'disk'.*the disk is full"):
        job.await_termination(PATIENCE_S)


class Lazy(tr.Source):
    """Never has anything, and wants to be asked all the time."""

    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> tr.Reader:
        return _LazyReader()


class _LazyReader(tr.Reader):
    def poll(self, most: int) -> list[int]:
        return []


def test_a_worker_that_is_always_due_still_hears_a_stop(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(Lazy()).sink(lambda _: None)
    job = topology.start(spark, workers=1)
    while not job.last_progress.operators["source"].records_in and not job.last_progress.at_ns:
        threading.Event().wait(0.02)
    job.stop()
    assert job.status == "stopped"
    assert job.last_progress.phase == "stopped"


@pytest.mark.parametrize("drain", [True, False])
def test_after_a_stop_nothing_is_left(spark: Any, drain: bool) -> None:
    topology = tr.Topology()
    topology.source(Endless()).shuffle().map(lambda n: n, parallelism=2).sink(lambda _: None)
    threads = threading.active_count()
    job = topology.start(spark, workers=2)
    running(job)
    workers = pids(job)
    assert any(descriptors(pid) for pid in workers)
    job.stop(drain=drain)
    for pid in workers:  # Spark keeps the processes for the next job; nothing of ours is in them
        assert not Path(f"/proc/{pid}").exists() or not descriptors(pid)
    for thread in threading.enumerate():
        if thread.name.startswith("tailrace"):
            thread.join(PATIENCE_S)
    assert threading.active_count() <= threads


@pytest.mark.parametrize("node", ["memory", "worker"])
def test_whoever_is_killed_is_named_and_not_who_lost_it(spark: Any, node: str) -> None:
    """The others often notice first, by their closed connections."""
    for kill in range(8):
        topology = tr.Topology()
        topology.source(Endless()).shuffle().map(lambda n: n, parallelism=3).sink(lambda _: None)
        job = topology.start(spark, workers=3, node=node)
        running(job)
        victim = pids(job)[kill % 3]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(JobFailedError) as failure:
            job.await_termination(PATIENCE_S)
        assert str(failure.value).startswith(
            f"worker {kill % 3} (pid {victim} on 127.0.0.1) is gone: killed"
        )
        assert "Traceback" not in str(failure.value)


def test_a_worker_without_any_instance_does_no_harm(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(range(10)).sink(lambda _: None)
    job = topology.start(spark, workers=3)
    assert job.await_termination(PATIENCE_S)
    assert job.last_progress.delivered == 10


def test_a_job_explains_what_runs_where_and_how_workers_reach_each_other(spark: Any) -> None:
    topology = tr.Topology("pair")
    topology.source(range(10)).shuffle().map(abs, parallelism=2).sink(lambda _: None)
    job = topology.start(spark, workers=2)
    assert job.await_termination(PATIENCE_S)
    assert job.explain().splitlines() == [
        "pair",
        "  source -> map (shuffle)",
        "  map -> sink (forward)",
        "worker 0: ring to 1",
        "  source",
        "  map + sink (2 of 2)",
        "worker 1: ring to 0",
        "  map + sink (1 of 2)",
    ]
    assert topology.explain(2) == job.explain().replace(": ring to 1", "").replace(
        ": ring to 0", ""
    )


class Suicidal(Endless):
    """Kills its worker before the job runs."""

    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> tr.Reader:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_of_a_worker_that_dies_at_the_start_spark_says_why(spark: Any) -> None:
    topology = tr.Topology()
    topology.source(Suicidal()).shuffle().map(lambda n: n, parallelism=2).sink(lambda _: None)
    job = topology.start(spark, workers=2)
    pattern = r"Spark ended the workers: .*; before that, worker 0 \(pid \d+ on 127.0.0.1\) is gone"
    with pytest.raises(JobFailedError, match=pattern):
        job.await_termination(PATIENCE_S)


def test_a_task_that_fails_before_it_is_a_worker_is_told_as_spark_tells_it(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([1]).sink(print)
    job = topology.start(spark, workers=1, ring_bytes=1)
    with pytest.raises(JobFailedError, match=r"Spark ended the workers: .*\b1\b"):
        job.await_termination(PATIENCE_S)


def test_more_workers_than_slots_are_refused_at_once(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([1]).sink(print)
    with pytest.raises(ValueError, match="9 workers were asked for; this Spark has 4 task slots"):
        topology.start(spark, workers=9)


@pytest.mark.parametrize("options", [{}, {"placement": (0,)}, {"scheduler": "spread"}])
def test_less_than_one_worker_is_refused(spark: Any, options: dict[str, Any]) -> None:
    topology = tr.Topology()
    topology.source([1]).sink(print)
    with pytest.raises(ValueError, match="workers is 0; it must be at least 1"):
        topology.start(spark, workers=0, **options)


def test_workers_that_are_no_whole_number_are_refused(spark: Any) -> None:
    topology = tr.Topology()
    topology.source([1]).sink(print)
    with pytest.raises(TypeError, match=r"workers is 1\.5; it must be a whole number"):
        topology.start(spark, workers=1.5)  # type: ignore[arg-type]


def test_what_is_no_session_is_refused() -> None:
    topology = tr.Topology()
    topology.source([1]).sink(print)
    with pytest.raises(TypeError, match="a SparkSession is needed to run on; got None"):
        topology.start(None)


def test_a_job_that_waits_for_task_slots_says_so(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(launch._LOG, "warning", lambda text, *values: warnings.put(text % values))
    holder, waiting = tr.Topology("holder"), tr.Topology("waiting")
    for topology in (holder, waiting):
        topology.source(Endless(), parallelism=3).sink(lambda _: None)
    first = holder.start(spark, workers=3)
    assert first.await_running(PATIENCE_S)
    monkeypatch.setattr(launch, "_SOON_S", 0.2)
    second = waiting.start(spark, workers=2)
    try:
        message = warnings.get(timeout=PATIENCE_S)
        assert message.startswith("2 of 2 workers of 'waiting' have not started after 0.2 s: other")
        first.stop(drain=False)
        assert second.await_running(PATIENCE_S)
        assert warnings.empty()
    finally:
        first.stop(drain=False)
        second.stop(drain=False)


def test_a_list_in_this_process_is_refused_as_a_sink(spark: Any) -> None:
    topology = tr.Topology()
    stream = topology.source([1])
    stream.sink(print)
    collect(stream)
    message = r"'sink 2' is a sink of tailrace.testing.collect\(\), .* on Spark end the stream in"
    with pytest.raises(ValueError, match=message):
        topology.start(spark)
    with pytest.raises(ValueError, match=message):
        topology.transform(spark.range(1), "n long", sink="sink")


def test_records_larger_than_a_ring_travel(spark: Any, inbox: Inbox) -> None:
    topology = tr.Topology()
    sizes = [100_000, 1, 3_000_000, 5]
    topology.source([bytes(size) for size in sizes]).shuffle().map(len, parallelism=2).sink(
        inbox.sink
    )
    job = topology.start(spark, workers=2, ring_bytes=1 << 16, placement=(0, 1, 1))
    inbox.accept(2)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert sorted(map(int, inbox.lines)) == sorted(sizes)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_records_that_cannot_travel_go_by_the_policy_of_who_put_them_out(
    spark: Any, inbox: Inbox, policy: str
) -> None:
    topology = tr.Topology()
    options: Any = {"name": "made", "on_error": policy}
    made = topology.source(range(5)).map(lambda n: (lambda: n) if n == 3 else n, **options)
    made.shuffle().map(str, parallelism=1).sink(inbox.sink)
    job = topology.start(spark, workers=2, placement=(0, 1))
    inbox.accept(1)
    if policy == "fail":
        with pytest.raises(JobFailedError, match=r"'made' failed on <function.*made -> map"):
            job.await_termination(PATIENCE_S)
    else:
        assert job.await_termination(PATIENCE_S)
        assert job.last_progress.operators["made"].skipped == 1
    inbox.close()
    if policy == "skip":
        assert [line.strip("'") for line in inbox.lines] == ["0", "1", "2", "4"]


def test_a_ring_that_is_always_full_loses_nothing(spark: Any, inbox: Inbox) -> None:
    topology = tr.Topology()
    stream = topology.source(range(60_000)).shuffle().map(lambda n: n, parallelism=2)
    stream.shuffle().map(lambda n: n, parallelism=2).sink(inbox.sink)
    job = topology.start(spark, workers=2, ring_bytes=4096)
    inbox.accept(2)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert sorted(map(int, inbox.lines)) == list(range(60_000))
    assert job.last_progress.balanced


def test_jumbos_larger_than_a_ring_go_in_pieces(spark: Any, inbox: Inbox) -> None:
    topology = tr.Topology()
    records = [bytes(10_000)] * 300
    topology.source(records).shuffle().map(len, parallelism=2).sink(inbox.sink)
    job = topology.start(spark, workers=2, ring_bytes=1 << 16)
    inbox.accept(2)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert inbox.lines == ["10000"] * 300


@pytest.mark.parametrize("node", ["memory", "worker"])
def test_a_window_of_few_large_records_loses_nothing(spark: Any, inbox: Inbox, node: str) -> None:
    """The bytes run out long before the records do; some jumbos are larger than a ring, too."""
    topology = tr.Topology()
    records = [bytes(n % 7 * 10_000) for n in range(600)]
    topology.source(records).shuffle().map(len, parallelism=2).sink(inbox.sink)
    job = topology.start(
        spark, workers=2, node=node, ring_bytes=1 << 18, limits=Limits(window_bytes=100_000)
    )
    inbox.accept(2)
    assert job.await_termination(PATIENCE_S)
    inbox.close()
    assert sorted(map(int, inbox.lines)) == sorted(map(len, records))
    assert job.last_progress.balanced
