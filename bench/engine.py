"""Rate and latency of whole topologies on Spark, beside pipelines written by hand.

    python bench/engine.py [--quick] [--rounds N] [--out FOLDER]

Word count: 10-word sentences of a 1,000-word vocabulary, split, counted by word with state; the
sink gets every (word, count). Chain: 100-byte records, source -> a -> b -> sink, where each hop
crosses to the other process.

Tailrace runs on a local Spark with two workers, as a user would run it: metrics, audit and flow
control on. The handmade pipelines run in two processes without any of these: pipe and pyzmq, 1 and
64 records per message, and for word count in two shapes. All are tried once; the better batch of
each then takes turns with Tailrace, and the best of these is the opponent.
Records, user functions and sinks are the same objects on both sides (`engine_peers/workloads.py`).

What a rate is. Sources emit as fast as the pipeline takes it. Sinks note how many records they had
by when; the rate is the slope after a warm-up, until the sources end. CPU is that of both
processes, per sentence or record, from the first record to the end; Spark's JVM, which only waits
meanwhile, is not in it.

What a latency is. Sources are open loop: record i is due at start + i / rate, or (`poisson`) at
random times of that rate, the same for all contestants. Latency counts from then to the end of the
sink's work, so that a source that is late hides nothing. Records that left their source together
count from when the first of them was due, on both sides. Tailrace's latencies are its own
histograms, as a user sees them in `job.last_progress`; for the chain, the same is computed from the
sink's own notes of every arrival (`chain_10k_exact_*`), as a check.
Word count at 10,000 per second means sentences: 100,000 words.

Exactness. `lost` and `duplicated` sum over all runs of Tailrace: of every word, as many counts must
have come as were emitted; the chain's records must come in order, without a gap; and the job's
own audit must balance. A word lost and the same word duplicated in one run would cancel out.
Handmade pipelines are checked in the same way.

Noise. Contestants take turns, in rounds of changing order; reported are medians over the rounds,
and their range. A run from which the machine's host stole more than 0.5% is repeated while there is
time, and counted (`stolen_rounds`). Compare numbers only inside one run, and look at
`background_cpu_percent`: what other programs used at the start, before this one did anything.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine_peers.handmade import VARIANTS, Pair, Variant
from engine_peers.report import document, headline, table
from engine_peers.results import Results
from harness.arrivals import EVEN, POISSON
from harness.frame import Benchmark, Options, main

if TYPE_CHECKING:
    from engine_peers.on_tailrace import OnSpark

WORKLOADS = ("wordcount", "chain")


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    rate_s: float
    rate_warm_s: float
    latency_s: float
    latency_warm_s: float  # workers report every half second; less would leave nothing out
    trial_s: float
    idle_s: float
    budget_s: float


QUICK = Plan(3, 0.75, 0.25, 1.3, 0.6, 0.2, 1.0, budget_s=45.0)
FULL = replace(QUICK, rounds=7, rate_s=3.0, latency_s=4.0, trial_s=1.0, budget_s=3_600.0)


class Run(Benchmark):
    """One run of the benchmark."""

    name = "engine"
    description = "Tailrace on Spark beside pipelines written by hand."
    quick_help = "short rounds, within 50 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self.results = Results()

    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""
        results, plan = self.results, self._plan
        results.background_cpu_percent = self.background_percent()
        self.say("starting Spark")
        from engine_peers.on_tailrace import OnSpark

        tailrace = OnSpark(self.folder)
        self.ends.callback(tailrace.end)
        results.spark_start_s = tailrace.spark_start_s
        pair = Pair(self.folder)
        self.ends.callback(pair.end)
        self.say("first job, and a job without input")
        results.idle_cpu_percent = tailrace.idle_cpu_percent(plan.idle_s)
        opponents = self._trials(pair)
        for workload in WORKLOADS:
            tailrace.run(workload, plan.rate_warm_s, 0, 0)
        round_s = 0.0
        for number in range(plan.rounds):
            begun_s = self.elapsed_s()
            if begun_s + round_s / 2 > plan.budget_s:
                self.say(f"no time for round {number + 1} of {plan.rounds}")
                break
            self.say(f"round {number + 1} of {plan.rounds}")
            results.rounds += self._round(tailrace, pair, opponents, number)
            round_s = self.elapsed_s() - begun_s
        results.first_job_start_s, *others = tailrace.job_start_s
        results.job_start_s = sorted(others)[len(others) // 2]

    def _trials(self, pair: Pair) -> list[Variant]:
        """Try every handmade variant; the better batch of each shape and transport goes on."""
        self.say("handmade pipelines, each once")
        best: dict[tuple[str, str, str], tuple[float, Variant]] = {}
        for variant in VARIANTS:
            outcome = pair.run(variant, self._plan.trial_s, 0, self._plan.trial_s / 3)
            self.results.trials[variant] = outcome
            group = variant.workload, variant.shape, variant.transport
            if group not in best or best[group][0] < outcome.rate_per_s:
                best[group] = outcome.rate_per_s, variant
        return [variant for _, variant in best.values()]

    def _round(
        self, tailrace: "OnSpark", pair: Pair, opponents: list[Variant], number: int
    ) -> bool:
        """One round, whole if there is time; some of it belongs to every other one only."""
        steps: list[Callable[[], None]] = []
        for workload in WORKLOADS:
            steps.append(partial(self._tailrace, tailrace, workload, 0))
            steps += [
                partial(self._handmade, pair, variant, 0)
                for variant in opponents
                if variant.workload == workload
            ]
            steps.append(partial(self._tailrace, tailrace, workload, 10_000))
            steps.append(partial(self._tailrace, tailrace, workload, 10_000, POISSON))
            if number % 2 == 0:
                leader = self.results.best_handmade(workload)
                steps.append(partial(self._tailrace, tailrace, workload, 1_000))
                steps.append(partial(self._handmade, pair, leader, 10_000))
                steps.append(partial(self._handmade, pair, leader, 10_000, POISSON))
        for step in steps if number % 2 == 0 else reversed(steps):
            if self.elapsed_s() > self._plan.budget_s:
                self.say(f"no time for the rest of round {number + 1}")
                return False
            step()
        return True

    def _times_s(self, rate_per_s: int) -> tuple[float, float]:
        """How long, and how much of it is warm-up; the same for all contestants."""
        plan = self._plan
        if rate_per_s:
            return plan.latency_s, plan.latency_warm_s
        return plan.rate_s, plan.rate_warm_s

    def _tailrace(
        self, tailrace: "OnSpark", workload: str, rate_per_s: int, pacing: str = EVEN
    ) -> None:
        seconds, warm_s = self._times_s(rate_per_s)
        found = self.results.tailrace if pacing == EVEN else self.results.tailrace_poisson
        outcome = self.undisturbed(
            lambda: tailrace.run(workload, seconds, rate_per_s, warm_s, pacing),
            self.results.discarded.append,
            self._plan.budget_s,
        )
        found.setdefault((workload, rate_per_s), []).append(outcome)

    def _handmade(self, pair: Pair, variant: Variant, rate_per_s: int, pacing: str = EVEN) -> None:
        seconds, warm_s = self._times_s(rate_per_s)
        found = self.results.handmade if pacing == EVEN else self.results.handmade_poisson
        outcome = self.undisturbed(
            lambda: pair.run(variant, seconds, rate_per_s, warm_s, pacing),
            until_s=self._plan.budget_s,
        )
        found.setdefault((variant, rate_per_s), []).append(outcome)

    def end(self) -> None:
        """End everything that was started."""
        super().end()
        self.results.load_average = os.getloadavg()[0]

    def table(self) -> str:
        """Everything that was measured, as text."""
        return table(self.results)

    def headline(self) -> dict[str, Any]:
        """The figures that matter most."""
        return headline(self.results, self.elapsed_s())

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return document(self.results, figures)


if __name__ == "__main__":
    main(Run)
