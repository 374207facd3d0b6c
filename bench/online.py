"""Jobs that find a better plan while they run, and jobs that follow their load.

    python bench/online.py [--quick] [--rounds N] [--out DIR]

- On line: SOL and word count begin in the worst placement over two hosts (every communicating pair
  of instances is on different ones), with `scheduler="consolidate"` and `adapt="5 s"`. What crosses
  between the hosts, and the latency at Poisson arrivals, before and after the job has moved itself;
  how long that took to come, and the longest silence at the sink meanwhile. TurboStream (its
  section V and figure 9 e) stops and starts the topology for that, which takes 15 to 20 s.
  Hosts are network namespaces of this machine, with a standalone Spark cluster on them, a worker
  each; they share its cores. Where they are not allowed, one line says so, and so does the JSON.
- Elastic: on local Spark, a load doubles and halves under `elastic` from 1 to 2 workers: what was
  emitted and delivered of what was due, and the workers over time. `--quick` has a policy that
  waits 2 s before it has more and 8 s before it has fewer; else these are the usual 10 and 60 s.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.spread import cell, limits, middle, rounded, spread_of
from hosts_parts.namespaces import NotAllowedError, allowed
from online_parts.hosted import Case, Hosted
from online_parts.steps import Stepped, elastic
from tailrace.adapt.elastic import ElasticPolicy
from tailrace.spark.session import local_spark

PAPER = {
    "restart_s": [15, 20],
    "figure 9 e": "on-line consolidation: mean latency -20.89 % with 2 nodes of a worker (2N2W),"
    " -12.91 % with 4",
    "figure 9 d": "consolidation off-line: latency -38.90 % (2N2W) beside JStorm",
}
SOL, WORDS = "sol", "word count"
WORK_US = 200.0


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    adapt_s: float
    warm_s: float
    seconds: float
    up_s: float
    down_s: float
    steps_s: tuple[float, float, float]
    """At the low rate, at twice of it, and at the low one again."""
    budget_s: float
    low_per_s: float = 1_950.0


QUICK = Plan(1, 5.0, 1.0, 4.0, 2.0, 8.0, (5.0, 10.0, 14.0), 78.0)
FULL = Plan(5, 5.0, 2.0, 10.0, 10.0, 60.0, (30.0, 60.0, 90.0), 3600.0)
CASES = (Case(SOL, 3_000.0, 5), Case(WORDS, 1_000.0, 2))


class Run(Benchmark):
    """One run of the benchmark."""

    name = "online"
    description = "Jobs that move themselves while they run, and that follow their load."
    quick_help = "one round each, and shorter ones, within 100 s"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self._background_percent = 0.0
        self._refused = ""
        self._found: dict[Case, list[dict[str, Any]]] = defaultdict(list)
        self._elastic: dict[str, Any] = {}

    def measure(self) -> None:
        """Do all of the plan, or as much as there is time for."""
        self._background_percent = self.background_percent()
        self._refused = allowed()
        if self._refused:
            self.say(f"no hosts to measure between: {self._refused}")
        else:
            self._on_hosts()
        self._follow()

    def _on_hosts(self) -> None:
        plan = self._plan
        self.say("starting Spark on 2 hosts")
        try:
            hosted = Hosted(self.folder)
        except NotAllowedError as error:
            self._refused = str(error)
            return
        try:
            for number in range(plan.rounds):
                for case in CASES if number % 2 == 0 else CASES[::-1]:
                    if self.elapsed_s() > plan.budget_s and number:
                        self.say(f"no time for the rest of round {number + 1} of {plan.rounds}")
                        return
                    step = partial(hosted.run, case, plan.adapt_s, plan.warm_s, plan.seconds)
                    until_s = plan.budget_s - 65.0 if self.options.quick else plan.budget_s
                    told = self.undisturbed(step, until_s=until_s)
                    self._found[case].append(told)
                    self.say(f"{case.application}: {told['reason']}")
        finally:
            hosted.end()

    def _follow(self) -> None:
        plan = self._plan
        self.say("a load that doubles and halves, on local Spark")
        pace = Stepped((plan.low_per_s, 2 * plan.low_per_s, plan.low_per_s), plan.steps_s)
        policy = ElasticPolicy(1, 2, up_s=plan.up_s, down_s=plan.down_s)
        spark = local_spark(2)
        try:
            self._elastic = elastic(spark, pace, WORK_US, policy)
        finally:
            spark.stop()

    # ---- what came of it ----

    def _spread(self, case: Case, *names: str) -> Any:
        def value(told: Any) -> Any:
            for name in names:
                told = told.get(name) if told else None
            return told

        values = [value(told) for told in self._found[case]]
        return spread_of([one for one in values if one is not None])

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = ["", f"{'median (lowest..highest)':34}{'before':>24}{'after':>24}"]
        for case in self._found:
            lines.append(f"{case.application}, {case.rate_per_s:,.0f} records/s")
            for name in ("internode_fraction", "mean_ms", "p99_ms", "cores", "longest_silence_ms"):
                before, after = (self._spread(case, when, name) for when in ("before", "after"))
                lines.append(f"  {name:32}{cell(before):>24}{cell(after):>24}")
            for name in ("seconds_until_moved", "took_ms", "moved_keys", "longest_silence_ms"):
                what = f"{name} of the move" if name == "longest_silence_ms" else name
                lines.append(f"  {what:32}{cell(self._spread(case, name)):>24}")
        if self._refused:
            lines.append(f"no hosts to measure between: {self._refused}")
        lines += ["", f"{'elastic, records/s':20}{'emitted':>12}{'delivered':>12}{'p99 ms':>10}"]
        for phase in self._elastic.get("phases", []):
            lines.append(
                f"{phase['scheduled_per_s']:<20,.0f}{phase['emitted_per_s']:>12,.0f}"
                f"{phase['delivered_per_s']:>12,.0f}{phase['p99_ms']:>10.2f}"
                f"   {phase['workers_at_the_end']} workers at its end"
            )
        told = ", ".join(f"{count} from {at_s} s" for at_s, count in self._elastic["workers"])
        return "\n".join([*lines, f"workers: {told}", ""])

    def headline(self) -> dict[str, Any]:
        """The figures that matter most."""
        figures: dict[str, Any] = {"hosts_allowed": not self._refused}
        if self._refused:
            figures["reason"] = self._refused
        for name in ("internode_fraction", "mean_ms", "p99_ms"):
            figures[name] = {
                case.application: {
                    when: middle(self._spread(case, when, name)) for when in ("before", "after")
                }
                for case in self._found
            }
        for name in ("seconds_until_moved", "longest_silence_ms", "took_ms"):
            figures[name] = {
                case.application: middle(self._spread(case, name)) for case in self._found
            }
        figures["longest_silence_ms_spread"] = {
            case.application: limits(self._spread(case, "longest_silence_ms"))
            for case in self._found
        }
        figures["steady_silence_ms"] = {
            case.application: middle(self._spread(case, "before", "longest_silence_ms"))
            for case in self._found
        }
        figures["moved"] = {
            case.application: f"{sum(one['moved'] for one in told)} of {len(told)}"
            for case, told in self._found.items()
        }
        figures["paper_restart_s"] = PAPER["restart_s"]
        found = self._elastic
        figures["elastic"] = {
            "emitted_of_due": rounded(found["emitted"] / found["due"]),
            "delivered_of_due": rounded(found["delivered"] / found["due"]),
            "emitted_of_due_by_step": [
                rounded(one["emitted_per_s"] / one["scheduled_per_s"]) for one in found["phases"]
            ],
            "p99_ms_by_step": [rounded(one["p99_ms"]) for one in found["phases"]],
            "workers_from_s": found["workers"],
            "waits_s": [self._plan.up_s, self._plan.down_s],
        }
        figures["rounds"] = min((len(told) for told in self._found.values()), default=0)
        figures["background_cpu_percent"] = round(self._background_percent, 1)
        figures["seconds"] = round(self.elapsed_s(), 1)
        return figures

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return {
            "headline": figures,
            "machine": machine(),
            "paper": PAPER,
            "on line": {case.application: told for case, told in self._found.items()},
            "elastic": self._elastic,
        }


if __name__ == "__main__":
    main(Run)
