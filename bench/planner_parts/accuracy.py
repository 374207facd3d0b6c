"""Predicted against measured: the highest rate of four applications under several plans.

The topologies run on local Spark with two workers and sources that never wait. Each rate is what
the sources emit when all queues have filled.

It wants a quiet machine: `worker_cpu` shows whether workers got the cores that the plan gives them.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark import cloudpickle

from planner_parts import watched
from tailrace.apps import fraud_detection, linear_road, spike_detection, word_count
from tailrace.graph.expand import chains
from tailrace.graph.model import Graph
from tailrace.measure.calibrate import this_machine
from tailrace.measure.profiler import profile
from tailrace.plan.machine import Machine, Place
from tailrace.plan.model import predict
from tailrace.plan.plan import Plan, check, plan_for, with_parallelism
from tailrace.spark.job import start

APPS = {
    "word_count": word_count,
    "fraud_detection": fraud_detection,
    "spike_detection": spike_detection,
    "linear_road": linear_road,
}
WORKERS = 2
CLOSE = 0.05
"""Measured rates that differ by less say nothing about the ranking."""


@dataclass(frozen=True)
class Comparison:
    """One plan of one application; rates are records per second that the sources emit."""

    app: str
    plan: str
    predicted: float
    measured: float
    worker_cpu: tuple[float, ...]
    """What each worker used of a core. The bottleneck's is 1 if nobody else used the machine."""

    @property
    def error(self) -> float:
        """By how much the prediction is off, in parts of what was measured."""
        return self.predicted / self.measured - 1


def plans_for(graph: Graph, places: tuple[Place, ...]) -> dict[str, Plan]:
    """Plans that use two workers in different ways."""
    heads = [chain.operators[0] for chain in chains(graph)]
    sources = {operator.name for operator in graph.operators if operator.is_source}
    single = with_parallelism(graph, dict.fromkeys(heads, 1))
    double = with_parallelism(graph, dict.fromkeys(heads, 2))
    around = with_parallelism(graph, {head: 1 if head in sources else 2 for head in heads})

    def plan(name: str, shaped: Graph, worker: Callable[[str, int], int]) -> Plan:
        place_of = [
            worker(chain.operators[0], index)
            for chain in chains(shaped)
            for index in range(chain.parallelism)
        ]
        return plan_for(shaped, places, place_of, scheduler=name, reason="for comparison")

    return {
        "one worker": plan("one worker", single, lambda head, index: 0),
        "cut": plan("cut", single, lambda head, index: int(head not in sources)),
        "two of each": plan("two of each", double, lambda head, index: index),
        "one source": plan("one source", around, lambda head, index: index),
    }


def measure(
    spark: Any, graph: Graph, plan: Plan, warm_s: float, seconds: float
) -> tuple[float, tuple[float, ...]]:
    """The rate of a plan that runs as fast as it goes, and the CPU of its workers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        applied = check(plan, watched.watched(graph, folder))
        job = start(applied, spark, placement=plan.place_of)
        try:
            while job.status == "starting":
                time.sleep(0.005)
            time.sleep(warm_s)
            pids = [worker["pid"] for worker in job.workers]
            cpu_s, begin_ns = [_cpu_s(pid) for pid in pids], watched.now_ns()
            time.sleep(seconds)
            used = [_cpu_s(pid) - before for pid, before in zip(pids, cpu_s, strict=True)]
            end_ns = watched.now_ns()
        finally:
            job.stop(drain=False)
        error = job.exception()
        if error is not None:
            raise error
        rate = watched.rate_in(folder, begin_ns, end_ns)
    return rate, tuple(round(one * 1e9 / (end_ns - begin_ns), 2) for one in used)


def _cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def accuracy(
    spark: Any, *, quick: bool = False, machine: Machine | None = None
) -> list[Comparison]:
    """Compare on local Spark: all plans of all applications; quick: three plans, short runs."""
    cloudpickle.register_pickle_by_value(watched)
    machine = this_machine(fresh=not quick) if machine is None else machine
    places = machine.workers(WORKERS)
    found = []
    for app, module in APPS.items():
        graph = watched.watched(module.topology().graph, None)
        seconds = 0.8 if quick else 4.0
        measured_profile = profile(graph, sample=400_000, seconds=seconds, run_sinks=True)
        for name, plan in list(plans_for(graph, places).items())[: 3 if quick else None]:
            prediction = predict(graph, plan, measured_profile, machine)
            times_s = (0.4, 0.6) if quick else (1.5, 4.0)
            rate, cpu = measure(spark, graph, plan, *times_s)
            found.append(Comparison(app, name, prediction.source_rate, rate, cpu))
    return found


def summary(found: list[Comparison]) -> dict[str, Any]:
    """By application: the errors, and how many pairs of plans the model ranks rightly."""
    result: dict[str, Any] = {}
    for app in dict.fromkeys(one.app for one in found):
        of = [one for one in found if one.app == app]
        pairs = [
            (one.predicted - other.predicted) * (one.measured - other.measured) > 0
            for one, other in combinations(of, 2)
            if abs(one.measured - other.measured) > CLOSE * max(one.measured, other.measured)
        ]
        best = max(of, key=lambda one: one.measured)
        chosen = max(of, key=lambda one: one.predicted)
        result[app] = {
            "mean_error": round(mean(abs(one.error) for one in of), 3),
            "errors": {one.plan: round(one.error, 3) for one in of},
            "ranked_rightly": f"{sum(pairs)} of {len(pairs)} pairs",
            "busiest_worker_cpu": {one.plan: max(one.worker_cpu) for one in of},
            "chosen_over_best": round(chosen.measured / best.measured, 3),
            "plans": [asdict(one) for one in of],
        }
    return result


def main() -> None:
    """Compare, and print a line for each plan and the summary as JSON."""
    from tailrace.spark.session import local_spark

    spark = local_spark(WORKERS)
    found = accuracy(spark, quick="--quick" in sys.argv)
    spark.stop()
    for one in found:
        print(
            f"{one.app:16} {one.plan:12} predicted {one.predicted:9,.0f}/s measured"
            f" {one.measured:9,.0f}/s error {one.error:+.0%} CPU of workers {one.worker_cpu}"
        )
    print(json.dumps(summary(found)))


if __name__ == "__main__":
    main()
