"""First fit: along the streams, each instance into the first place that has room."""

from __future__ import annotations

from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for
from tailrace.plan.search.packing import pack


def first_fit(graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]) -> Plan:
    """As BriskStream's table 6 has it, from the sources on; keeps the graph's parallelism.

    Room is counted at the highest rate there could be. When something fits nowhere, all places
    are taken to be bigger than they are, and packing starts again.
    """
    everywhere = list(range(len(places)))
    place_of, allowance = pack(graph, profile, machine, places, lambda _: everywhere)
    reason = f"first place with room, counting places as {allowance:.0%} of their size"
    return plan_for(graph, places, place_of, scheduler="first fit", reason=reason)
