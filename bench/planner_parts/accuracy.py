"""Predicted against measured: the highest rate of four applications under several plans.

The topologies run on local Spark with two workers and sources that never wait. Each rate is what
the sources emit when all queues have filled.

A prediction is for workers that have a core each, at its full speed. What the busiest worker got of
that is measured beside its run: the part of a core (`worker_cpu`), and how fast this core was
(`worker_speed`, by the yardstick). The error is that of the prediction against the rate that was
measured, divided by both; `raw_error` is without. On a quiet machine whose cores keep their speed
the two are the same.
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
from planner_parts.pace import Pace, watch
from tailrace.apps import fraud_detection, linear_road, spike_detection, word_count
from tailrace.graph.expand import chains
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Place
from tailrace.plan.model.prediction import predict
from tailrace.plan.plan import Plan, check, plan_for, with_parallelism
from tailrace.planner.calibrate import this_machine
from tailrace.planner.profiler import profile
from tailrace.spark.starting import start

APPS = {
    "word_count": word_count,
    "fraud_detection": fraud_detection,
    "spike_detection": spike_detection,
    "linear_road": linear_road,
}
WORKERS = 2
CLOSE = 0.05
"""What differs by less counts as the same: rates in a ranking, the work of two workers."""


@dataclass(frozen=True)
class Comparison:
    """One plan of one application; rates are records per second that the sources emit."""

    app: str
    plan: str
    predicted: float
    measured: float
    worker_cpu: tuple[float, ...]
    """What each worker used of a core. The bottleneck's is 1 if nobody else used the machine."""
    worker_speed: tuple[float, ...]
    """How fast each worker's core was, 1 is as fast as when the machine was calibrated."""
    alike: bool
    """Whether all workers have the same to do by the model; then the faster ones do more of it."""

    @property
    def undisturbed(self) -> float:
        """What would have been measured if the busiest worker had had a whole core at speed 1."""
        got = [cpu * speed for cpu, speed in zip(self.worker_cpu, self.worker_speed, strict=True)]
        return self.measured / (mean(got) if self.alike else max(got))

    @property
    def error(self) -> float:
        """By how much the prediction is off, in parts of what is measured undisturbed."""
        return self.predicted / self.undisturbed - 1

    @property
    def raw_error(self) -> float:
        """By how much it is off in parts of what was measured, whatever else was going on."""
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
    spark: Any, graph: Graph, plan: Plan, warm_s: float, seconds: float, yardstick_ns: float
) -> tuple[float, Pace]:
    """The rate of a plan that runs as fast as it goes, and what its workers got meanwhile.

    Seconds are CPU time of the busiest worker, so that queues have filled on a slow machine, too.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        applied = check(plan, watched.watched(graph, folder))
        job = start(applied, spark, placement=plan.place_of)
        try:
            while job.status == "starting":
                time.sleep(0.005)
            pids = [worker["pid"] for worker in job.workers]
            watch(pids, warm_s, yardstick_ns)
            pace = watch(pids, seconds, yardstick_ns)
        finally:
            job.stop(drain=False)
        error = job.exception()
        if error is not None:
            raise error
        return watched.rate_in(folder, pace.begin_ns, pace.end_ns), pace


def accuracy(spark: Any, *, quick: bool = False) -> list[Comparison]:
    """Compare on local Spark: all plans of all applications; quick: three plans, short runs."""
    cloudpickle.register_pickle_by_value(watched)
    machine = this_machine(fresh=not quick)
    places = machine.workers(WORKERS)
    found = []
    for app, module in APPS.items():
        graph = watched.watched(module.topology().graph, None)
        seconds = 0.8 if quick else 4.0
        measured_profile = profile(graph, sample=400_000, seconds=seconds, run_sinks=True)
        for name, plan in list(plans_for(graph, places).items())[: 3 if quick else None]:
            prediction = predict(graph, plan, measured_profile, machine)
            times_s = (0.4, 0.6) if quick else (1.5, 4.0)
            rate, pace = measure(spark, graph, plan, *times_s, machine.yardstick_ns)
            used = [use.used for use in prediction.uses if use.what == "place" and use.used]
            alike = min(used) > (1 - CLOSE) * max(used)
            found.append(
                Comparison(app, name, prediction.source_rate, rate, pace.cpu, pace.speed, alike)
            )
    return found


def summary(found: list[Comparison]) -> dict[str, Any]:
    """By application: the errors, and how many pairs of plans the model ranks rightly."""
    result: dict[str, Any] = {}
    for app in dict.fromkeys(one.app for one in found):
        of = [one for one in found if one.app == app]
        pairs = [
            (one.predicted - other.predicted) * (one.undisturbed - other.undisturbed) > 0
            for one, other in combinations(of, 2)
            if abs(one.undisturbed - other.undisturbed)
            > CLOSE * max(one.undisturbed, other.undisturbed)
        ]
        best = max(of, key=lambda one: one.undisturbed)
        chosen = max(of, key=lambda one: one.predicted)
        result[app] = {
            "mean_error": round(mean(abs(one.error) for one in of), 3),
            "errors": {one.plan: round(one.error, 3) for one in of},
            "raw_errors": {one.plan: round(one.raw_error, 3) for one in of},
            "ranked_rightly": f"{sum(pairs)} of {len(pairs)} pairs",
            "busiest_worker_cpu": {one.plan: max(one.worker_cpu) for one in of},
            "chosen_over_best": round(chosen.undisturbed / best.undisturbed, 3),
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
            f" {one.measured:9,.0f}/s, undisturbed {one.undisturbed:9,.0f}/s"
            f" error {one.error:+.0%} (raw {one.raw_error:+.0%})"
            f" CPU of workers {one.worker_cpu} speed {one.worker_speed}"
        )
    print(json.dumps(summary(found)))


if __name__ == "__main__":
    main()
