"""From a topology to a plan: what the scheduler needs to know is measured if it is not given."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.graph.model import Graph
from tailrace.plan.auto import RIVALS, auto
from tailrace.plan.consolidate import consolidate
from tailrace.plan.machine import Machine, Place
from tailrace.plan.model import Prediction, predict
from tailrace.plan.plan import Plan, PlanError, bound_to_cores, check
from tailrace.plan.profile import Profile
from tailrace.plan.scheduler import Scheduler
from tailrace.plan.schedulers import REPLICATING, scheduler
from tailrace.plan.traffic import Traffic
from tailrace.plan.traffic_aware import traffic_aware
from tailrace.runtime.operators import Process
from tailrace.runtime.step import OperatorFailed

BLIND = ("random", "round robin", "spread")
"""Schedulers that look neither at costs nor at the machine's."""
_BY_TRAFFIC = ("consolidate", "traffic aware")
_SECONDS = 5.0


@dataclass(frozen=True)
class Planned:
    """A plan, and what it was made of."""

    graph: Graph
    plan: Plan
    profile: Profile
    machine: Machine

    @property
    def prediction(self) -> Prediction:
        """What the model expects of it."""
        return predict(self.graph, self.plan, self.profile, self.machine)

    def explain(self) -> str:
        """The plan and what to expect of it, as text for people."""
        from tailrace.plan.explain import explain

        return explain(self.graph, self.plan, self.profile, self.machine)

    def picture(self) -> str:
        """The same as an HTML page."""
        from tailrace.plan.picture import picture

        return picture(self.graph, self.plan, self.profile, self.machine)


def planned(
    graph: Graph,
    workers: int | tuple[Place, ...],
    name: str,
    *,
    profile: Profile | Path | str | None = None,
    machine: Machine | Path | str | None = None,
    keep: Collection[str] = (),
    traffic: Traffic | None = None,
    predicted: bool = False,
) -> Planned:
    """The plan of a scheduler for so many workers, or for those at the places given.

    Each worker is bound to a core, while there are enough.
    Without `profile` the sources are read and every operator is run on a sample, in this process;
    without `machine` it is this one, whose costs are measured once and kept. Both take seconds and
    are announced on stderr. Operators that are `fixed` or in `keep` stay as many as they are;
    measured `traffic` is for those schedulers that go by it. Schedulers that are blind to costs
    have nothing measured, unless the plan's performance is to be `predicted`.
    """
    make = scheduler(name)  # an unknown name is refused before anything is measured
    if isinstance(workers, int) and workers < 1:
        raise ValueError(f"a plan for {workers} workers was asked for; there must be at least 1")
    needed = predicted or name not in BLIND
    hardware = machine_of(machine, costs=needed)
    costs = profile_of(profile, graph) if needed or profile is not None else Profile({})
    places = places_for(hardware, workers) if isinstance(workers, int) else workers
    options: dict[str, Any] = {}
    if name in REPLICATING:
        options["keep"] = {*keep, *fixed(graph)}
    if name in _BY_TRAFFIC and traffic is not None:
        options["traffic"] = traffic
    if make is auto and traffic is not None:
        options["rivals"] = _informed(traffic)
    plan = make(graph, costs, hardware, places, **options)
    if name != "spread":  # which is what is there without any plan
        plan = bound_to_cores(plan, hardware)
    return Planned(graph, plan, costs, hardware)


def fixed(graph: Graph) -> list[str]:
    """Operators whose number means something, so that no scheduler may change it.

    Instances of a source are shares of the outside. Of operator objects without a key nobody but
    their author knows what they remember from one record to the next.
    """
    return [
        operator.name
        for operator in graph.operators
        if operator.is_source or (isinstance(operator.logic, Process) and not operator.logic.keyed)
    ]


def _informed(traffic: Traffic) -> Mapping[str, Scheduler]:
    """auto's rivals, those that go by traffic with the measured one."""
    return {
        **RIVALS,
        "consolidate": partial(consolidate, traffic=traffic),
        "traffic aware": partial(traffic_aware, traffic=traffic),
    }


def places_for(machine: Machine, workers: int) -> tuple[Place, ...]:
    """So many workers, shared out evenly over the machine's nodes, the first get what is over."""
    nodes = len(machine.nodes)
    most = -(-workers // nodes)
    found: list[Place] = []
    for node in range(nodes):
        here = [place for place in machine.workers(most) if place.node == node]
        found += here[: workers // nodes + (node < workers % nodes)]
    return tuple(found)


def machine_of(machine: Machine | Path | str | None, *, costs: bool = True) -> Machine:
    """The machine, or what its file says; None: this one, its costs measured if they are needed."""
    if machine is None:
        from tailrace.measure.calibrate import cache_path, kept_machine, this_machine
        from tailrace.measure.detect import detect

        if not costs:
            return detect()
        kept = kept_machine(cache_path())
        if kept is None:
            _say(f"measuring this machine, once (kept in {cache_path()}) ...")
            kept = this_machine(fresh=True)
        return kept
    return machine if isinstance(machine, Machine) else Machine.load(machine)


def profile_of(profile: Profile | Path | str | None, graph: Graph) -> Profile:
    """The profile, or what its file says; None: measured on what the sources give.

    An operator that fails meanwhile is a RuntimeError, which has the record and the traceback.
    """
    if profile is None:
        from tailrace.measure.profiler import profile as measure

        _say(f"measuring the operators of {graph.name!r}, up to {_SECONDS:.0f} s ...")
        try:
            return measure(graph, seconds=_SECONDS)
        except OperatorFailed as failed:
            text = "".join(traceback.format_exception(failed.error)).rstrip()
            raise RuntimeError(
                f"{failed}\nThis was while the operators were measured on a sample.\n\n{text}"
            ) from failed
    return profile if isinstance(profile, Profile) else Profile.load(profile)


def plan_of(plan: Plan | Path | str, graph: Graph, workers: int | None) -> Plan:
    """The plan, or what its file says, if it fits the graph and the number of workers."""
    found = plan if isinstance(plan, Plan) else Plan.load(plan)
    check(found, graph)
    if workers is not None and workers != len(found.places):
        raise PlanError(
            f"the plan of {found.scheduler!r} was made for {len(found.places)} workers;"
            f" {workers} were asked for. Leave `workers` out, or make a plan for {workers}"
        )
    threads = [place for place in found.places if place.cores > 1]
    if threads:
        raise PlanError(
            f"the plan of {found.scheduler!r} has places of {threads[0].cores} cores; a worker has"
            " one. Make it for machine.workers() and not for its sockets"
        )
    return found


def _say(text: str) -> None:
    print(f"tailrace: {text}", file=sys.stderr)
