"""Spread: what a job does that nobody has planned."""

from __future__ import annotations

from tailrace.graph.model import Graph
from tailrace.graph.wiring import Wiring, wire
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for


def spread(graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]) -> Plan:
    """Copies of chains over the places in turn; knows nothing but the topology."""
    place_of = spread_out(wire(graph), len(places))
    reason = "copies over the workers in turn"
    return plan_for(graph, places, place_of, scheduler="spread", reason=reason)


def spread_out(wiring: Wiring, workers: int) -> tuple[int, ...]:
    """Copies of chains over the workers in turn.

    Where there are as many copies as workers, or a multiple, copy i of all of them is on the same
    worker: what is forwarded or local stays local. The next chain begins where others ended.
    """
    placement = [0] * wiring.instances
    offset = 0
    for chain in wiring.chains:
        for index, instance in enumerate(chain.instances):
            placement[instance] = (index + offset) % workers
        if chain.parallelism % workers:
            offset += chain.parallelism
    return tuple(placement)
