"""What checkpoints cost, and what a kill -9 costs with them.

    python bench/recovery.py [--quick] [--rounds N] [--seconds S] [--out FOLDER]

All on a local Spark with two workers, checkpoints in a folder of this disk, an epoch every second
unless said otherwise. Arrivals are Poisson.

`throughput_with_checkpoints_ratio`: sentences per second that word count takes, with checkpoints
over without; the median over pairs of neighbouring runs.

`p99_with_checkpoints_ratio`: counts by key, 1,000,000 keys, 10,000 records/s over all of them; the
p99 from when a record was due to the end of its sink, over that of the same job without
checkpoints, which goes on from the same state. One epoch of 20 is full: runs are shorter than that,
so the first epoch of a run (which is full) and those after it are measured apart and weighted 1 to
19. `p99_ms` has the parts.

`checkpoint_ms`, `checkpoint_bytes`: from an epoch's beginning to its manifest, and what was written
for it, at 10,000 records/s; all keys, and when one of a hundred has changed.

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
    Costs,
    Kills,
    Latency,
    checkpoint_costs,
    highest_rate,
    kills,
    latency,
    made,
)
from recovery_parts.peer import BytewaxFound, beside
from tailrace.spark.session import local_spark

FEW, MANY = 100_000, 1_000_000
_NAMES = {FEW: "100k", MANY: "1m"}
_NO_REPEATS_AFTER_S = 80.0


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    seconds: float
    kills: int
    changed: int
    """Checkpoints with one key of a hundred changed."""
    peers: bool


class Run(Benchmark):
    """One run of the benchmark."""

    name = "recovery"
    description = "What checkpoints cost a job, and how soon it is back after a kill -9."
    quick_help = "2 rounds of 3 s and 20 kills, without Bytewax; within 100 s"
    settings = ("rounds", "seconds")

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(Plan(2, 3.0, 20, 2, False), Plan(7, 8.0, 50, 5, True))
        self._rates: dict[str, list[float]] = {"with": [], "without": []}
        self._latencies: dict[str, list[Latency]] = {"with": [], "without": []}
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
        seconds = 20.0 + 4 * self._plan.rounds * (self._plan.seconds + 5)
        for keys in (FEW, MANY):
            self.say(f"checkpoints of {keys:,} keys")
            arrivals = made(self._new("due"), keys, seconds, keys // 100)
            state = self._new("state")
            self._costs[keys] = checkpoint_costs(spark, arrivals, state, self._plan.changed)
        self.say("latency")
        everywhere = replace(arrivals, changing=keys)
        for number in range(self._plan.rounds):
            for how in sorted(self._latencies, reverse=bool(number % 2)):
                step = partial(self._latency, spark, everywhere, state, how)
                self._latencies[how].append(self._undisturbed(step))

    def _latency(self, spark: Any, arrivals: Arrivals, state: Path, how: str) -> Latency:
        folder = self._new("epochs") if how == "with" else None
        return latency(spark, arrivals, state, self._plan.seconds, folder)

    # ---- what was found ----

    def _ratio(self, percent: float) -> Spread:
        both = zip(self._latencies["with"], self._latencies["without"], strict=True)
        return Spread.of([a.percentile_ms(percent) / b.percentile_ms(percent) for a, b in both])

    def _throughput(self) -> Spread:
        both = zip(self._rates["with"], self._rates["without"], strict=True)
        return Spread.of([a / b for a, b in both])

    def _p99_ms(self) -> dict[str, float | None]:
        runs = self._latencies
        with_ = runs["with"]
        full = [run.full.percentile_ns(99) / 1e6 for run in with_ if run.full is not None]
        return {
            "without": rounded(median(run.percentile_ms(99) for run in runs["without"])),
            "with": rounded(median(run.percentile_ms(99) for run in with_)),
            "with_changed": rounded(median(run.steady.percentile_ns(99) / 1e6 for run in with_)),
            "with_full": rounded(median(full)),
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
        starts = [run.start_s for runs in self._latencies.values() for run in runs]
        return {
            "throughput_with_checkpoints_ratio": middle(self._throughput()),
            "throughput_ratio_range": limits(self._throughput()),
            "p99_with_checkpoints_ratio": middle(self._ratio(99)),
            "p99_ratio_range": limits(self._ratio(99)),
            "p99_ms": self._p99_ms(),
            "checkpoint_ms": {name: rounded(ms) for name, (ms, _) in costs.items()},
            "checkpoint_bytes": {name: size for name, (_, size) in costs.items()},
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
            "p99_ms": {
                how: [run.percentile_ms(99) for run in runs]
                for how, runs in self._latencies.items()
            },
            "epochs": [run.epochs for run in self._latencies["with"]],
            "kills": [vars(one) for one in self._kills.kills],
            "noticed_to_running_ms": self._kills.noticed_to_running_ms,
        }


if __name__ == "__main__":
    main(Run)
