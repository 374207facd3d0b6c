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
than that in all: they have not begun by then, and stand for what they are until then (only in c).
In the full run each of these two is on for `FULL_S` before it is measured, in a job of its own; the
others take turns in one job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tailrace as tr
from tail_parts.disturbing import bind, compressing
from tail_parts.stage import (
    Arriving,
    Noted,
    Stage,
    audit,
    in_turns,
    notes_in,
    ship,
    summed_up,
)
from tailrace.spark.job import Job

WORKERS = 5
MODES = ("off", "du", "storm", "balance", "shared", "auto")
SLOW = ("du", "storm")
"""They change something every five seconds."""
FULL_S = 90.0
WARM_S = 10.0
OPERATIONS = 20_000
SLEEP_S = 0.0005
_OVERSLEEPS_S = 0.00008
SCENARIOS: dict[str, float] = {"a": 1_500.0, "b": 600.0, "c": 1_100.0}
"""With records per second."""
QUICK_S = {"a": 0.28, "b": 0.34, "c": 0.28}
"""How long slices of a quick run are: fewer records per second take longer to tell anything."""


class Work(tr.Operator):
    """Arithmetic, or sleep; twice as long in the slow worker."""

    def __init__(self, scenario: str, last: bool) -> None:
        self.scenario = scenario
        self.last = last

    def process(self, record: tuple[int, int]) -> None:
        """The work, and the record; from the last with when it began and ended."""
        now_ns = time.monotonic_ns()
        if self.scenario == "b":
            sum(range(OPERATIONS))
        else:
            slow = self.scenario == "c" and self.instance.index == WORKERS - 1
            time.sleep(SLEEP_S * (1 + slow) - _OVERSLEEPS_S)
        self.emit((*record, now_ns, time.monotonic_ns()) if self.last else record)


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


def disturbed(scenario: str, job: Job) -> Callable[[], None]:
    """Make a scenario of a job."""
    if scenario != "b":
        return lambda: None
    bind(job, {0, 1})
    return compressing()


def scene(stage: Stage, scenario: str, quick: bool) -> dict[str, Any]:
    """All contestants in one scenario."""
    instances = WORKERS + 3 * bolts(scenario)
    placement = tuple(instance % WORKERS for instance in range(instances))
    found: dict[str, Any] = {"lost": 0, "duplicated": 0}
    here = [mode for mode in MODES if not quick or scenario == "c" or mode not in SLOW]
    turns: dict[str, list[list[float]]] = {mode: [] for mode in here}
    quickly = [mode for mode in here if mode not in SLOW]
    together = [here] if quick else [quickly, *([mode] for mode in SLOW)]
    for number, modes in enumerate(together):
        folder = stage.folder / f"balance-{scenario}-{number}"
        folder.mkdir()
        slices = in_turns(
            stage,
            topology(scenario, folder),
            modes,
            rounds=5 if quick else 10,
            slice_s=QUICK_S[scenario] if quick else 4.0,
            settle_s=0.1 if quick else 1.0,
            placement=placement,
            before=lambda job: disturbed(scenario, job),
            warm_s=0.0 if quick else FULL_S if modes[0] in SLOW else WARM_S,
            quick=quick,
        )
        found["auto_chose"] = found.get("auto_chose") or slices.chose
        notes = notes_in(folder)
        lost, duplicated = audit(notes, WORKERS)
        found["lost"] += lost
        found["duplicated"] += duplicated
        for mode in modes:
            turns[mode] += slices.latencies_ms(notes, mode)
    for mode in here:
        found[mode] = summed_up(turns[mode])
        if [mode] in together:
            del found[mode]["p99_rounds"]  # they were not beside the others'
    for mode in here[1:]:
        change = 100 * (found[mode]["p99"] / found["off"]["p99"] - 1)
        found[f"{mode}_p99_change_percent"] = round(change, 1)
    return found


def run(stage: Stage, quick: bool) -> dict[str, Any]:
    """The section's figures."""
    ship(__name__)
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
            if mode in one
        ]
    return "\n".join(lines)
