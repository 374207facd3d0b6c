"""Worker processes whose hosts were booted hours apart, by clocks that are given to them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import cloudpickle

import tailrace as tr
from tailrace.control.coordinator import Coordinator
from tailrace.control.progress.summary import Summary, summarise
from tailrace.control.protocol import Settings
from tailrace.control.worker import Worker
from tailrace.graph.wiring import wire
from tailrace.runtime.core import DEFAULT_LIMITS
from tailrace.runtime.source import Reader, Source

PATIENCE_S = 60.0


def clock(ahead_s: float, drift: float) -> Callable[[], int]:
    """A host's clock, as far ahead of this one as said, and faster or slower."""
    began_ns = time.monotonic_ns()

    def now_ns() -> int:
        true_ns = time.monotonic_ns()
        return true_ns + int(ahead_s * 1e9) + int((true_ns - began_ns) * drift)

    return now_ns


def _work(settings: Settings, rank: int, ahead_s: float, drift: float) -> None:
    Worker(settings, rank, "here", host_clock_ns=clock(ahead_s, drift)).run()


def run_apart(
    topology: tr.Topology, placement: tuple[int, ...], clocks: Sequence[tuple[float, float]]
) -> Summary:
    """Run it with a worker process for each (hours ahead in s, drift); what it did."""
    coordinator = Coordinator(len(clocks), "127.0.0.1", lambda: None)
    job = cloudpickle.dumps((topology.graph, placement, DEFAULT_LIMITS))
    settings = Settings(len(clocks), coordinator.address, coordinator.secret, job, node="worker")
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(settings, rank, *one), daemon=True)
        for rank, one in enumerate(clocks)
    ]
    for process in processes:
        process.start()
    try:
        coordinator.join(PATIENCE_S)
        assert coordinator.roster.phase == "stopped", coordinator.roster.reason
        return summarise(coordinator.roster, wire(topology.graph))
    finally:
        coordinator.stop(drain=False)
        for process in processes:
            process.join(PATIENCE_S)
            if process.is_alive():
                process.kill()


class Times(Source):
    """The job's clock between two readings of this machine's, many times a second."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def open(self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return _TimesReader(split.index, clock_ns, self.seconds)


class _TimesReader(Reader):
    def __init__(self, index: int, clock_ns: Callable[[], int], seconds: float) -> None:
        self._index = index
        self._clock_ns = clock_ns
        self._next_ns = clock_ns()
        self._end_ns = self._next_ns + int(seconds * 1e9)

    def due_ns(self) -> int | None:
        return self._next_ns

    def poll(self, most: int) -> list[tuple[int, int, int, int]] | None:
        before_ns = time.monotonic_ns()
        now_ns = self._clock_ns()
        after_ns = time.monotonic_ns()
        if now_ns >= self._end_ns:
            return None
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + 10_000_000
        return [(self._index, before_ns, now_ns, after_ns)]
