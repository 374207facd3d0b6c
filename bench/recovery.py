"""What checkpoints cost, and what a kill -9 costs with them.

    python bench/recovery.py [--quick] [--rounds N] [--seconds S] [--out FOLDER]

All on a local Spark with two workers, checkpoints in a folder of this disk, an epoch every second
unless said otherwise. Arrivals are Poisson.

`throughput_with_checkpoints_ratio`: sentences per second that word count takes, with checkpoints
over without; the median over pairs of neighbouring runs.

`p99_with_checkpoints_ratio`: counts by key, 1,000,000 keys, 10,000 records/s over all of them; the
p99 from when a record was due to the end of its sink, over 21 epochs in a row, in which all keys
are written once beside those that change; over that of the same job without checkpoints, which goes
on from the same state, before and after it. The range is that of thirds of the run. A job that goes
on in a new folder first writes all there at once: `p99_ms` has that apart, as `first`.

`checkpoint_ms`, `checkpoint_bytes`: from an epoch's beginning to its manifest, and what was written
for it, at 10,000 records/s; all keys, and when one of a hundred has changed.

`checkpoint_under_backpressure_ms`: the same of a small state when the sink takes a millisecond for
each record, and sources give as much as is taken; the median, and the first, which is asked for
before the windows have found that out.

`restore_1m_keys_s`: from `topology.start` until the sources run again, from the state above.

`kill_to_first_result_ms`: counts by key, 100,000 keys, 10,000 records/s which go on being due
whatever happens. A random worker is killed at a random moment of an epoch. A process outside of the
job gets all results over TCP; the time is from just before the kill to the first result, from the
process in the place of the one killed, that nobody had sent before. `first_result_again_ms` is that
of its first result at all, since those after the epoch come again at such a sink. What a file sink
has written is compared with what must be there: `lost`, `duplicated`.

The full run also has Bytewax with its recovery store (`bytewax`), in one process, which is how it
is fastest here: the same word count and the same keyed counts. It has nobody who starts it again;
here that is done at once, by a program that is waiting for its end.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.process import PeerError
from harness.spread import Spread, limits, middle, rounded, spread_of
from recovery_parts.arrivals import Arrivals
from recovery_parts.jobs import (
    EPOCH_S,
    Costs,
    Kills,
    Latency,
    checkpoint_costs,
    highest_rate,
    kills,
    latency,
    made,
    under_backpressure,
)
from recovery_parts.peer import BytewaxFound, beside
from tailrace.runtime.histogram import Histogram
from tailrace.spark.session import local_spark

FEW, MANY = 100_000, 1_000_000
_NAMES = {FEW: "100k", MANY: "1m"}
_NO_REPEATS_AFTER_S = 60.0
EPOCHS = 21
"""In a row, for the p99."""
SHORTER = 6.0
"""Runs without checkpoints, before and after, are shorter by so much."""
_SQUEEZED = 4
"""Checkpoints under back-pressure."""


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    seconds: float
    """Of a round of word count."""
    p99_rounds: int
    kills: int
    changed: int
    """Checkpoints with one key of a hundred changed."""
    peers: bool


class Run(Benchmark):
    """One run of the benchmark."""

    name = "recovery"
    description = "What checkpoints cost a job, and how soon it is back after a kill -9."
    quick_help = "2 rounds of 2.5 s and 20 kills, without Bytewax; within 100 s"
    settings = ("rounds", "seconds")

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(Plan(2, 2.5, 1, 20, 1, False), Plan(7, 8.0, 3, 50, 5, True))
        self._rates: dict[str, list[float]] = {"with": [], "without": []}
        self._latencies: list[tuple[Latency, Latency, Latency]] = []  # without, with, without
        self._squeezed_ms: list[float] = []
        self._costs: dict[int, Costs] = {}
        self._kills: Kills | None = None
        self._peer: BytewaxFound | None = None
        self._background_percent = 0.0
        self._numbers = iter(range(1_000_000))

    def _new(self, what: str) -> Path:
        return self.folder / f"{what}-{next(self._numbers)}"

    def measure(self) -> None:
        """All of it; what is compared takes turns."""
        self._background_percent = self.background_percent()
        self.say("starting Spark")
        spark = local_spark(2)
        self.ends.callback(spark.stop)
        self._measure_rates(spark)
        self._measure_costs(spark)
        self.say("back-pressure")
        self._squeezed_ms = under_backpressure(spark, self._new("slow"), _SQUEEZED)
        self.say(f"{self._plan.kills} kills")
        self._kills = kills(spark, self._new("kills"), FEW, self._plan.kills)
        if self._plan.peers:
            self.say("Bytewax")
            try:
                self._peer = beside(self._new("bytewax"), FEW, self._plan, self.say)
            except PeerError as error:
                self.say(f"without Bytewax: {error}")

    def _measure_rates(self, spark: Any) -> None:
        self.say("word count")
        highest_rate(spark, 1.0, None)  # to warm up
        for number in range(self._plan.rounds):
            for how in sorted(self._rates, reverse=bool(number % 2)):
                self._rates[how].append(self._undisturbed(partial(self._rate, spark, how)))

    def _rate(self, spark: Any, how: str) -> float:
        folder = self._new("words") if how == "with" else None
        return highest_rate(spark, self._plan.seconds, folder)

    def _undisturbed(self, step: Any) -> Any:
        until_s = _NO_REPEATS_AFTER_S if self.options.quick else float("inf")
        return self.undisturbed(step, until_s=until_s)

    def _measure_costs(self, spark: Any) -> None:
        seconds = 20.0 + EPOCHS * EPOCH_S + 5  # a run begins where the state was made
        for keys in (FEW, MANY):
            self.say(f"checkpoints of {keys:,} keys")
            arrivals = made(self._new("due"), keys, seconds, keys // 100)
            state = self._new("state")
            self._costs[keys] = checkpoint_costs(spark, arrivals, state, self._plan.changed)
        self.say("latency")
        everywhere = replace(arrivals, changing=keys)
        long_s = EPOCHS * EPOCH_S
        for _ in range(self._plan.p99_rounds):
            without = partial(latency, spark, everywhere, state, long_s / SHORTER, None)
            with_ = partial(self._with_epochs, spark, everywhere, state, long_s)
            before, during, after = (self._undisturbed(step) for step in (without, with_, without))
            self._latencies.append((before, during, after))

    def _with_epochs(self, spark: Any, arrivals: Arrivals, state: Path, seconds: float) -> Latency:
        return latency(spark, arrivals, state, seconds, self._new("epochs"))

    # ---- what was found ----

    def _p99_ratios(self) -> tuple[list[float], list[float]]:
        """Of whole rounds, and of thirds of the runs with checkpoints."""
        whole, thirds = [], []
        for before, during, after in self._latencies:
            without_ms = _p99_ms(before, after)
            whole.append(_p99_ms(during) / without_ms)
            thirds += [part.percentile_ns(99) / 1e6 / without_ms for part in during.parts]
        return whole, thirds

    def _throughput(self) -> Spread:
        both = zip(self._rates["with"], self._rates["without"], strict=True)
        return Spread.of([a / b for a, b in both])

    def _p99s_ms(self) -> dict[str, float | None]:
        firsts = [during.first for _, during, _ in self._latencies if during.first is not None]
        return {
            "without": rounded(median(_p99_ms(a, b) for a, _, b in self._latencies)),
            "with": rounded(median(_p99_ms(during) for _, during, _ in self._latencies)),
            "first": rounded(median(first.percentile_ns(99) / 1e6 for first in firsts)),
        }

    def headline(self) -> dict[str, Any]:
        """All figures."""
        assert self._kills is not None
        costs = {
            _NAMES[keys] + what: (cost.full_ms, cost.full_bytes)
            if what == "_full"
            else (median(cost.changed_ms), round(median(cost.changed_bytes)))
            for keys, cost in self._costs.items()
            for what in ("_full", "_changed")
        }
        new = spread_of([one.new_ms for one in self._kills.kills])
        again = spread_of([one.first_ms for one in self._kills.kills])
        starts = [run.start_s for runs in self._latencies for run in runs]
        ratios, thirds = self._p99_ratios()
        return {
            "throughput_with_checkpoints_ratio": middle(self._throughput()),
            "throughput_ratio_range": limits(self._throughput()),
            "p99_with_checkpoints_ratio": rounded(median(ratios)),
            "p99_ratio_range": limits(Spread.of(thirds)),
            "p99_ms": self._p99s_ms(),
            "checkpoint_ms": {name: rounded(ms) for name, (ms, _) in costs.items()},
            "checkpoint_bytes": {name: size for name, (_, size) in costs.items()},
            "checkpoint_under_backpressure_ms": {
                "median": rounded(median(self._squeezed_ms)),
                "first": rounded(self._squeezed_ms[0]),
            },
            "restore_1m_keys_s": rounded(median(starts)),
            "kill_to_first_result_ms": {
                "median": middle(new),
                "max": rounded(new.high) if new else None,
            },
            "first_result_again_ms": {
                "median": middle(again),
                "max": rounded(again.high) if again else None,
            },
            "kills": len(self._kills.kills),
            "restarts": self._kills.restarts,
            "lost": self._kills.lost,
            "duplicated": self._kills.duplicated,
            "bytewax": self._peer.headline() if self._peer is not None else None,
            "background_cpu_percent": rounded(self._background_percent),
            "seconds": round(self.elapsed_s(), 1),
        }

    def table(self) -> str:
        """The same for people."""
        lines = [f"{name:36}{value}" for name, value in self.headline().items()]
        return "\n".join(["", *lines, ""])

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        assert self._kills is not None
        return {
            "headline": figures,
            "machine": machine(),
            "rates_per_s": self._rates,
            "p99_ms": [
                [[part.percentile_ns(99) / 1e6 for part in run.parts] for run in runs]
                for runs in self._latencies
            ],
            "epochs": [during.epochs for _, during, _ in self._latencies],
            "under_backpressure_ms": self._squeezed_ms,
            "kills": [vars(one) for one in self._kills.kills],
            "noticed_to_running_ms": self._kills.noticed_to_running_ms,
        }


def _p99_ms(*runs: Latency) -> float:
    """Of several runs together."""
    together = Histogram()
    for run in runs:
        together.merge(run.whole)
    return together.percentile_ns(99) / 1e6


if __name__ == "__main__":
    main(Run)
