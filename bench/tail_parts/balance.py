"""Heterogeneous workers: records in turn, Du's balancing, Storm's, and ours (table 5.3).

Four operators in a line, shuffled, with work in each of the last three, on five workers. As in
5.1.3 of the thesis:

- a: the source has 5 instances and the others 3 each, so that workers have 3, 3, 3, 3 and 2;
- b: all have 5; two of the workers share their core with a program that compresses data;
- c: all have 5; one worker is half as fast as the others.

Work is arithmetic in b, where workers 0 and 1 are bound to one core and the others to another. In a
and c, where five machines are meant and there are few cores, it is sleep, of twice the length in
the slow worker: so a worker can be as busy as in the thesis though there are fewer cores.

Du's and Storm's policies change something every 5 s only. In the quick run they are on for less
than that in all: they have not begun by then, and stand for what they are until then. In the full
run each policy is on for `FULL_S` before it is measured, in a job of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import tailrace as tr
from tail_parts import stage as stage_module
from tail_parts.stage import Arriving, Noted, Stage, audit, in_turns, notes_in, summed_up
from tailrace.spark.job import Job
from tailrace.tail.modes import Tail

WORKERS = 5
MODES: tuple[Tail, ...] = ("off", "du", "storm", "balance", "shared")
FULL_S = 90.0
OPERATIONS = 20_000
SLEEP_S = 0.0005
_OVERSLEEPS_S = 0.00008
_COMPRESS = "import os, zlib\nwhile True: zlib.compress(os.urandom(1 << 20), 9)"
SCENARIOS: dict[str, float] = {"a": 1_500.0, "b": 600.0, "c": 1_100.0}
"""With records per second."""


class Work(tr.Operator):
    """Arithmetic, or sleep; twice as long in the slow worker."""

    def __init__(self, scenario: str, last: bool) -> None:
        self.scenario = scenario
        self.last = last

    def process(self, record: tuple[int, int]) -> None:
        """The work, and the record; from the last with when it began."""
        now_ns = time.monotonic_ns()
        if self.scenario == "b":
            sum(range(OPERATIONS))
        else:
            slow = self.scenario == "c" and self.instance.index == WORKERS - 1
            time.sleep(SLEEP_S * (1 + slow) - _OVERSLEEPS_S)
        self.emit((*record, now_ns) if self.last else record)


def topology(scenario: str, folder: Path) -> tr.Topology:
    """Source -> first -> second -> third and sink."""
    made = tr.Topology("line")
    arriving = Arriving(SCENARIOS[scenario], seed=2)
    stream = made.source(arriving, name="arriving", parallelism=WORKERS)
    for name in ("first", "second", "third"):
        work = Work(scenario, last=name == "third")
        stream = stream.shuffle().process(work, name=name, parallelism=bolts(scenario))
    stream.sink(Noted(folder))
    return made


def bolts(scenario: str) -> int:
    """Instances of each operator behind the source."""
    return 3 if scenario == "a" else WORKERS


def bind(job: Job) -> None:
    """Workers 0 and 1 to one core, the others to another, if there are two."""
    cores = sorted(os.sched_getaffinity(0))
    for worker in job.workers:
        core = cores[0] if worker["rank"] < 2 else cores[min(1, len(cores) - 1)]
        os.sched_setaffinity(worker["pid"], {core})


def compressing(job: Job) -> Callable[[], None]:
    """A program beside workers 0 and 1; what ends it."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", _COMPRESS])
    os.sched_setaffinity(process.pid, {core})

    def end() -> None:
        process.kill()
        process.wait()

    return end


def disturbed(scenario: str, job: Job) -> Callable[[], None]:
    """Make a scenario of a job."""
    if scenario != "b":
        return lambda: None
    bind(job)
    return compressing(job)


def scene(stage: Stage, scenario: str, quick: bool) -> dict[str, Any]:
    """All contestants in one scenario."""
    instances = WORKERS + 3 * bolts(scenario)
    placement = tuple(instance % WORKERS for instance in range(instances))
    found: dict[str, Any] = {"lost": 0, "duplicated": 0}
    turns: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    together = [MODES] if quick else [(mode,) for mode in MODES]
    for number, modes in enumerate(together):
        folder = stage.folder / f"balance-{scenario}-{number}"
        folder.mkdir()
        slices = in_turns(
            stage,
            topology(scenario, folder),
            modes,
            rounds=5,
            slice_s=0.5 if quick else 6.0,
            settle_s=0.15 if quick else 1.0,
            placement=placement,
            before=lambda job: disturbed(scenario, job),
            warm_s=0.0 if quick else FULL_S,
        )
        notes = notes_in(folder)
        lost, duplicated = audit(notes, WORKERS)
        found["lost"] += lost
        found["duplicated"] += duplicated
        for mode in modes:
            turns[mode] += slices.latencies_ms(notes, mode)
    for mode in MODES:
        found[mode] = summed_up(turns[mode])
    for mode in MODES[1:]:
        change = 100 * (found[mode]["p99"] / found["off"]["p99"] - 1)
        found[f"{mode}_p99_change_percent"] = round(change, 1)
    return found


def run(stage: Stage, quick: bool) -> dict[str, Any]:
    """The section's figures."""
    cloudpickle.register_pickle_by_value(stage_module)
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    found: dict[str, Any] = {}
    for scenario in SCENARIOS:
        stage.say(f"balance: scenario {scenario}")
        found[scenario] = scene(stage, scenario, quick)
    for what in ("lost", "duplicated"):
        found[what] = sum(found[scenario][what] for scenario in SCENARIOS)
    return found


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = []
    for scenario in SCENARIOS:
        one = found[scenario]
        lines.append(f"scenario {scenario}, {SCENARIOS[scenario]:,.0f} records/s")
        lines += [
            f"  {mode:8} p50 {one[mode]['p50']:>6} ms  p90 {one[mode]['p90']:>6}  p99"
            f" {one[mode]['p99']:>6} {one[mode]['p99_spread']}  p99.9 {one[mode]['p99.9']:>6}"
            f"  of {one[mode]['records']}"
            for mode in MODES
        ]
    return "\n".join(lines)
