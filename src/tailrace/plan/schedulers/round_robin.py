"""Round robin: instances in turn, as Storm places them; and as BriskStream compares itself with."""

from __future__ import annotations

from tailrace.graph.model import Graph
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for
from tailrace.plan.search.packing import pack


def round_robin(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    skip_full: bool = False,
) -> Plan:
    """Instance i goes to place i, round and round.

    With `skip_full` a place that would be over-full at the highest rate is passed over, as far as
    that is possible.
    """
    if not skip_full:
        return plan_for(
            graph,
            places,
            [i % len(places) for i in range(wire(graph).instances)],
            scheduler="round robin",
            reason="instances in turn",
        )

    def order(instance: int) -> list[int]:
        return [(instance + i) % len(places) for i in range(len(places))]

    place_of, allowance = pack(graph, profile, machine, places, order)
    reason = f"in turn, passing over places that are {allowance:.0%} full"
    return plan_for(graph, places, place_of, scheduler="round robin", reason=reason)
