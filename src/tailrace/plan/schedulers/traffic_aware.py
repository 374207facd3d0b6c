"""Greedy by traffic, as T-Storm and the on-line scheduler of Aniello et al. do it.

Pairs of instances, those that exchange most first, are put together while the load permits. As
with Aniello et al., a pair may go to the emptiest place or to where one of the two is, whatever
leaves least traffic between places; what was placed before may so move once more. As with T-Storm,
nodes come first, and a limit on the load, not on the number of instances. Inside a node the same
is done with its workers. (Aniello et al. fill workers first and then nodes, and T-Storm uses one
worker of each node only.)
"""

from __future__ import annotations

from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.model.traffic import Traffic, locality, measured_or_estimated
from tailrace.plan.model.weighted import Weighted
from tailrace.plan.plan import Plan, plan_for
from tailrace.plan.search.balance import Balance

BALANCE_FACTOR = 0.1


def traffic_aware(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    traffic: Traffic | None = None,
    balance_factor: float = BALANCE_FACTOR,
) -> Plan:
    """Pairs of instances by descending traffic, put together while the load permits.

    No node and no worker gets more than its share and the balance factor, unless by an instance
    that fits nowhere: it goes where most is free. Nobody is guaranteed to get anything.
    """
    known = measured_or_estimated(graph, profile, traffic)
    whole = known.weighted()
    nodes = sorted({place.node for place in places})
    workers = [[p for p, place in enumerate(places) if place.node == node] for node in nodes]
    capacity = [float(sum(places[p].cores for p in group)) for group in workers]
    node_of = put_together(whole, Balance.of(whole.loads, capacity, balance_factor))
    place_of = [0] * whole.size
    for node, group in enumerate(workers):
        instances = [v for v in range(whole.size) if node_of[v] == node]
        inside = whole.only(instances)
        cores = [float(places[p].cores) for p in group]
        balance = Balance.of(inside.loads, cores, balance_factor)
        for instance, part in zip(instances, put_together(inside, balance), strict=True):
            place_of[instance] = group[part]
    between = locality(known, place_of, places).internode_fraction
    return plan_for(
        graph,
        places,
        place_of,
        scheduler="traffic aware",
        reason=f"{between:.0%} of the records go to another node",
    )


def put_together(graph: Weighted, balance: Balance) -> list[int]:
    """The part of each vertex."""
    parts = range(len(balance.shares))
    part_of: list[int | None] = [None] * graph.size
    load = [0.0] * len(parts)
    pull = [[0.0] * len(parts) for _ in range(graph.size)]

    def move(vertex: int, to: int) -> None:
        origin = part_of[vertex]
        if origin == to:
            return
        for near, flow in graph.flows[vertex].items():
            pull[near][to] += flow
            if origin is not None:
                pull[near][origin] -= flow
        if origin is not None:
            load[origin] -= graph.loads[vertex]
        load[to] += graph.loads[vertex]
        part_of[vertex] = to

    def free(part: int) -> float:
        return balance.high[part] - load[part]

    def fits(one: int, other: int, here: int, there: int) -> bool:
        more = dict.fromkeys((here, there), 0.0)
        for vertex, part in ((one, here), (other, there)):
            more[part] += graph.loads[vertex]
            origin = part_of[vertex]
            if origin in more:
                more[origin] -= graph.loads[vertex]
        return all(added <= free(part) or added <= 0 for part, added in more.items())

    for one, other, flow in _heaviest_first(graph):
        emptiest = max(parts, key=lambda p: (free(p), -p))
        now = [part for part in (part_of[one], part_of[other]) if part is not None]
        if len(now) == 2 and now[0] == now[1]:
            continue
        options = sorted({emptiest, *now})
        choices = [
            (_together(pull, one, other, here, there, flow, part_of), here, there)
            for here in options
            for there in options
            if fits(one, other, here, there)
        ]
        if choices:
            stays = (part_of[one], part_of[other])
            _, here, there = max(choices, key=lambda c: (c[0], (c[1], c[2]) == stays, -c[1], -c[2]))
            move(one, here)
            move(other, there)
    alone = [vertex for vertex in range(graph.size) if part_of[vertex] is None]
    for vertex in sorted(alone, key=lambda v: (-graph.loads[v], v)):
        move(vertex, max(parts, key=lambda p: (free(p), -p)))
    return [part for part in part_of if part is not None]


def _heaviest_first(graph: Weighted) -> list[tuple[int, int, float]]:
    edges = [(v, u, flow) for v, near in enumerate(graph.flows) for u, flow in near.items()]
    return sorted((e for e in edges if e[0] < e[1]), key=lambda e: (-e[2], e[0], e[1]))


def _together(
    pull: list[list[float]],
    one: int,
    other: int,
    here: int,
    there: int,
    flow: float,
    part_of: list[int | None],
) -> float:
    """What two vertices exchange with their parts when placed so; their own flow counts once."""
    inside = pull[one][here] + pull[other][there]
    if part_of[other] == here:
        inside -= flow
    if part_of[one] == there:
        inside -= flow
    return inside + (flow if here == there else 0.0)
