"""Auto: ask the schedulers, fuse what pays, and take what the model likes best."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from tailrace.graph.model import Graph, Grouping, Rule, Stream
from tailrace.plan.model.loads import ExternalRate
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.prediction import Prediction, predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, with_parallelism
from tailrace.plan.schedulers.consolidate import consolidate
from tailrace.plan.schedulers.first_fit import first_fit
from tailrace.plan.schedulers.for_rate import HEADROOM, fullest
from tailrace.plan.schedulers.resource_aware import resource_aware
from tailrace.plan.schedulers.rlas import rlas
from tailrace.plan.schedulers.round_robin import round_robin
from tailrace.plan.schedulers.scheduler import Scheduler
from tailrace.plan.schedulers.spread import spread
from tailrace.plan.schedulers.traffic_aware import traffic_aware
from tailrace.plan.search.quieter import Leaving, leaving, quieter

Goal = Literal["throughput", "latency", "traffic"]
EQUAL = 0.01
"""Predictions that differ by less are taken to be equal: the model does not know better."""
RIVALS: Mapping[str, Scheduler] = {
    "spread": spread,
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
    other as long as that helps. Of plans that are equal within a hundredth it is the one with the
    least traffic between nodes, then between places; so never more than what a job does that
    nobody has planned, if that is as fast. With the goal "traffic" all plans that sustain the
    external rate with room to spare are equal. Operators in `keep` stay as many as they are. After
    `budget_s` the best so far is taken; RLAS alone takes a few seconds for a hundred cores.
    """
    if goal != "throughput" and external_rate is None:
        raise ValueError(f"{goal} depends on the rate; give external_rate, in records per second")
    ends = time.monotonic() + budget_s

    def planned(wanted: Graph) -> Plan:
        left = max(0.0, ends - time.monotonic())
        return rlas(wanted, profile, machine, places, keep=keep, budget_s=left)

    def judged(plan: Plan) -> _Tried:
        found = predict(graph, plan, profile, machine, external_rate)
        return _Tried(_worth(found, goal), leaving(found.traffic, places), plan, found)

    tried = {name: judged(make(graph, profile, machine, places)) for name, make in rivals.items()}
    tried["rlas"] = judged(planned(graph))
    current, name = graph, "rlas"
    for stream in _shuffled(graph):
        fused = _fused(current, stream, keep)
        if fused is not None and time.monotonic() < ends:
            joined = " and " if " with " in name else " with "
            more = f"{name.removesuffix(' fused')}{joined}{stream.label} fused"
            tried[more] = judged(planned(fused))
            if _best({name: tried[name], more: tried[more]}) == more:
                current, name = fused, more
    best = _best(tried)
    plan = tried[best].plan
    if goal == "throughput":
        slack = {name: rate * (1 - EQUAL) for name, rate in tried[best].found.source_rates.items()}
        plan = quieter(graph, plan, profile, machine, slack)
    others = ", ".join(
        f"{name} {_as_text(one.worth, goal)}" for name, one in tried.items() if name != best
    )
    reason = f"{best}: {_as_text(tried[best].worth, goal)}; others: {others}. {plan.reason}"
    return replace(plan, scheduler="auto", reason=reason)


@dataclass(frozen=True)
class _Tried:
    worth: float
    leaving: Leaving
    plan: Plan
    found: Prediction


def _best(tried: Mapping[str, _Tried]) -> str:
    """Of those that are as good as the best, the one with the least traffic."""
    most = max(one.worth for one in tried.values())
    enough = most - EQUAL * abs(most)
    equal = [name for name, one in tried.items() if one.worth >= enough]
    return min(equal, key=lambda name: (tried[name].leaving, -tried[name].worth))


def _worth(prediction: Prediction, goal: Goal) -> float:
    if goal == "throughput":
        return prediction.source_rate
    if goal == "latency":
        return -prediction.latency_ms
    return prediction.source_rate * min(1.0, HEADROOM / fullest(prediction))


def _as_text(worth: float, goal: Goal) -> str:
    if goal != "latency":
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
