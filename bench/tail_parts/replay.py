"""Replay of stragglers: p99, p99.9 and cost of sending late records again, or a share of all twice.

    python bench/tail_parts/replay.py [--full]

Exclamation as in table 5.2 of Du's thesis: 4 operators of 5 instances each, on 5 workers, with
Poisson arrivals. One job all the time; what is done for its tail is changed while it runs, in
rounds of changing order: nothing, adaptive timeout with replay, and 20, 50 and 100% sent twice at
once. Latency counts from when a record was due to the end of its sink. `cost_percent` is what was
sent twice of all, `cpu_percent` how much more CPU time workers took than with nothing done.

Three settings. `quiet`: nothing is disturbed on purpose. `stopped`: in every slice some worker is
stopped for 20 ms (SIGSTOP), as a busy neighbour or the host would do; records whose source is in
that worker are late whatever anybody does. `stopped_beside_sources`: only workers without a source
are stopped, so that all that is late could be helped; the thesis, which counts from when a source
has emitted, knows this one only.

`overhead_percent`: what following every batch costs the word count at its highest rate, in CPU time
per sentence, side by side in alternating slices of one job. With "replay" batches of more than 64
records are not followed; `overhead_as_used_percent` is that.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tailrace as tr
from harness.arrivals import POISSON, pace_of
from harness.spread import Spread, limits, rounded
from harness.steal import steal_ticks, stolen_percent
from tailrace.apps.exclamation import exclamation
from tailrace.apps.word_count import count, sentences
from tailrace.connectors.generate import Generate
from tailrace.control.progress.summary import Summary
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.sink import Sink
from tailrace.spark.session import local_spark

WAYS = {
    "default": "off",
    "adaptive": "replay",
    "replication_20": "replicate 20%",
    "replication_50": "replicate 50%",
    "replication_100": "replicate 100%",
}
WORKERS = 5
STOP_S = 0.020
MOST_STOLEN_PERCENT = 0.5
SPREAD_OUT = tuple(i % WORKERS for i in range(4 * WORKERS))
BESIDE = (*(i % 2 for i in range(WORKERS)), *SPREAD_OUT[WORKERS:])
"""All sources in the first two workers, the rest spread out."""
SETTINGS = {
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
    stopped_ways: tuple[str, ...]
    """Of the setting in which sources are stopped, too."""


QUICK = Plan(
    per_s=2_000,
    rounds=5,
    quiet_s=0.25,
    stopped_s=0.5,
    settle_s=0.1,
    overhead_rounds=5,
    stopped_ways=("default", "adaptive"),
)
FULL = Plan(
    per_s=2_000,
    rounds=25,
    quiet_s=1.0,
    stopped_s=0.5,
    settle_s=0.1,
    overhead_rounds=15,
    stopped_ways=tuple(WAYS),
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

    def __init__(self, spark: Any, name: str, plan: Plan) -> None:
        self.placement, self.ranks = SETTINGS[name]
        self.plan = plan
        self.seconds = plan.stopped_s if self.ranks else plan.quiet_s
        self.found = {way: Found() for way in (plan.stopped_ways if name == "stopped" else WAYS)}
        self.chance = random.Random(1)
        self.spark = spark

    def measure(self) -> dict[str, Any]:
        """All rounds; then everything that came is counted."""
        stolen = 0
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
            topology, loud = exclamation(Generate(str, pace=pace_of(POISSON, self.plan.per_s)))
            loud.sink(Seen(Path(folder)), name="sink")
            self.job = topology.start(self.spark, placement=self.placement, progress_s=0.05)
            self.job.await_running(60)
            for _ in range(8):
                self.slice("replay")  # for a first timeout
            for number in range(self.plan.rounds):
                order = list(self.found)
                random.Random(number).shuffle(order)
                for way in order:
                    for _ in range(2):
                        before = steal_ticks()
                        took = self.slice(WAYS[way])
                        if stolen_percent(before, steal_ticks()) <= MOST_STOLEN_PERCENT:
                            break
                        stolen += 1
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
            "stolen_slices": stolen,
        }

    def slice(self, tail: str) -> tuple[Summary, Summary]:
        """What there was before and after a while of this."""
        self.job.set_tail(tail)
        time.sleep(self.plan.settle_s)
        before = self.job.last_progress
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
        return before, self.job.last_progress


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
    job = topology.start(spark, placement=(0, 1) * 3, progress_s=0.05)
    job.await_running(60)
    time.sleep(1.0)
    cpu_us: dict[str, list[float]] = {"off": [], "replay": [], "track": []}
    rates: list[float] = []
    runs = 0
    for number in range(plan.overhead_rounds):
        order = list(cpu_us)
        random.Random(number).shuffle(order)
        for tail in order:
            job.set_tail(tail)
            time.sleep(plan.settle_s)
            before = job.last_progress
            time.sleep(plan.stopped_s)
            after = job.last_progress
            emitted = sum(after.emitted.values()) - sum(before.emitted.values())
            used_s = sum(after.cpu_s.values()) - sum(before.cpu_s.values())
            cpu_us[tail].append(1e6 * used_s / max(emitted, 1))
            rates.append(emitted * 1e9 / (after.at_ns - before.at_ns))
            runs += after.replays.get("runs", 0) - before.replays.get("runs", 0)
    job.stop(drain=False)
    changes = {
        tail: [100 * (one / off - 1) for one, off in zip(cpu_us[tail], cpu_us["off"], strict=True)]
        for tail in ("replay", "track")
    }
    return {
        "overhead_percent": round(statistics.median(changes["track"]), 2),
        "overhead_percent_rounds": limits(Spread.of(changes["track"])),
        "overhead_as_used_percent": round(statistics.median(changes["replay"]), 2),
        "cpu_us_per_sentence": rounded(statistics.median(cpu_us["off"])),
        "sentences_per_s": round(statistics.median(rates)),
        "batches_followed": runs,
    }


def run(quick: bool) -> dict[str, Any]:
    """All of it; under a minute if quick."""
    plan = QUICK if quick else FULL
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    began = time.monotonic()
    spark = local_spark(WORKERS)
    try:
        found = {name: Setting(spark, name, plan).measure() for name in SETTINGS}
        following = overhead(spark, plan)
    finally:
        spark.stop()
    return {
        **found,
        **following,
        "seconds": round(time.monotonic() - began, 1),
        "lost": sum(one["lost"] for one in found.values()),
        "duplicated": sum(one["duplicated"] for one in found.values()),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    print(json.dumps(run(quick="--full" not in sys.argv)))
