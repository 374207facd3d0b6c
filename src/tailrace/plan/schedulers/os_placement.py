"""What the operating system would do with the instances if nobody told it."""

from __future__ import annotations

from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for
from tailrace.plan.search.packing import demand


def os_placement(
    graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]
) -> Plan:
    """Balanced by load, blind to who talks to whom; keeps the graph's parallelism.

    Assumed is what Linux does in the long run: each runnable thread goes to the least busy place,
    one after the other as they start, and is then left there. Its load is what it executes;
    migrations, wake-ups near the waker and their cost are left out.
    """
    layout, _ = demand(graph, profile, machine, places)
    busy = [0.0] * len(places)
    place_of = []
    for k in layout.parts:
        for _ in range(layout.sizes[k]):
            place = min(layout.places, key=lambda p: busy[p] / places[p].cores)
            busy[place] += layout.base[k] / layout.sizes[k]
            place_of.append(place)
    return plan_for(graph, places, place_of, scheduler="os", reason="the least busy place")
