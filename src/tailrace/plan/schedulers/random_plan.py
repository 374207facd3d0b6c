"""Random plans, to see how likely chance is to find a good one."""

from __future__ import annotations

import random

from tailrace.graph.expand import chains
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place, total_cores
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for, with_parallelism


def random_plan(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    seed: int = 0,
    max_instances: int | None = None,
) -> Plan:
    """BriskStream's Monte Carlo plan: chains grow at random up to the limit, placed at random.

    The limit is the number of cores, unless told. Nothing is taken into account: neither profile
    nor machine.
    """
    chance = random.Random(seed)
    sizes = {chain.operators[0]: 1 for chain in chains(graph)}
    heads = list(sizes)
    limit = total_cores(places) if max_instances is None else max_instances
    for _ in range(limit - len(heads)):
        sizes[chance.choice(heads)] += 1
    grown = with_parallelism(graph, sizes)
    place_of = [chance.randrange(len(places)) for _ in range(sum(sizes.values()))]
    return plan_for(grown, places, place_of, scheduler="random", reason=f"seed {seed}")
