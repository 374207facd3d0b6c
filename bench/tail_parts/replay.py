"""Replay of stragglers: p99, p99.9 and cost of sending late records again, or a share of all twice.

Exclamation as in table 5.2 of Du's thesis: 4 operators of 5 instances each, on 5 workers, with
Poisson arrivals. One job all the time; what is done for its tail is changed while it runs, in
rounds of changing order: nothing, adaptive timeout with replay, and 20, 50 and 100% sent twice at
once; and auto, once it knows. Latency counts from when a record was due to the end of its sink.
`cost_percent` is what was sent twice of all, `cpu_percent` how much more CPU time workers took than
with nothing done.

Three settings. `quiet`: nothing is disturbed on purpose. `stopped`: in every slice some worker is
stopped for 20 ms (SIGSTOP), as a busy neighbour or the host would do; records whose source is in
that worker are late whatever anybody does. `stopped_beside_sources`: only workers without a source
are stopped, so that all that is late could be helped; the thesis, which counts from when a source
has emitted, knows this one only.

`overhead_percent`: what following every batch costs the word count at its highest rate, in CPU time
per sentence: the median of many pairs of short slices of one job, one beside the other and in
changing order. Its `interval` has the true median with 95%: other programs on the machine make a
single pair differ by more than what is measured. With "replay" batches of more than 64
records are not followed; `overhead_as_used_percent` is that, in the full run.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tailrace as tr
from harness.arrivals import POISSON, pace_of
from harness.spread import Spread, limits, rounded
from tail_parts.stage import Stage, chooser, p99_of_histograms, p99s_of, settled, ship
from tailrace.apps.exclamation import exclamation
from tailrace.apps.word_count import count, sentences
from tailrace.connectors.generate import Generate
from tailrace.control.progress.summary import Summary
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.sink import Sink

WAYS = {
    "default": "off",
    "adaptive": "replay",
    "replication_20": "replicate 20%",
    "replication_50": "replicate 50%",
    "replication_100": "replicate 100%",
    "auto": "auto",
}
WORKERS = 5
STOP_S = 0.020
_TELLS_S = 0.02
_PATIENCE_S = 10.0
_OVERHEAD_SLICE_S = 0.12
SPREAD_OUT = tuple(i % WORKERS for i in range(4 * WORKERS))
BESIDE = (*(i % 2 for i in range(WORKERS)), *SPREAD_OUT[WORKERS:])
"""All sources in the first two workers, the rest spread out."""
SETTINGS: dict[str, tuple[tuple[int, ...], Sequence[int]]] = {
    "quiet": (SPREAD_OUT, ()),
    "stopped": (SPREAD_OUT, range(WORKERS)),
    "stopped_beside_sources": (BESIDE, range(2, WORKERS)),
}
"""Placement, and who is stopped now and then."""


@dataclass(frozen=True)
class Plan:
    per_s: float
    rounds: int
    quiet_s: float
    stopped_s: float
    settle_s: float
    overhead_rounds: int
    auto_s: float
    """For so long at most auto looks and tries."""
    stopped_ways: tuple[str, ...]
    """Of the setting in which sources are stopped, too; none: it is left out."""
    beside_ways: tuple[str, ...]


QUICK = Plan(
    per_s=2_000,
    rounds=5,
    quiet_s=0.17,
    stopped_s=0.3,
    settle_s=0.08,
    overhead_rounds=14,
    auto_s=4.0,
    stopped_ways=(),
    beside_ways=("default", "adaptive", "replication_100", "auto"),
)
FULL = Plan(
    per_s=2_000,
    rounds=25,
    quiet_s=1.0,
    stopped_s=0.5,
    settle_s=0.1,
    overhead_rounds=100,
    auto_s=60.0,
    stopped_ways=tuple(WAYS),
    beside_ways=tuple(WAYS),
)


class Seen(Sink):
    """Keeps what came, and leaves it in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, index: int, parallelism: int) -> None:
        self._path = self.folder / f"seen-{index}"
        self._seen: list[str] = []

    def write(self, records: Iterator[Any]) -> None:
        self._seen.extend(records)

    def close(self) -> None:
        self._path.write_text("\n".join(self._seen))


@dataclass
class Found:
    """What the slices of one way gave."""

    latency: Histogram = field(default_factory=Histogram)
    rounds: list[Histogram] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    """Per 1,000 records, by round."""
    runs: int = 0
    copies: int = 0


class Setting:
    """One job, in which all ways have their turns."""

    def __init__(self, stage: Stage, name: str, plan: Plan) -> None:
        self.placement, self.ranks = SETTINGS[name]
        self.plan = plan
        self.seconds = plan.stopped_s if self.ranks else plan.quiet_s
        ways = {"stopped": plan.stopped_ways, "stopped_beside_sources": plan.beside_ways}
        self.found = {way: Found() for way in ways.get(name, tuple(WAYS))}
        self.chance = random.Random(1)
        self.stage = stage

    def measure(self) -> dict[str, Any]:
        """All rounds; then everything that came is counted."""
        chose, policy = "", chooser(self.plan is QUICK, 0.6)
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
            topology, loud = exclamation(Generate(str, pace=pace_of(POISSON, self.plan.per_s)))
            loud.sink(Seen(Path(folder)), name="sink")
            self.job = topology.start(
                self.stage.spark,
                placement=self.placement,
                progress_s=0.05,
                tail=policy,
            )
            self.job.await_running(60)
            chose = settled(self.job, policy, self.plan.auto_s, lambda _: self.disturb())
            for _ in range(3):
                self.slice("replay")  # for a first timeout
            for number in range(self.plan.rounds):
                order = list(self.found)
                random.Random(number).shuffle(order)
                for way in order:
                    took = self.stage.undisturbed(
                        lambda way=way: self.slice(WAYS[way]),  # type: ignore[misc]
                        until_s=self.stage.latest_s,
                    )
                    add(self.found[way], *took)
            self.job.stop()
            emitted = sum(self.job.last_progress.emitted.values())
            seen: Counter[str] = Counter()
            for path in Path(folder).glob("seen-*"):
                seen.update(path.read_text().splitlines())
        told = {way: told_of(one, self.found["default"]) for way, one in self.found.items()}
        return {
            **told,
            "lost": emitted - len(seen),
            "duplicated": sum(seen.values()) - len(seen),
            "auto_chose": chose,
        }

    def slice(self, tail: str) -> tuple[Summary, Summary]:
        """What there was before and after a while of this."""
        self.job.set_tail(tail)
        time.sleep(self.plan.settle_s)
        before = self.job.last_progress
        self.disturb()
        return before, self.job.last_progress

    def disturb(self) -> None:
        """For as long as a slice is, with a stop in between if there are any here."""
        left_s = self.seconds
        if self.ranks:
            pid = self.job.workers[self.chance.choice(self.ranks)]["pid"]
            early_s = self.chance.uniform(0.1, 0.6) * self.seconds
            time.sleep(early_s)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOP_S)
            os.kill(pid, signal.SIGCONT)
            left_s -= early_s + STOP_S
        time.sleep(left_s)


def add(found: Found, before: Summary, after: Summary) -> None:
    latency = after.latency_since(before)
    found.latency.merge(latency)
    found.rounds.append(latency)
    delivered = max(after.delivered - before.delivered, 1)
    found.cpu_s.append(1000 * (sum(after.cpu_s.values()) - sum(before.cpu_s.values())) / delivered)
    found.runs += after.replays.get("runs", 0) - before.replays.get("runs", 0)
    found.copies += after.replays.get("copies", 0) - before.replays.get("copies", 0)


def told_of(found: Found, default: Found) -> dict[str, Any]:
    """The percentiles of all rounds together, and the least and the most of single rounds."""
    told: dict[str, Any] = {"records": found.latency.total}
    for name, percent in (("p50", 50), ("p99", 99), ("p99.9", 99.9)):
        ms = found.latency.percentile_ns(percent) / 1e6
        each = Spread.of([one.percentile_ns(percent) / 1e6 for one in found.rounds])
        told[f"{name}_ms"] = rounded(ms)
        told[f"{name}_ms_rounds"] = limits(each)
        if found is not default:
            base = default.latency.percentile_ns(percent) / 1e6
            told[f"{name}_change_percent"] = round(100 * (ms / base - 1), 1)
    told |= p99s_of(found.rounds, p99_of_histograms)
    if found is not default:
        told["cost_percent"] = round(100 * found.copies / max(found.runs, 1), 2)
        cpu = statistics.median(found.cpu_s) / statistics.median(default.cpu_s)
        told["cpu_percent"] = round(100 * (cpu - 1), 1)
    return told


def overhead(spark: Any, plan: Plan) -> dict[str, Any]:
    """CPU time per sentence of the word count, as fast as it goes, followed and not.

    Of a worker that is never idle its inverse is the highest rate; it is steadier than a rate over
    half a second, for CPU time and records of a worker are told together.
    """
    topology = tr.Topology("word count")
    source = topology.source(tr.sources.unpaced(sentences()), parallelism=2)
    words = source.shuffle().flat_map(str.split, name="split", parallelism=2)
    words.key_by().scan(count, name="count", parallelism=2).sink(lambda one: None, name="sink")
    job = topology.start(spark, placement=(0, 1) * 3, progress_s=_TELLS_S)
    job.await_running(60)
    time.sleep(1.0)
    tails = ("track",) if plan is QUICK else ("track", "replay")
    changes: dict[str, list[float]] = {tail: [] for tail in tails}
    cpu_us: list[float] = []
    rates: list[float] = []
    runs = 0

    def slice_of(tail: str) -> float:
        """CPU time per sentence, in us."""
        nonlocal runs
        job.set_tail(tail)
        time.sleep(2 * _TELLS_S)
        before = job.last_progress
        emitted, used_s, begun = 0, 0.0, time.monotonic()
        while emitted <= 0 or used_s <= 0:  # longer if nobody has told anything
            time.sleep(_OVERHEAD_SLICE_S)
            after = job.last_progress
            emitted = sum(after.emitted.values()) - sum(before.emitted.values())
            used_s = sum(after.cpu_s.values()) - sum(before.cpu_s.values())
            if time.monotonic() - begun > _PATIENCE_S:
                raise RuntimeError(f"workers have told nothing for {_PATIENCE_S:g} s")
        runs += after.replays.get("runs", 0) - before.replays.get("runs", 0)
        if tail == "off":
            cpu_us.append(1e6 * used_s / emitted)
            rates.append(emitted * 1e9 / max(after.at_ns - before.at_ns, 1))
        return used_s / emitted

    for number in range(plan.overhead_rounds):
        for tail, found in changes.items():
            pair = ("off", tail) if number % 2 else (tail, "off")
            took = {one: slice_of(one) for one in pair}
            found.append(100 * (took[tail] / took["off"] - 1))
    job.stop(drain=False)
    told: dict[str, Any] = {}
    for tail, name in (("track", "overhead_percent"), ("replay", "overhead_as_used_percent")):
        if tail in changes:
            told[name] = round(statistics.median(changes[tail]), 2)
            told[f"{name}_interval"] = [round(one, 2) for one in interval(changes[tail])]
    return {
        **told,
        "overhead_pairs": plan.overhead_rounds,
        "cpu_us_per_sentence": rounded(statistics.median(cpu_us)),
        "sentences_per_s": round(statistics.median(rates)),
        "batches_followed": runs,
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median of what these are drawn from lies, with a probability of 95% at least.

    By ranks, so whatever they are distributed like: each lies below it as likely as above.
    """
    ordered, count = sorted(values), len(values)
    cut, below = 0, 1 / 2**count
    while cut < count // 2 and 2 * below <= 0.05:
        cut += 1
        below += math.comb(count, cut) / 2**count
    return ordered[max(cut - 1, 0)], ordered[-max(cut, 1)]


def run(stage: Stage, quick: bool) -> dict[str, Any]:
    """The section's figures."""
    plan = QUICK if quick else FULL
    ship(__name__)
    found: dict[str, Any] = {}
    for name in SETTINGS:
        if name == "stopped" and not plan.stopped_ways:
            continue
        stage.say(f"replay: {name}")
        found[name] = Setting(stage, name, plan).measure()
    stage.say("replay: what following costs")
    following = overhead(stage.spark, plan)
    return {
        **found,
        **following,
        "lost": sum(one["lost"] for one in found.values()),
        "duplicated": sum(one["duplicated"] for one in found.values()),
    }


def table(found: dict[str, Any]) -> str:
    """As text."""
    lines = []
    for name in (name for name in SETTINGS if name in found):
        lines.append(f"exclamation, {name.replace('_', ' ')}")
        for way in WAYS:
            if way in found[name]:
                one = found[name][way]
                lines.append(
                    f"  {way:16} p50 {one['p50_ms']:>6} ms  p99 {one['p99_ms']:>6}"
                    f" {one['p99_ms_rounds']}  p99.9 {one['p99.9_ms']:>6}  of {one['records']}"
                )
    low, high = found["overhead_percent_interval"]
    lines.append(
        f"following all batches costs the word count {found['overhead_percent']}% CPU time"
        f" (95% between {low} and {high})"
    )
    return "\n".join(lines)
