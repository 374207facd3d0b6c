"""By resources, as R-Storm does it: the place that is nearest to what an instance needs.

Instances are taken operator by operator in breadth-first order from the sources, one of each in
turn, so that neighbours come one after the other. The first goes to the node with most resources;
from then on that is the node to be near to. Each instance goes to the place at the least distance
in the space of CPU, memory bandwidth and network: |what the place has left - what the instance
needs| in the first two, how far the place is from the reference in the third.

Memory bandwidth is a hard constraint, never exceeded. CPU is a soft one: it is kept while some
place has enough left, and otherwise the place with most left is used. R-Storm's users say what
each operator needs; here it follows from the profile and from the rate at which all CPUs together
would be just busy. Where the hard constraint leaves no room at that rate, it is lowered by tenths
until it does.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

from tailrace.graph.expand import Chain, chains
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.model.traffic import estimate
from tailrace.plan.plan import Plan, plan_for

_LOWER = 0.9


@dataclass(frozen=True)
class _Need:
    cores: float
    memory_bytes_per_s: float


def resource_aware(
    graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]
) -> Plan:
    """Operators in breadth-first order, each instance to the nearest place that can take it.

    The memory bandwidth of a socket is never exceeded at the rate the plan is made for.
    """
    known = estimate(graph, profile)
    total = sum(place.cores for place in places)
    busy = sum(known.loads)
    scale = total / busy if busy else 1.0
    turns = breadth_first(graph)
    while True:
        needs = [
            _Need(load * scale, memory * scale)
            for load, memory in zip(known.loads, known.memory_bytes, strict=True)
        ]
        place_of = _place(turns, needs, machine, places)
        if place_of is not None:
            break
        scale *= _LOWER
    full = scale * busy / total if busy else 0.0
    return plan_for(
        graph,
        places,
        place_of,
        scheduler="resource aware",
        reason=f"made for the rate at which the cores are {full:.0%} busy",
    )


def breadth_first(graph: Graph) -> list[int]:
    """The instances: operators breadth first from the sources, one instance of each in turn."""
    chained = chains(graph)
    home = {name: chain for chain in chained for name in chain.operators}
    queue = deque(c for c in chained if graph.operator(c.operators[0]).is_source)
    seen = {chain.first for chain in queue}
    ordered: list[Chain] = []
    while queue:
        chain = queue.popleft()
        ordered.append(chain)
        for name in chain.operators:
            for stream in graph.out_of(name):
                target = home[stream.target]
                if target.first not in seen:
                    seen.add(target.first)
                    queue.append(target)
    most = max(chain.parallelism for chain in ordered)
    return [
        chain.first + index
        for index in range(most)
        for chain in ordered
        if index < chain.parallelism
    ]


def _place(
    turns: Sequence[int], needs: Sequence[_Need], machine: Machine, places: tuple[Place, ...]
) -> list[int] | None:
    """The place of each instance; None when a hard constraint leaves no room."""
    cores = [float(place.cores) for place in places]
    sockets = {(p.node, p.socket): _bandwidth(machine, p) for p in places}
    most_cores = max(cores)
    most_bandwidth = max((b for b in sockets.values() if not isinf(b)), default=1.0)
    reference = _richest(places)
    place_of = [0] * len(needs)
    for instance in turns:
        need = needs[instance]
        open_ = [
            p
            for p, place in enumerate(places)
            if sockets[place.node, place.socket] >= need.memory_bytes_per_s
        ]
        if not open_:
            return None
        enough = [p for p in open_ if cores[p] >= need.cores * (1 - 1e-9)]

        def distance(p: int, need: _Need = need) -> float:
            left = sockets[places[p].node, places[p].socket]
            cpu = (cores[p] - need.cores) / most_cores
            memory = 0.0 if isinf(left) else (left - need.memory_bytes_per_s) / most_bandwidth
            network = _network(places[reference], places[p], p == reference)
            return cpu * cpu + memory * memory + network * network

        if enough:
            chosen = min(enough, key=lambda p: (distance(p), p))
        else:
            chosen = max(open_, key=lambda p: (cores[p], -p))
        place_of[instance] = chosen
        cores[chosen] -= need.cores
        sockets[places[chosen].node, places[chosen].socket] -= need.memory_bytes_per_s
    return place_of


def _bandwidth(machine: Machine, place: Place) -> float:
    return machine.nodes[place.node].sockets[place.socket].memory_bytes_per_s


def _richest(places: Sequence[Place]) -> int:
    """The first place of the node with most cores."""
    cores: defaultdict[int, int] = defaultdict(int)
    for place in places:
        cores[place.node] += place.cores
    return max(range(len(places)), key=lambda p: (cores[places[p].node], places[p].cores, -p))


def _network(reference: Place, place: Place, same: bool) -> float:
    """How far a place is from the reference: 0 itself, 1 another node."""
    if same:
        return 0.0
    if place.node != reference.node:
        return 1.0
    return 0.5 if place.socket != reference.socket else 0.25
