"""A better plan for a job that runs, from what its monitor has seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

from tailrace.control.progress.summary import Summary
from tailrace.control.progress.traffic import TrafficTable
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for
from tailrace.planner.planning import places_for, planned
from tailrace.planner.relabelling import least_moved


@dataclass(frozen=True)
class Replan:
    """What `job.replan()` found. Nothing has been moved."""

    plan: Plan
    """The plan to go on with; for "auto" the present one, where nothing better was found."""
    present: Plan
    profile: Profile
    """What operators cost and do in the job, which both are judged by."""
    records_per_s: float
    """Predicted: what the sources can emit by the plan."""
    present_records_per_s: float

    @property
    def gain(self) -> float:
        """0.25: a quarter more records per second; below 0 it is less."""
        return self.records_per_s / self.present_records_per_s - 1

    def __str__(self) -> str:
        return (
            f"{self.plan.scheduler!r} expects {self.records_per_s:,.0f} records/s from the sources;"
            f" as it runs now {self.present_records_per_s:,.0f} ({self.gain:+.0%})"
        )


def replanned(
    graph: Graph,
    present: Plan,
    machine: Machine,
    summary: Summary,
    table: TrafficTable,
    scheduler: str,
    *,
    base: Profile | None = None,
    keep: Collection[str] = (),
    tied: Collection[str] = (),
) -> Replan:
    """The scheduler's plan for a running graph on the places that it has.

    Of equal places each is the one from which least moves; operators that cannot are `tied`.
    """
    from tailrace.planner.running import observed_profile

    if not sum(summary.emitted.values()):
        raise ValueError(f"{graph.name!r} has emitted nothing so far; ask again when it has")
    if base is not None:
        base = base.at_speed(machine.yardstick_ns)
    profile = sized(observed_profile(summary, graph, base), graph, table)
    made = planned(
        graph,
        present.places,
        scheduler,
        profile=profile,
        machine=machine,
        keep=keep,
        traffic=table.traffic(),
    )

    def rate(plan: Plan) -> float:
        return predict(graph, plan, profile, machine).source_rate

    plan = least_moved(graph, present, made.plan, machine, tied)
    if scheduler == "auto" and rate(plan) <= rate(present):
        plan = present
    return Replan(plan, present, profile, rate(plan), rate(present))


def sized(profile: Profile, graph: Graph, table: TrafficTable) -> Profile:
    """The profile with the sizes of records as they were on their way."""
    records: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for link in table.links:
        records[link.stream] += link.records
        sizes[link.stream] += link.bytes
    found: dict[str, dict[str, float]] = {}
    for stream in graph.streams:
        if sizes[stream.label]:
            mean = sizes[stream.label] / records[stream.label]
            found.setdefault(stream.source, {})[stream.output] = mean
    operators = {
        name: replace(known, record_bytes={**known.record_bytes, **found.get(name, {})})
        for name, known in profile.operators.items()
    }
    return replace(profile, operators=operators)


def across(machine: Machine, homes: Sequence[Hashable]) -> Machine:
    """The machine; if it is a single node and workers are on several, as many of its like."""
    nodes = len(set(homes))
    if len(machine.nodes) > 1 or nodes == 1:
        return machine
    (node,) = machine.nodes
    alike = tuple(replace(node, name=f"{node.name} {number}") for number in range(nodes))
    return replace(machine, name=f"{nodes} nodes like {machine.name}", nodes=alike)


def present_plan(
    graph: Graph, placement: Sequence[int], homes: Sequence[Hashable], machine: Machine
) -> Plan:
    """How a job that was started without a plan runs, for the machine: `homes` by worker."""
    nodes = list(dict.fromkeys(homes))
    if len(nodes) > len(machine.nodes):
        raise ValueError(
            f"the workers are on {len(nodes)} nodes; machine {machine.name!r} has"
            f" {len(machine.nodes)}. Give the machine that they run on"
        )
    places = tuple(Place(nodes.index(home), 0) for home in homes)
    if len(nodes) == 1:
        places = places_for(replace(machine, nodes=machine.nodes[:1]), len(homes))
    return plan_for(graph, places, placement, scheduler="present", reason="as it runs")
