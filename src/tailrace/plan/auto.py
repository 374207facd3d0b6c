"""Auto: ask the schedulers, fuse what pays, and take what the model likes best."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Literal

from tailrace.graph.model import Graph, Grouping, Rule, Stream
from tailrace.plan.consolidate import consolidate
from tailrace.plan.first_fit import first_fit
from tailrace.plan.loads import ExternalRate
from tailrace.plan.machine import Machine, Place
from tailrace.plan.model import Prediction, predict
from tailrace.plan.plan import Plan, with_parallelism
from tailrace.plan.profile import Profile
from tailrace.plan.resource_aware import resource_aware
from tailrace.plan.rlas import rlas
from tailrace.plan.round_robin import round_robin
from tailrace.plan.scheduler import Scheduler
from tailrace.plan.traffic_aware import traffic_aware

Goal = Literal["throughput", "latency"]
RIVALS: Mapping[str, Scheduler] = {
    "round robin": round_robin,
    "first fit": first_fit,
    "traffic aware": traffic_aware,
    "resource aware": resource_aware,
    "consolidate": consolidate,
}
"""Schedulers that keep the topology's parallelism."""


def auto(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    goal: Goal = "throughput",
    external_rate: ExternalRate = None,
    keep: Collection[str] = (),
    rivals: Mapping[str, Scheduler] = RIVALS,
    budget_s: float = 10.0,
) -> Plan:
    """The plan with the highest predicted throughput, or the lowest latency, and why.

    Throughput is what the sources emit: at the sinks, copies of a broadcast would count as gain.
    Compared are the rivals' plans, RLAS's, and RLAS's with shuffled streams fused, one after the
    other as long as that helps. Operators in `keep` stay as many as they are. After `budget_s` the
    best so far is taken; RLAS alone takes a few seconds for a hundred cores.
    """
    if goal == "latency" and external_rate is None:
        raise ValueError("latency depends on the rate; give external_rate, in records per second")
    ends = time.monotonic() + budget_s

    def planned(wanted: Graph) -> Plan:
        left = max(0.0, ends - time.monotonic())
        return rlas(wanted, profile, machine, places, keep=keep, budget_s=left)

    def judged(plan: Plan) -> tuple[float, Plan]:
        return _worth(predict(graph, plan, profile, machine, external_rate), goal), plan

    tried = {name: judged(make(graph, profile, machine, places)) for name, make in rivals.items()}
    tried["rlas"] = judged(planned(graph))
    current, name = graph, "rlas"
    for stream in _shuffled(graph):
        fused = _fused(current, stream, keep)
        if fused is not None and time.monotonic() < ends:
            joined = " and " if " with " in name else " with "
            more = f"{name.removesuffix(' fused')}{joined}{stream.label} fused"
            tried[more] = judged(planned(fused))
            if tried[more][0] > tried[name][0]:
                current, name = fused, more
    best = max(tried, key=lambda name: tried[name][0])
    worth, plan = tried[best]
    others = ", ".join(
        f"{name} {_as_text(value, goal)}" for name, (value, _) in tried.items() if name != best
    )
    reason = f"{best}: {_as_text(worth, goal)}; others: {others}. {plan.reason}"
    return replace(plan, scheduler="auto", reason=reason)


def _worth(prediction: Prediction, goal: Goal) -> float:
    return prediction.source_rate if goal == "throughput" else -prediction.latency_ms


def _as_text(worth: float, goal: Goal) -> str:
    if goal == "throughput":
        return f"{worth:,.0f} records/s"
    return "no end of waiting" if worth == -inf else f"{-worth:.3g} ms"


def _shuffled(graph: Graph) -> Iterator[Stream]:
    """Streams that could be fused: shuffled, and all that their target reads."""
    for stream in graph.streams:
        if stream.grouping.rule is Rule.SHUFFLE and len(graph.into(stream.target)) == 1:
            yield stream


def _fused(graph: Graph, stream: Stream, keep: Collection[str]) -> Graph | None:
    """The graph with one more stream fused; None when what is kept forbids it."""
    source, target = graph.operator(stream.source), graph.operator(stream.target)
    if target.name in keep and source.parallelism != target.parallelism:
        return None
    forwarded = replace(
        graph,
        streams=tuple(
            replace(s, grouping=Grouping(Rule.FORWARD)) if s == stream else s for s in graph.streams
        ),
    )
    return with_parallelism(forwarded, {})
