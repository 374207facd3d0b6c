"""Plans for a rate: the fewest nodes, and then workers, that sustain it, with little traffic.

Without a rate, schedulers aim at the highest one and use all that they are given, since more places
never make it lower. Who knows how much will arrive can have the rest for others. Here any scheduler
is given few places first: those of one node, then of two, and so on; the first plan that sustains
the rate by the model, with room to spare, is taken, and made quieter between its nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isfinite

from tailrace.graph.model import Graph
from tailrace.plan.model.flow import flow_of
from tailrace.plan.model.loads import NS, ExternalRate, source_rates
from tailrace.plan.model.machine import Machine, Place, total_cores
from tailrace.plan.model.prediction import Prediction, predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan
from tailrace.plan.schedulers.scheduler import Scheduler
from tailrace.plan.search.quieter import quieter

HEADROOM = 0.8
"""What a plan for a rate may use of anything: what is fuller has long queues, and models err."""


def check_rate(rate: ExternalRate) -> None:
    """Raise a ValueError if that cannot be a rate of sources."""
    for what, value in rate.items() if isinstance(rate, Mapping) else [("", rate)]:
        if value is None or not isfinite(value) or value <= 0:
            where = f" of {what!r}" if what else ""
            raise ValueError(f"rate{where} is {value!r}; it must be above 0, in records per second")


def for_rate(
    make: Scheduler,
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    rate: ExternalRate,
) -> Plan:
    """The scheduler's plan for the fewest nodes that sustain a rate, of each source or by source.

    Places stay as they are, used or not, so that workers find their seats. If all are on one node,
    those that are not used are left out. If no plan sustains the rate, it is the one for all
    places, and its reason says so.
    """
    check_rate(rate)
    least = _least_cores(graph, profile, machine, places, rate)
    for chosen in _few_places(places):
        if total_cores(places[p] for p in chosen) * HEADROOM < least:
            continue
        made = make(graph, profile, machine, tuple(places[p] for p in chosen))
        plan = replace(made, places=places, place_of=tuple(chosen[p] for p in made.place_of))
        if sustains(predict(graph, plan, profile, machine, rate)):
            plan = quieter(graph, plan, profile, machine, rate, fullest=HEADROOM)
            return _told(graph, _trimmed(plan), profile, machine, rate)
    plan = make(graph, profile, machine, places)
    most = predict(graph, plan, profile, machine).source_rate
    reason = (
        f"no plan found sustains the rate with room to spare; {most:,.0f} records/s is all that"
        " this one does"
    )
    return replace(plan, reason=f"{reason}. {plan.reason}")


def sustains(prediction: Prediction) -> bool:
    """Whether a prediction at some rate leaves room to spare everywhere."""
    return fullest(prediction) <= HEADROOM * (1 + 1e-9)


def fullest(prediction: Prediction) -> float:
    """How full the fullest instance, place or other resource is."""
    return max(prediction.uses[0].used, *prediction.busy)


def _least_cores(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    rate: ExternalRate,
) -> float:
    """What operators need by themselves, wherever they are."""
    flow = flow_of(graph, profile, machine, places[:1])
    emitted = source_rates(flow, rate)
    together = [[len(part.instances)] for part in flow.parts]
    rates = flow.rates(emitted, together)
    return sum(
        each * reaction.cpu_ns * NS
        for k in range(len(flow.parts))
        for reaction, _, each in flow.duties_of(k, emitted, together, rates)
    )


def _few_places(places: tuple[Place, ...]) -> Iterator[list[int]]:
    """Ever more of the places: of few nodes first, and there of few workers, up to all.

    Nodes that have the most places come first.
    """
    nodes = [node for node, _ in Counter(place.node for place in places).most_common()]
    of_node = {n: [p for p, place in enumerate(places) if place.node == n] for n in nodes}
    for count in range(1, len(nodes) + 1):
        most = len(of_node[nodes[0]])
        each = 1
        while True:
            yield sorted(p for node in nodes[:count] for p in of_node[node][:each])
            if each >= most:
                break
            each = min(2 * each, most)


def _trimmed(plan: Plan) -> Plan:
    """Without the places that nothing runs in, if all are on one node."""
    if len({place.node for place in plan.places}) > 1:
        return plan
    used = sorted(set(plan.place_of))
    return replace(
        plan,
        places=tuple(plan.places[p] for p in used),
        place_of=tuple(used.index(p) for p in plan.place_of),
    )


def _told(graph: Graph, plan: Plan, profile: Profile, machine: Machine, rate: ExternalRate) -> Plan:
    found = predict(graph, plan, profile, machine, rate)
    workers = len(set(plan.place_of))
    nodes = len({plan.places[p].node for p in plan.place_of})
    reason = (
        f"{found.source_rate:,.0f} records/s need {workers} worker{'s' * (workers > 1)} on"
        f" {nodes} node{'s' * (nodes > 1)}, at most {HEADROOM:.0%} full"
    )
    return replace(plan, reason=f"{reason}. {plan.reason}")
