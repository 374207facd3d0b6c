"""Two real workers side by side, and the CPU time that records cost each of them.

The workers are those of the engine, as processes of their own, without Spark. They run one trial
after the other. The CPU time of some turns of a worker's loop, divided by their records, is one
value, and the median is the result: that is robust against whatever else the machine does.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settings
from tailrace.control.waiting import Policy
from tailrace.control.worker import Worker
from tailrace.graph.model import DEAD_LETTERS, Graph, Grouping, Operator, Record, Rule, Stream
from tailrace.graph.wiring import wire
from tailrace.planner.yardstick import Yardstick
from tailrace.runtime.deployment import NOWHERE
from tailrace.runtime.limits import DEFAULT_LIMITS
from tailrace.runtime.reading import SourceLogic
from tailrace.runtime.sink import Sink, SinkLogic
from tailrace.runtime.source import Reader, Source, Split

ALONE, FUSED, LOCAL, ACROSS = "alone", "fused", "local", "across"
RECORDS = 50_000
"""Of each trial, at most."""
LONGEST_S = 0.2
"""What a trial may take."""
_BREATH_S = 0.0005
_TOGETHER = 5
"""Jumbos that make one value, at least: not each turn writes to its socket."""
_TIMEOUT_S = 30.0
_OVER = object()


@dataclass(frozen=True)
class Trial:
    """A source and, but for ALONE, a sink: in its chain, in its worker, or in the other one."""

    distance: str
    jumbo_records: int
    record_bytes: int


@dataclass(frozen=True)
class _Replay(Source):
    """The same jumbo of text again and again."""

    trial: Trial

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return _ReplayReader(self.trial, clock_ns)


class _ReplayReader(Reader):
    def __init__(self, trial: Trial, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._jumbo = text_records(trial.jumbo_records, trial.record_bytes)
        self._left = RECORDS // trial.jumbo_records
        self._ends_ns = clock_ns() + int(LONGEST_S * 1e9)

    def poll(self, most: int) -> list[Record] | None:
        if not self._left or self._clock_ns() > self._ends_ns:
            return None
        self._left -= 1
        return self._jumbo.copy()


class _Nowhere(Sink):
    def write(self, records: Iterator[Record]) -> None:
        for _ in records:
            pass


def text_records(count: int, size_bytes: int) -> list[str]:
    """Different texts of that size."""
    return [f"{i:0{size_bytes}}" for i in range(count)]


def _topology(trials: Sequence[Trial]) -> tuple[Graph, tuple[int, ...], tuple[int, ...]]:
    """Source i and sink i for trial i; the worker of each instance, and its trial."""
    operators, streams, placement, trial_of = [], [], [], []
    for i, trial in enumerate(trials):
        source, sink = f"source {i}", f"sink {i}"
        operators.append(Operator(source, SourceLogic(_Replay(trial)), is_source=True))
        if trial.distance != ALONE:
            rule = Rule.FORWARD if trial.distance == FUSED else Rule.SHUFFLE
            operators.append(Operator(sink, SinkLogic(_Nowhere()), outputs=(DEAD_LETTERS,)))
            streams.append(Stream(source, sink, Grouping(rule)))
    graph = Graph("calibration", tuple(operators), tuple(streams))
    for chain in wire(graph).chains:
        kind, number = chain.operators[0].split()
        trial_of.append(int(number))
        placement.append(int(kind == "sink" and trials[int(number)].distance == ACROSS))
    return graph, tuple(placement), tuple(trial_of)


class _Breath(Policy):
    """Waits a moment, and has nobody ring: spinning and ringing would count as work."""

    def nap_ns(self, now_ns: int, worked_ns: int, due_ns: int | None) -> int:
        return int(_BREATH_S * 1e9)


class _Watch:
    """Notes what a worker's turns cost, by trial, some turns together."""

    def __init__(self, worker: Worker, rank: int, trials: Sequence[Trial], yardstick: Yardstick):
        self._worker = worker
        self._rank = rank
        self._trials = trials
        self._yardstick = yardstick
        self._at = -1
        self._seen: Counter[str] = Counter()
        self._trial = -1  # whose costs are being added up
        self._spent_ns = 0.0
        self._records = 0
        self.costs_ns: list[list[float]] = [[] for _ in trials]

    def run(self) -> None:
        """Until the worker has ended."""
        turns = self._worker.turns()
        going = next(turns, _OVER)
        while going is not _OVER:
            if self._rank == 0:
                self._take_turns()
            else:
                time.sleep(_BREATH_S)  # a worker that is the bottleneck finds several messages
            factor = self._yardstick.factor()
            began_ns = time.thread_time_ns()
            going = next(turns, _OVER)
            self._note((time.thread_time_ns() - began_ns) * factor)

    def _note(self, turn_ns: float) -> None:
        self._spent_ns += turn_ns
        for trial, records in self._moved().items():
            if trial != self._trial:
                self._trial, self._spent_ns, self._records = trial, turn_ns, 0
            self._records += records
            if self._records >= _TOGETHER * self._trials[trial].jumbo_records:
                self.costs_ns[trial].append(self._spent_ns / self._records)
                self._spent_ns = 0.0
                self._records = 0

    def _take_turns(self) -> None:
        """Sources that wait would cost something: have a core of the current trial's alone."""
        core = self._worker.core
        assert core is not None
        if self._at + 1 < len(self._trials) and (self._at < 0 or core.ended):
            self._at += 1
            graph, placement, trial_of = _topology(self._trials)
            mine = tuple(
                place if trial == self._at else NOWHERE
                for place, trial in zip(placement, trial_of, strict=True)
            )
            self._worker.work_on((graph, mine, DEFAULT_LIMITS))

    def _moved(self) -> dict[int, int]:
        """Records since the last turn, by trial."""
        core = self._worker.core
        assert core is not None
        moved: dict[int, int] = {}
        for instance in core.instances:
            name = instance.chain.operators[0]
            records = instance.counts[name].records_in - self._seen[name]
            if records:
                self._seen[name] += records
                trial = int(name.split()[1])
                moved[trial] = max(moved.get(trial, 0), records)
        return moved


def run_pair(
    trials: Sequence[Trial],
    *,
    yardstick_ns: float,
    by_tcp: bool = False,
    cores: tuple[Collection[int], Collection[int]] | None = None,
) -> list[tuple[float, float]]:
    """CPU time per record, in ns, of the source's worker and of the other one, by trial.

    Times are for cores on which the yardstick takes `yardstick_ns`.
    The two workers talk through rings, or by TCP over the loopback; they run on the given cores.
    """
    graph, placement, _ = _topology(trials)
    coordinator = Coordinator(2, "127.0.0.1", lambda: None)
    settings = Settings(
        workers=2,
        coordinator=coordinator.address,
        secret=coordinator.secret,
        job=pickle.dumps((graph, placement, DEFAULT_LIMITS)),
        node="worker" if by_tcp else "memory",
    )
    processes = []
    try:
        for rank in (0, 1):
            with tempfile.TemporaryFile() as orders:
                bound = sorted(cores[rank]) if cores else []
                pickle.dump((settings, rank, trials, yardstick_ns, bound), orders)
                orders.seek(0)
                command = [sys.executable, "-m", "tailrace.planner.pair"]
                processes.append(subprocess.Popen(command, stdin=orders, stdout=subprocess.PIPE))
        told = [process.communicate(timeout=_TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        coordinator.stop(drain=False)
        coordinator.join()
    if coordinator.roster.reason:
        raise RuntimeError(f"the calibration failed: {coordinator.roster.reason}")
    sender, receiver = map(json.loads, told)
    return [
        (_middle(trial, sent), _middle(trial, received) if trial.distance == ACROSS else 0.0)
        for trial, sent, received in zip(trials, sender, receiver, strict=True)
    ]


def _middle(trial: Trial, costs_ns: Sequence[float]) -> float:
    if not costs_ns:
        raise RuntimeError(
            f"the calibration failed: {trial} was over before {_TOGETHER} jumbos were timed."
            " Try again when the machine is less busy"
        )
    return median(costs_ns)


def main() -> None:
    """One of the two: told on stdin what to do, tells on stdout what it cost."""
    settings, rank, trials, yardstick_ns, cores = pickle.load(sys.stdin.buffer)
    if cores:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    worker = Worker(settings, rank, "calibration", policy=_Breath())
    watch = _Watch(worker, rank, trials, Yardstick(yardstick_ns))
    watch.run()
    json.dump(watch.costs_ns, sys.stdout)


if __name__ == "__main__":
    # The job names this module's classes by their real module, not by "__main__".
    from tailrace.planner.pair import main as run

    run()
