"""Progress while operators are slow: from aside, and with the name of who holds up whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import tailrace as tr
from tailrace.control.coordinator import Coordinator
from tailrace.control.progress.summary import Summary, WorkerProgress, summarise
from tailrace.control.protocol import Settings
from tailrace.control.pulse import Pulse
from tailrace.control.worker import Worker
from tailrace.graph.wiring import wire
from tailrace.runtime.core import DEFAULT_LIMITS

PATIENCE_S = 60.0
INSIDE, GO_ON = threading.Event(), threading.Event()


def slow(number: int) -> int:
    INSIDE.set()
    GO_ON.wait(PATIENCE_S)
    return number


@contextmanager
def running(topology: tr.Topology, placement: tuple[int, ...]) -> Iterator[Coordinator]:
    workers = max(placement) + 1
    coordinator = Coordinator(workers, "127.0.0.1", lambda: None)
    settings = Settings(workers, coordinator.address, coordinator.secret, b"")
    job = (topology.graph, placement, DEFAULT_LIMITS)

    def work(rank: int) -> None:
        Worker(settings, rank, "here", job).run()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield coordinator
    finally:
        coordinator.stop(drain=False)
        for thread in threads:
            thread.join(PATIENCE_S)
        coordinator.join(PATIENCE_S)


def test_a_worker_inside_one_slow_record_still_reports_and_says_where() -> None:
    INSIDE.clear()
    GO_ON.clear()
    topology = tr.Topology("slow")
    topology.source(range(3)).shuffle().map(slow, name="slow").sink(lambda _: None)
    wiring = wire(topology.graph)
    with running(topology, (0,) * wiring.instances) as coordinator:
        try:
            assert INSIDE.wait(PATIENCE_S)
            found = [held(coordinator, topology, at_least_s) for at_least_s in (0.1, 2.0)]
        finally:
            GO_ON.set()
        for summary in found:
            worker = summary.workers[0]
            assert worker.held_in == "slow"
            assert summary.emitted == {"source": 3}
        assert found[1].workers[0].held_s > found[0].workers[0].held_s
        coordinator.join(PATIENCE_S)
        assert coordinator.roster.phase == "stopped"
        last = summarise(coordinator.roster, wiring, coordinator.clock.clock_ns())
        assert last.workers[0].held_s == 0
        assert last.delivered == 3
    assert not [one for one in threading.enumerate() if one.name == "tailrace-aside"]


def a_bit_slow(number: int) -> int:
    GO_ON.wait(0.005)
    return number


def test_in_a_backlog_progress_says_who_holds_up_whom() -> None:
    GO_ON.clear()
    topology = tr.Topology("backlog")
    numbers = topology.source(range(1_000_000)).shuffle().map(abs, name="quick").shuffle()
    numbers.map(a_bit_slow, name="slow").sink(lambda _: None)
    wiring = wire(topology.graph)
    with running(topology, (0, 0, 1)) as coordinator:
        summary = None
        deadline_s = time.monotonic() + PATIENCE_S
        while summary is None or not (
            "quick -> slow" in summary.throttled and summary.queued.get("slow + sink")
        ):
            assert time.monotonic() < deadline_s, summary
            time.sleep(0.01)
            summary = summarise(coordinator.roster, wiring, coordinator.clock.clock_ns())
        GO_ON.set()  # to end sooner


def held(coordinator: Coordinator, topology: tr.Topology, at_least_s: float) -> Summary:
    """The first summary that says that the worker has been held up for so long."""
    wiring = wire(topology.graph)
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        summary = summarise(coordinator.roster, wiring, coordinator.clock.clock_ns())
        if 0 in summary.workers and summary.workers[0].held_s >= at_least_s:
            return summary
        time.sleep(0.01)
    raise AssertionError(f"nobody has said for {PATIENCE_S} s that the worker is held up")


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (WorkerProgress(1.0, 0.3, 0.0), ""),
        (WorkerProgress(1.0, 0.3, 0.0, 4.2, "slow"), "held up by 'slow' for 4 s"),
        (WorkerProgress(1.0, 7.0, 0.0, 4.2, "slow"), "silent for 7 s, in 'slow'"),
        (WorkerProgress(1.0, 7.0, 0.0), "silent for 7 s"),
    ],
)
def test_trouble_is_put_in_words(worker: WorkerProgress, words: str) -> None:
    assert worker.trouble == words


def test_a_pulse_that_beats_is_not_silent() -> None:
    pulse = Pulse()
    silent = []
    waiting = threading.Thread(target=lambda: silent.append(pulse.await_silence(3_600_000)))
    waiting.start()
    pulse.beat()
    pulse.stop()
    waiting.join(PATIENCE_S)
    pulse.close()
    assert silent == [False]


def test_a_pulse_that_has_stopped_is_noticed() -> None:
    pulse = Pulse()
    assert pulse.await_silence(20)
    pulse.close()
