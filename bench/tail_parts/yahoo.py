"""Yahoo's page load and processing topologies, each technique where it should help (table 5.5).

Five instances of each operator on five workers, and a setting for each technique as in 5.2 of the
thesis:

- replay: 240 records per second and source. The thesis has a cluster whose machines stall by
  themselves; here a worker without a source is stopped for 20 ms in every slice (SIGSTOP).
- shared: every operator waits for 1 ms, workers are about 80% busy. A worker has one thread here,
  so the instances of an operator are in five workers, and not in one.
- balance: every operator does additions; one worker, without a source, gets half of its time, 5 ms
  of every 10, as by a CPU quota. The thesis has a smaller machine there.

In the quick run `rounds` are fewer than five. In the full one all techniques are in all settings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tailrace as tr
from harness.arrivals import POISSON, pace_of
from tail_parts.disturbing import halved, stopping
from tail_parts.stage import Stage, of_histograms, ship, slices_by_progress
from tailrace.apps import yahoo_page_load, yahoo_processing
from tailrace.connectors.generate import Generate
from tailrace.graph.wiring import wire
from tailrace.runtime.sink import Sink
from tailrace.spark.job import Job

WORKERS = 5
_PATIENCE_S = 30.0
_OVERSLEEPS_S = 0.00008


class Setting(NamedTuple):
    """Where a technique is meant to help."""

    per_s: float
    operations: int = 0
    delay_s: float = 0.0


SETTINGS = {
    "replay": Setting(1200.0),
    "shared": Setting(600.0, delay_s=0.001 - _OVERSLEEPS_S),
    "balance": Setting(600.0, operations=8_000),
}


def load(i: int) -> str:
    """A line of the log, by its number, which is also its user."""
    chance = random.Random(i)
    status = 200 if chance.random() < 0.9 else 500
    return f"/page/{chance.randrange(yahoo_page_load.PAGES)} user{i} {status} 10 20 30 40"


def event(i: int) -> str:
    """An event, by its number, which is also what was paid."""
    chance = random.Random(i)
    action = chance.choice(["look", "look", "look", "buy"])
    return f"user{i % yahoo_processing.USERS} item{i % yahoo_processing.ITEMS} {action} {i} JPY"


class Numbers(Sink):
    """Keeps the numbers in lines that come, and leaves them in a folder."""

    def __init__(self, folder: Path, name: str, word: int) -> None:
        self.folder = folder
        self.name = name
        self.word = word

    def open(self, index: int, parallelism: int) -> None:
        self._path = self.folder / f"{self.name}-{index}"
        self._seen: list[str] = []

    def write(self, records: Iterator[str]) -> None:
        self._seen.extend(record.split()[self.word].removeprefix("user") for record in records)

    def close(self) -> None:
        self._path.write_text("\n".join(self._seen))


def page_load(setting: Setting, folder: Path) -> tr.Topology:
    """Costs of page loads."""
    source = Generate(load, pace=pace_of(POISSON, setting.per_s))
    topology, lines = yahoo_page_load.yahoo_page_load(
        source, WORKERS, setting.operations, setting.delay_s
    )
    lines.sink(Numbers(folder, "costs", 1), name="sink")
    return topology


def processing(setting: Setting, folder: Path) -> tr.Topology:
    """Purchases and interest."""
    source = Generate(event, pace=pace_of(POISSON, setting.per_s))
    topology, (purchases, interests) = yahoo_processing.yahoo_processing(
        source, WORKERS, setting.operations, setting.delay_s
    )
    purchases.sink(Numbers(folder, "purchases", 2), name="sink 1")
    interests.sink(Numbers(folder, "interests", 2), name="sink 2")
    return topology


def _has_cost(i: int) -> bool:
    page, _, status, *_ = load(i).split()
    return status == "200" and page in yahoo_page_load.SITE_OF


TOPOLOGIES: dict[str, Callable[[Setting, Path], tr.Topology]] = {
    "page_load": page_load,
    "processing": processing,
}
OUTPUTS: dict[str, Callable[[int], bool]] = {
    "costs": _has_cost,
    "purchases": lambda i: event(i).split()[2] == "buy",
    "interests": lambda i: True,
}
"""Which numbers come out there."""


def audit(folder: Path) -> tuple[int, int]:
    """How many numbers are missing, and how many are there too often.

    What each source came to is not known to the sinks; a gap is what is missing.
    """
    lost = duplicated = 0
    for name, comes_out in OUTPUTS.items():
        numbers = [
            int(text) for path in folder.glob(f"{name}-*") for text in path.read_text().split()
        ]
        seen, last = set(numbers), dict.fromkeys(range(WORKERS), -1)
        for number in seen:
            last[number % WORKERS] = max(last[number % WORKERS], number)
        lost += sum(
            number not in seen and comes_out(number)
            for share, most in last.items()
            for number in range(share, most + 1, WORKERS)
        )
        duplicated += len(numbers) - len(seen)
    return lost, duplicated


def placement(topology: tr.Topology, technique: str) -> tuple[int, ...]:
    """Evenly; sources only where nobody is stopped, if somebody is."""
    even = tuple(instance % WORKERS for instance in range(wire(topology.graph).instances))
    beside = (*(i % 2 for i in range(WORKERS)), *even[WORKERS:])
    return even if technique == "shared" else beside


def measured(
    stage: Stage,
    job: Job,
    technique: str,
    ways: list[str],
    rounds: int,
    slice_s: float,
    settle_s: float,
) -> dict[str, Any]:
    """All in turns, in the setting that the technique is for."""
    end: Callable[[], None] = lambda: None  # noqa: E731
    options: dict[str, Any] = {}
    if technique == "replay":
        options["during"] = stopping(job, range(2, WORKERS), random.Random(1))
    elif technique == "balance":
        end = halved(job, WORKERS - 1)
    try:
        if technique == "replay":  # it needs a second to know what is late
            slices_by_progress(
                stage, job, ["replay"], rounds=1, slice_s=1.3, settle_s=0.1, **options
            )
        turns = slices_by_progress(
            stage,
            job,
            ways,
            rounds=rounds,
            slice_s=slice_s,
            settle_s=settle_s,
            **options,
        )
    finally:
        end()
    found: dict[str, Any] = {name: of_histograms(one) for name, one in turns.items()}
    for percent in ("p90", "p99", "p99.9"):
        change = 100 * (found[technique][percent] / found["off"][percent] - 1)
        found[f"{percent}_change_percent"] = round(change, 1)
    return found


def run(stage: Stage, quick: bool) -> dict[str, Any]:
    """The section's figures."""
    ship(__name__)
    rounds, slice_s, settle_s = (2, 0.35, 0.08) if quick else (15, 2.0, 0.5)
    found: dict[str, Any] = {"rounds": rounds, "lost": 0, "duplicated": 0}
    for name, make in TOPOLOGIES.items():
        found[name] = {}
        for technique, setting in SETTINGS.items():
            stage.say(f"yahoo: {name}, {technique}")
            folder = stage.folder / f"yahoo-{name}-{technique}"
            folder.mkdir()
            topology = make(setting, folder)
            where = placement(topology, technique)
            job = topology.start(stage.spark, placement=where, progress_s=0.05)
            try:
                job.await_running(_PATIENCE_S)
                ways = ["off", technique] if quick else ["off", *SETTINGS]
                one = measured(stage, job, technique, ways, rounds, slice_s, settle_s)
                job.stop(timeout_s=_PATIENCE_S)
            finally:
                if job.is_active:
                    job.stop(drain=False)
            lost, duplicated = audit(folder)
            found["lost"] += lost
            found["duplicated"] += duplicated
            found[name][technique] = one
    return found


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = []
    for name in TOPOLOGIES:
        for technique, setting in SETTINGS.items():
            one = found[name][technique]
            lines.append(f"yahoo {name}, {setting.per_s:,.0f} records/s, made for {technique}")
            lines += [
                f"  {way:8} p50 {one[way]['p50']:>6} ms  p90 {one[way]['p90']:>6}  p99"
                f" {one[way]['p99']:>6} {one[way]['p99_spread']}  p99.9 {one[way]['p99.9']:>6}"
                f"  of {one[way]['records']}"
                for way in ("off", *SETTINGS)
                if way in one
            ]
    return "\n".join(lines)
