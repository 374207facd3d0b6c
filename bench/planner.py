"""How good the planner's plans are by its own model, and how long it takes to find them.

    python bench/planner.py [--quick] [--out FOLDER]

BriskStream's section 6.4 on its simulated servers: the four applications as the paper describes
them (`planner_parts/briskstream.py` says which numbers are the paper's and which are chosen), 8
sockets of 18 cores, compression 5.

What is compared is predicted throughput at the sinks, by the one model in `plan/model.py`: what
the plan sustains under back-pressure. First fit and round robin get RLAS's replication and differ
in the placement only; both pass over places that are full, as far as possible, as in the paper.
RLAS_fix(L) and RLAS_fix(U) choose replication and placement by wrong costs (every fetch from the
farthest socket, every fetch free), and are then judged by the right ones. A random plan grows
operators at random up to 144 instances and places them at random; there are 1,000 of them.
`unrefined` is RLAS as the paper has it, without the refinement that follows here.

A ratio above 1 means that RLAS is better. `rlas_seconds_max` is the wall time of the slowest of
the four searches, in one thread; `rlas_cpu_seconds_max` is its CPU time, which other programs on
the machine disturb less.

`consolidate_internode_fraction` and `roundrobin_internode_fraction` are TurboStream's: of the
records between instances of SOL (5 per bolt, 8 workers), the part that leaves its node, by number
of nodes (`planner_parts/traffic.py`).

`model_error` is the one thing here that runs: the four applications on local Spark with two
workers, each under at least three plans; predicted source rate over measured, minus 1, and how many
pairs of plans the model ranks rightly. What the workers got of their cores is measured and taken
into account; `raw_errors` are without that (`planner_parts/accuracy.py`).

With --quick searches are shorter, RLAS's as those of its rivals. Without also: Server B, fewer
sockets (figure 9b) and other compressions (table 7).
"""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.spread import rounded
from planner_parts.accuracy import WORKERS, accuracy, summary
from planner_parts.briskstream import APPS
from planner_parts.traffic import internode_fractions
from tailrace.graph.model import Graph
from tailrace.plan.model.flow import flow_of
from tailrace.plan.model.machine import Machine, server_a, server_b
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, check
from tailrace.plan.schedulers.consolidate import consolidate
from tailrace.plan.schedulers.first_fit import first_fit
from tailrace.plan.schedulers.os_placement import os_placement
from tailrace.plan.schedulers.random_plan import random_plan
from tailrace.plan.schedulers.rlas import LAYOUTS, rlas, rlas_fix_l, rlas_fix_u
from tailrace.plan.schedulers.round_robin import round_robin
from tailrace.plan.search.layout import layout_of_plan
from tailrace.spark.session import local_spark

RANDOM_PLANS = 1_000
QUICK_LAYOUTS = 15_000
RIVALS = ("ff", "rr", "os", "fix_l", "fix_u", "unrefined", "best_random")


@dataclass(frozen=True)
class Result:
    """One application on one machine."""

    throughput: float
    """Of RLAS, in records per second at the sinks."""
    instances: dict[str, int]
    bottleneck: str
    seconds: float
    cpu_seconds: float
    over: dict[str, float]
    """RLAS's throughput over that of each rival."""
    random_percentiles: list[float]
    """Throughput of the random plans over RLAS's, at 1, 25, 50, 75, 99 and 100 %."""


def measure(graph: Graph, profile: Profile, machine: Machine, layouts: int) -> Result:
    places = machine.sockets()

    def throughput(plan: Plan) -> float:
        check(plan, graph, places)
        return predict(graph, plan, profile, machine).throughput

    started, cpu = time.perf_counter(), time.process_time()
    plan = rlas(graph, profile, machine, places, layouts=layouts)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    prediction = predict(graph, plan, profile, machine)
    best = prediction.throughput

    scaled = check(plan, graph, places)
    rivals = {
        "ff": first_fit(scaled, profile, machine, places),
        "rr": round_robin(scaled, profile, machine, places, skip_full=True),
        "os": os_placement(scaled, profile, machine, places),
        "fix_l": rlas_fix_l(graph, profile, machine, places, layouts=layouts),
        "fix_u": rlas_fix_u(graph, profile, machine, places, layouts=layouts),
        "unrefined": rlas(graph, profile, machine, places, layouts=0),
    }
    over = {name: best / throughput(rival) for name, rival in rivals.items()}

    # A layout gives the model's rate without all that a prediction tells beside it. The best of
    # them is predicted in full.
    flow = flow_of(graph, profile, machine, places)
    drawn = []
    for seed in range(RANDOM_PLANS):
        random = random_plan(graph, profile, machine, places, seed=seed)
        rate = 1 / layout_of_plan(flow, random).fullest()
        drawn.append((rate / prediction.source_rate, random))
    drawn.sort(key=lambda pair: pair[0])
    over["best_random"] = best / throughput(drawn[-1][1])
    percentiles = [drawn[i * (RANDOM_PLANS - 1) // 100][0] for i in (1, 25, 50, 75, 99, 100)]
    limit = f"{prediction.bottleneck.what} {prediction.bottleneck.where}"
    return Result(best, dict(plan.parallelism), limit, seconds, cpu_seconds, over, percentiles)


def table(results: dict[str, Result]) -> str:
    lines = [f"{'':18}{'records/s':>14}{'s':>7}" + "".join(f"{name:>13}" for name in RIVALS)]
    for app, result in results.items():
        row = "".join(f"{result.over[name]:>12.2f}x" for name in RIVALS)
        lines.append(f"{app:18}{result.throughput:>14,.0f}{result.seconds:>7.2f}{row}")
    return "\n".join(lines)


def by_sockets() -> dict[str, dict[int, float]]:
    """Throughput on 1 to 8 sockets of Server A (figure 9b)."""
    return {app: {n: _planned(app, server_a(sockets=n)) for n in (1, 2, 4, 8)} for app in APPS}


def by_compression() -> dict[int, tuple[float, float]]:
    """Throughput of word count and seconds, by compression (table 7)."""
    found = {}
    for compression in (1, 3, 5, 10, 15):
        started = time.perf_counter()
        rate = _planned("word_count", server_a(), compression=compression)
        found[compression] = (rate, round(time.perf_counter() - started, 2))
    return found


def _planned(app: str, machine: Machine, compression: int = 5) -> float:
    graph, profile = APPS[app]()
    plan = rlas(graph, profile, machine, machine.sockets(), compression=compression)
    return predict(graph, plan, profile, machine).throughput


def figure(servers: dict[str, dict[str, Result]], path: Path) -> None:
    """RLAS over its rivals, one panel per server."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawing, panels = plt.subplots(1, len(servers), figsize=(7 * len(servers), 4), squeeze=False)
    for axes, (server, results) in zip(panels[0], servers.items(), strict=True):
        for i, rival in enumerate(RIVALS):
            at = [k + i / (len(RIVALS) + 1) for k in range(len(results))]
            axes.bar(at, [r.over[rival] for r in results.values()], 0.13, label=rival)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks([k + 0.36 for k in range(len(results))], list(results))
        axes.set_title(f"{server}, simulated")
        axes.set_ylabel("predicted throughput, RLAS / rival")
        axes.legend()
    drawing.savefig(path, dpi=120, bbox_inches="tight")


class Run(Benchmark):
    """One run of the benchmark."""

    name = "planner"
    description = "RLAS beside other schedulers, by the model."
    quick_help = "Server A only, within 50 s"
    settings = ()

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._servers: dict[str, dict[str, Result]] = {}
        self._accuracy: dict[str, Any] = {}
        self._more: dict[str, Any] = {}

    def measure(self) -> None:
        """Plan, compare, and let some plans run."""
        quick = self.options.quick
        builders: dict[str, Callable[[], Machine]] = {"Server A": server_a}
        if not quick:
            builders["Server B"] = server_b
        layouts = QUICK_LAYOUTS if quick else LAYOUTS
        for name, build in builders.items():
            self._servers[name] = {}
            for app, make in APPS.items():
                self.say(f"{name}: {app}")
                self._servers[name][app] = measure(*make(), build(), layouts)
        self.say("the model's error, on Spark")
        spark = local_spark(WORKERS)
        self.ends.callback(spark.stop)
        self._accuracy = summary(accuracy(spark, quick=quick))
        if not quick:
            self.say("other numbers of sockets, other compressions")
            self._more = {"by_sockets": by_sockets(), "by_compression": by_compression()}

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = [
            f"{name} (simulated): RLAS, and RLAS over\n{table(results)}\n"
            for name, results in self._servers.items()
        ]
        return "\n".join(["", *lines, *(f"{what}: {found}" for what, found in self._more.items())])

    def headline(self) -> dict[str, Any]:
        """Server A, traffic between nodes, and the model's error by application."""
        results = self._servers["Server A"]
        figures: dict[str, Any] = {
            f"rlas_over_{rival}": {app: rounded(r.over[rival]) for app, r in results.items()}
            for rival in RIVALS
        }
        figures["rlas_seconds_max"] = rounded(max(r.seconds for r in results.values()))
        figures["rlas_cpu_seconds_max"] = rounded(max(r.cpu_seconds for r in results.values()))
        for name, scheduler in (("consolidate", consolidate), ("roundrobin", round_robin)):
            fractions = internode_fractions(scheduler)
            figures[f"{name}_internode_fraction"] = {n: rounded(x) for n, x in fractions.items()}
        keys = ("mean_error", "errors", "raw_errors", "ranked_rightly", "busiest_worker_cpu")
        figures["model_error"] = {
            app: {key: found[key] for key in keys} for app, found in self._accuracy.items()
        }
        return figures

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return {
            "headline": figures,
            "machine": machine(),
            "accuracy": self._accuracy,
            "servers": {
                name: {app: asdict(result) for app, result in results.items()}
                for name, results in self._servers.items()
            },
            **self._more,
        }

    def draw(self, path: Path) -> bool:
        """Write the figure, if all of it was measured."""
        if self.options.quick:
            return False
        figure(self._servers, path)
        return True

    def beaten(self) -> dict[str, float]:
        """Where a random plan is better than RLAS's: its throughput over the random one's."""
        over = {app: r.over["best_random"] for app, r in self._servers["Server A"].items()}
        return {app: ratio for app, ratio in over.items() if ratio < 1}


if __name__ == "__main__":
    beaten = main(Run).beaten()
    if beaten:
        sys.exit(f"random plans beat RLAS: {beaten}")
