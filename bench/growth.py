"""What a record costs when a topology grows: wider, deeper, on more workers, with more keys.

    python bench/growth.py [--quick] [--seconds S] [--out FOLDER]

A local Spark with 16 slots runs all of it, on however many cores there are: what counts is CPU time
of the workers per record of the source, from the workers' own reports. Sources emit as fast as
records are taken, for a while, and all of it is processed to the end; what it takes to build a job
is not in it. Rates would say how many cores the machine has.

`wide_us`: word count on 4 workers, per sentence of ten words, by the parallelism on both sides of
the key; four sources deal their sentences to those that split. All of it twice, there and back, and
the lower value counts: what else the machine does makes a sentence dearer, never cheaper.
`deep_us_per_hop`: 100-byte records
through so many shuffled maps of two instances on 2 workers, per record and hop. `workers_us`: word
count, as many sources and instances on either side as workers.
`keys_us`: records counted by key on 2 workers, by how many different keys there are ("all": no key
comes twice); keys come in no order, and the state begins empty.

`tcp_bytes_per_s_over_zmq`: how many bytes per second pass between two processes by our TCP channel,
by the size of a record, divided by what pyzmq passes over tcp.

`p99_2k_wide_64_over_4`: latency at 2,000 sentences/s that come at random (Poisson), on 4 workers,
with parallelism 64, divided by that with 4; each is the median over the rounds, which take turns,
as many as there is time for. Four workers on two cores get in each other's way: the p99s of rounds
differ by a factor of two or more, look at `p99_2k_rounds_ms`.

`thousand`: a thousand workers in memory (`growth_parts/thousand.py`).
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.spread import rounded, short

WIDE = (4, 16, 64, 256)
DEEP = (1, 4, 16, 32)
WORKERS = (1, 2, 4, 8, 16)
KEYS = {"1e3": 1_000, "1e5": 100_000, "1e6": 1_000_000, "all": 0}
RATE_PER_S = 2_000.0


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    seconds: float
    keyed: int
    """Records of each run by key."""
    rounds: int
    latency_s: float
    repeat_s: float
    """Until when costs are measured again from which the host has stolen."""
    budget_s: float


QUICK = Plan(seconds=1.2, keyed=1_500_000, rounds=5, latency_s=2.0, repeat_s=52.0, budget_s=90.0)
FULL = replace(
    QUICK, seconds=5.0, keyed=10_000_000, rounds=9, latency_s=5.0, repeat_s=1e9, budget_s=3_600.0
)


class Run(Benchmark):
    """One run of the benchmark."""

    name = "growth"
    description = "What a record costs in topologies that grow."
    quick_help = "short runs, within 100 s"
    settings = ("seconds", "rounds")

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self.figures: dict[str, Any] = {}
        self.p99_ms: dict[int, list[float]] = {4: [], 64: []}

    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""
        self.figures["background_cpu_percent"] = round(self.background_percent(), 1)
        from growth_parts import thousand

        self.say("a thousand workers in memory")
        self.figures["thousand"] = thousand.measure(self.options.quick)
        self._tcp()
        self.say("starting Spark")
        from growth_parts import jobs

        spark = jobs.OnSpark()
        self.ends.callback(spark.end)
        seconds = self._plan.seconds
        for parallelism in (*WIDE, *reversed(WIDE)):
            build = partial(jobs.word_count, parallelism=parallelism, sources=4)
            self._note("wide_us", parallelism, spark.cpu_us, build, 4, jobs.sentence, seconds)
        for hops in DEEP:
            build = partial(jobs.deep, hops=hops)
            record = jobs.hundred_bytes
            self._note("deep_us_per_hop", hops, spark.cpu_us, build, 2, record, seconds, per=hops)
        for workers in WORKERS:
            build = partial(jobs.word_count, parallelism=workers, sources=workers)
            self._note("workers_us", workers, spark.cpu_us, build, workers, jobs.sentence, seconds)
        build = partial(jobs.keyed, parallelism=2)
        for name, different in KEYS.items():
            keys, count = jobs.Keys(different), self._plan.keyed
            self._note("keys_us", name, spark.cpu_us, build, 2, keys, None, count)
        self._latency(spark)
        self.figures["lost"] = spark.lost

    def _note(self, figure: str, size: object, measure: Any, *arguments: Any, per: int = 1) -> None:
        """Measure one value, if there is time for it."""
        if self.elapsed_s() > self._plan.budget_s:
            self.say(f"no time for {figure} at {size}")
            return
        found = self.undisturbed(partial(measure, *arguments), until_s=self._plan.repeat_s)
        value = rounded(found / per)
        self.say(f"{figure} at {size}: {value}")
        known = self.figures.setdefault(figure, {})
        known[str(size)] = min(value, known.get(str(size), value))

    def _tcp(self) -> None:
        self.say("bytes over TCP, beside pyzmq")
        try:
            tcp_bytes = import_module("growth_parts.tcp_bytes")
        except ImportError as error:
            self.say(f"no tcp_bytes_per_s_over_zmq: {error}")
            return
        self.figures["tcp_bytes_per_s_over_zmq"] = tcp_bytes.measure(self.options.quick)

    def _latency(self, spark: Any) -> None:
        from tailrace.connectors.generate import Poisson

        plan = self._plan
        for number in range(plan.rounds):
            for parallelism in (4, 64) if number % 2 == 0 else (64, 4):
                if number and self.elapsed_s() > plan.budget_s:
                    self.say("no time for another round of latencies")
                    break
                pace = Poisson(RATE_PER_S, seed=number)
                step = partial(spark.p99_ms, parallelism, 4, pace, plan.latency_s)
                p99_ms = self.undisturbed(step, until_s=plan.budget_s)
                self.p99_ms[parallelism].append(p99_ms)
                self.say(f"p99 at {RATE_PER_S:,.0f}/s, {parallelism} wide: {p99_ms:.2f} ms")
        wide, narrow = median(self.p99_ms[64]), median(self.p99_ms[4])
        self.figures["p99_2k_wide_64_over_4"] = rounded(wide / narrow)
        self.figures["p99_2k_ms"] = {"4": rounded(narrow), "64": rounded(wide)}

    def end(self) -> None:
        """End everything that was started."""
        super().end()
        self.figures["load_average"] = round(os.getloadavg()[0], 2)

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = []
        for name, figure in self.figures.items():
            values = figure.items() if isinstance(figure, dict) else [("", figure)]
            shown = "   ".join(f"{size}: {short(value)}".lstrip(": ") for size, value in values)
            lines.append(f"{name:26} {shown}")
        return "\n".join(lines)

    def headline(self) -> dict[str, Any]:
        """The figures that matter most."""
        rounds = {str(wide): [rounded(ms) for ms in all_ms] for wide, all_ms in self.p99_ms.items()}
        return {**self.figures, "p99_2k_rounds_ms": rounds, "seconds": round(self.elapsed_s(), 1)}

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return {**figures, "machine": machine()}


if __name__ == "__main__":
    main(Run)
