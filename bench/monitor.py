"""What the monitor costs: a job whose workers report twice a second beside one that reports never.

    python bench/monitor.py [--quick] [--seconds S] [--rounds N] [--out FOLDER]

Word count and a chain of two hops on local Spark with two workers, unpaced, each in its turn. A
report holds everything: progress, latencies, and the traffic of every link. What is counted on the
way (two additions for each message) is counted always; one report at the end is sent always.

A report twice a second costs less than two runs differ by chance. So there is a third job, with 50
times as many reports: `overhead` is how much more CPU time a record takes with these, as a part of
what it takes without reports, divided by 50 (the median over neighbouring runs). `direct` is
the same with two reports a second, undivided, and `slower` that of the highest rate.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.spread import Spread, limits, middle, rounded
from tailrace.cli.bench import WORKLOADS
from tailrace.control.protocol import Settings
from tailrace.sources import unpaced
from tailrace.spark.session import local_spark

TIMES = 50
REPORTING = {"on": Settings.progress_s, "often": Settings.progress_s / TIMES, "off": 1e6}
_PATIENCE_S = 120.0


def run(spark: Any, workload: str, seconds: float, progress_s: float) -> tuple[float, float]:
    """Records per second, and CPU time per record in microseconds."""
    build, make, fan_out = WORKLOADS[workload]
    job = build(unpaced(make, seconds=seconds)).start(spark, workers=2, progress_s=progress_s)
    if not job.await_termination(_PATIENCE_S):
        job.stop(drain=False)
        raise RuntimeError(f"{job.name!r} did not end")
    progress = job.last_progress
    emitted = sum(progress.emitted.values())
    if not progress.balanced or progress.delivered != emitted * fan_out:
        raise RuntimeError(f"{job.name!r} lost records, or delivered some twice")
    return emitted / job.traffic().seconds, sum(progress.cpu_s.values()) / emitted * 1e6


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Found:
    """One workload: a figure for each round, by whether workers report."""

    rate_per_s: dict[str, list[float]]
    cpu_us: dict[str, list[float]]

    @property
    def overhead(self) -> Spread:
        """How much more CPU time a record takes with reports, by having many of them."""
        return self._more("often", TIMES)

    @property
    def direct(self) -> Spread:
        """The same by having as many as usual."""
        return self._more("on", 1)

    def _more(self, reporting: str, times: int) -> Spread:
        pairs = zip(self.cpu_us[reporting], self.cpu_us["off"], strict=True)
        return Spread.of([(with_ / without - 1) / times for with_, without in pairs])

    @property
    def slower(self) -> Spread:
        """How much lower the rate is with reports."""
        pairs = zip(self.rate_per_s["on"], self.rate_per_s["off"], strict=True)
        return Spread.of([1 - on / off for on, off in pairs])


class Run(Benchmark):
    """One run of the benchmark."""

    name = "monitor"
    description = "What the workers' reports cost a running job."
    quick_help = "3 rounds of 2 s, not 9 of 5 s"
    settings = ("rounds", "seconds")

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(Plan(3, 2.0), Plan(9, 5.0))
        self._found: dict[str, Found] = {}
        self._background_percent = 0.0

    def measure(self) -> None:
        """Each in its turn; who is first changes from round to round."""
        self._background_percent = self.background_percent()
        self.say("starting Spark")
        spark = local_spark(2)
        self.ends.callback(spark.stop)
        for workload in WORKLOADS:
            self.say(workload)
            run(spark, workload, 1.0, REPORTING["on"])  # to warm up
            found = Found({how: [] for how in REPORTING}, {how: [] for how in REPORTING})
            for number in range(self._plan.rounds):
                for how in sorted(REPORTING, reverse=bool(number % 2)):
                    rate, cpu_us = self.undisturbed(
                        partial(run, spark, workload, self._plan.seconds, REPORTING[how])
                    )
                    found.rate_per_s[how].append(rate)
                    found.cpu_us[how].append(cpu_us)
            self._found[workload] = found

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = [""]
        for workload, found in self._found.items():
            for how, more in (("overhead", found.overhead), ("direct", found.direct)):
                lines.append(
                    f"{workload:12} {how:9} {more.median:+.3%} CPU per record, {more.low:+.3%} to"
                    f" {more.high:+.3%} over the rounds"
                )
        return "\n".join([*lines, ""])

    def headline(self) -> dict[str, Any]:
        """The worst overhead, and all figures by workload."""
        workloads = {
            workload: {
                "rate_per_s": _medians(found.rate_per_s),
                "cpu_us_per_record": _medians(found.cpu_us),
                "overhead": middle(found.overhead),
                "overhead_range": limits(found.overhead),
                "direct": middle(found.direct),
                "direct_range": limits(found.direct),
                "slower": middle(found.slower),
            }
            for workload, found in self._found.items()
        }
        worst = max(found.overhead.median for found in self._found.values())
        return {
            "monitor_overhead": rounded(worst),
            "workloads": workloads,
            "background_cpu_percent": rounded(self._background_percent),
        }

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        rounds = {workload: asdict(found) for workload, found in self._found.items()}
        return {"headline": figures, "machine": machine(), "rounds": rounds}


def _medians(found: dict[str, list[float]]) -> dict[str, float | None]:
    return {how: middle(Spread.of(values)) for how, values in found.items()}


if __name__ == "__main__":
    main(Run)
