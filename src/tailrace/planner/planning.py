"""From a topology to a plan: what the scheduler needs to know is measured if it is not given."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.loads import ExternalRate
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.prediction import Prediction, predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.model.traffic import Traffic
from tailrace.plan.plan import Plan, PlanError, bound_to_cores, check
from tailrace.plan.schedulers.auto import RIVALS, auto
from tailrace.plan.schedulers.by_name import REPLICATING, scheduler
from tailrace.plan.schedulers.consolidate import consolidate
from tailrace.plan.schedulers.for_rate import check_rate, for_rate
from tailrace.plan.schedulers.scheduler import Scheduler
from tailrace.plan.schedulers.traffic_aware import traffic_aware
from tailrace.runtime.process import Process
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
    rate: ExternalRate = None
    """Records per second of the sources that it was made for; None: as many as it sustains."""

    @property
    def prediction(self) -> Prediction:
        """What the model expects of it, at the rate that it was made for."""
        return predict(self.graph, self.plan, self.profile, self.machine, self.rate)

    def explain(self) -> str:
        """The plan and what to expect of it, as text for people."""
        from tailrace.plan.show.explain import explain

        return explain(self.graph, self.plan, self.profile, self.machine, self.rate)

    def picture(self) -> str:
        """The same as an HTML page."""
        from tailrace.plan.show.picture import picture

        return picture(self.graph, self.plan, self.profile, self.machine, self.rate)


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
    rate: ExternalRate = None,
) -> Planned:
    """The plan of a scheduler for so many workers, or for those at the places given.

    Each worker is bound to a core, while there are enough.
    Without `profile` the sources are read and every operator is run on a sample, in this process;
    without `machine` it is this one, whose costs are measured once and kept. Both take seconds and
    are announced on stderr. Operators that are `fixed` or in `keep` stay as many as they are;
    measured `traffic` is for those schedulers that go by it. Schedulers that are blind to costs
    have nothing measured, unless the plan's performance is to be `predicted`.

    With a `rate`, the records per second of each source or by source, the plan is for the fewest
    nodes, and workers of a node, that sustain it, with the least traffic between nodes.
    """
    make = scheduler(name)  # an unknown name is refused before anything is measured
    if isinstance(workers, int) and workers < 1:
        raise ValueError(f"a plan for {workers} workers was asked for; there must be at least 1")
    if rate is not None:
        check_rate(rate)
    needed = predicted or rate is not None or name not in BLIND
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
    if make is auto and rate is not None:
        options |= {"goal": "traffic", "external_rate": rate}

    def ask(graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]) -> Plan:
        return make(graph, profile, machine, places, **options)

    if rate is None:
        plan = ask(graph, costs, hardware, places)
    else:
        plan = for_rate(ask, graph, costs, hardware, places, rate)
    if name != "spread":  # which is what is there without any plan
        plan = bound_to_cores(plan, hardware)
    return Planned(graph, plan, costs, hardware, rate)


def fixed(graph: Graph) -> list[str]:
    """Operators whose number means something, so that no scheduler may change it.

    Instances of a source are shares of the outside. Of operator objects without a key nobody but
    their author knows what they remember from one record to the next. What is gathered is one.
    """
    gathered = {one.target for one in graph.streams if one.grouping.rule is Rule.GLOBAL}
    return [
        operator.name
        for operator in graph.operators
        if operator.is_source
        or operator.name in gathered
        or (isinstance(operator.logic, Process) and not operator.logic.keyed)
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
        from tailrace.planner.calibrate import cache_path, kept_machine, this_machine
        from tailrace.planner.detect import detect

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
        from tailrace.planner.profiler import profile as measure

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
