"""TurboStream's coarse-grained scheduler (its section V), and what we do beyond it.

The paper's: instances that exchange much are consolidated into parents, level upon level, down to
a threshold (algorithm 1). The parents are split in two by breadth-first searches from every one of
them, minimising the traffic cut among the splits that are balanced within a factor; each half gets
nodes in proportion to its load and is split again, until every part is one node (algorithm 2).
Nodes may have different numbers of workers. Inside a node the workers take instances in turn. All
this is `consolidate(..., published=True)`.

Ours, the default:

- The paper's result is one start among several: splits grown from every parent, the order of the
  streams, loads alone. Each is refined by moving single instances, at every level of the
  consolidation on the way down; a parent is never so heavy that it cannot be balanced. The paper's
  result may miss the balance, when no search meets the factor; ours never does.
- A split of few instances is proven to be the best, or replaced by the best.
- What is true of nodes is true of the sockets of a node and the workers of a socket: the same is
  done again there, so that records cross the cheap boundary where they must cross one, and loads
  are balanced inside the node, too.
- Traffic is weighed by what it costs to carry over the boundary in question, where the machine
  knows, and not by the number of records alone.

It is never worse than the paper's: not farther from the balance over the nodes, and if equally far,
no more traffic between nodes, weighed so. The balance has two sides, as in the paper: a scheduler
that may leave nodes nearly idle can cut less. How long it searches is counted in steps, so the same
input gives the same plan everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Crossing, Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.model.traffic import Traffic, locality, measured_or_estimated
from tailrace.plan.model.weighted import Weighted
from tailrace.plan.plan import Plan, plan_for
from tailrace.plan.search.balance import Balance
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.split import assign
from tailrace.plan.search.split_exact import proven_split
from tailrace.plan.search.split_refine import best_split

BALANCE_FACTOR = 0.1
"""A node's load may miss its share by this part of it. The paper names no value."""
LEAST_PARENTS = 12
"""Left to split, or twice the nodes. The paper names no value; 64 would leave SOL as it is."""
SMALL = 24
"""Instances up to which a proof is tried."""
PROOF_STEPS = 200_000
EFFORT = 10_000_000
"""A few seconds for 2,000 instances; small topologies end long before."""

Price = Callable[[float], float]


def consolidate(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    traffic: Traffic | None = None,
    published: bool = False,
    balance_factor: float = BALANCE_FACTOR,
    threshold: int | None = None,
    effort: int = EFFORT,
) -> Plan:
    """Keep what communicates together: least traffic between nodes, then sockets, then workers.

    On-line with measured `traffic`; off-line without, from the profile, or if that is empty from
    the topology alone. Every node gets its share of the load within the balance factor, or as near
    as the single loads allow. `published` is the paper's algorithm without our additions.
    `threshold` is how many parents are left to split, by default enough for all nodes to choose.
    `effort` bounds the search of each of the three levels, in steps.
    """
    known = measured_or_estimated(graph, profile, traffic)
    instances = list(range(len(known.loads)))
    search = _Search(places, published, balance_factor, threshold, effort / len(instances))
    everyone = list(range(len(places)))
    by_node = _grouped(everyone, lambda place: places[place].node)
    to_node = known.weighted(None if published else _price(machine.other_node, machine))
    place_of = [0] * len(instances)
    if published:
        for part, node in search.split(instances, to_node, by_node):
            for turn, instance in enumerate(part):
                place_of[instance] = node[turn % len(node)]
    else:
        farthest = machine.other_socket[-1] if machine.other_socket else machine.same_socket
        to_socket = known.weighted(_price(farthest))
        to_worker = known.weighted(_price(machine.same_socket))
        for part, node in search.split(instances, to_node, by_node):
            by_socket = _grouped(node, lambda place: places[place].socket)
            for nearer, socket in search.split(part, to_socket, by_socket):
                for last, (place,) in search.split(nearer, to_worker, [[p] for p in socket]):
                    for instance in last:
                        place_of[instance] = place
    reason = _reason(known, place_of, places, profile, traffic is not None)
    return plan_for(graph, places, place_of, scheduler="consolidate", reason=reason)


@dataclass(frozen=True)
class _Search:
    places: tuple[Place, ...]
    published: bool
    balance_factor: float
    threshold: int | None
    steps_per_instance: float

    def split(
        self, instances: list[int], whole: Weighted, groups: list[list[int]]
    ) -> list[tuple[list[int], list[int]]]:
        """Instances over groups of places: what each group gets, and the group."""
        if len(groups) == 1 or not instances:
            return [(instances, groups[0])]
        capacities = [float(sum(self.places[p].cores for p in group)) for group in groups]
        part_of = self._part_of(whole.only(instances), capacities)
        return [
            ([v for v, p in zip(instances, part_of, strict=True) if p == part], group)
            for part, group in enumerate(groups)
        ]

    def _part_of(self, graph: Weighted, capacities: list[float]) -> list[int]:
        threshold = self.threshold or max(LEAST_PARENTS, 2 * len(capacities))
        effort = Effort(int(graph.size * self.steps_per_instance))
        if self.published:
            return assign(graph, capacities, self.balance_factor, threshold, effort)
        found = best_split(graph, capacities, self.balance_factor, threshold, effort)
        if graph.size <= SMALL:
            balance = Balance.of(graph.loads, capacities, self.balance_factor)
            found, _ = proven_split(graph, balance, found, Effort(PROOF_STEPS))
        return found


def _grouped(places: Sequence[int], key: Callable[[int], int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for place in places:
        groups.setdefault(key(place), []).append(place)
    return [groups[number] for number in sorted(groups)]


def _price(crossing: Crossing, machine: Machine | None = None) -> Price | None:
    """What a record of some size costs at a boundary; None if that is nothing."""

    def ns(record_bytes: float) -> float:
        on_link = record_bytes / machine.link_bytes_per_s * 1e9 if machine is not None else 0.0
        return crossing.send_ns(record_bytes) + crossing.receive_ns(record_bytes) + on_link

    return ns if ns(1.0) > 0 else None


def _reason(
    traffic: Traffic,
    place_of: Sequence[int],
    places: tuple[Place, ...],
    profile: Profile,
    measured: bool,
) -> str:
    in_turn = [instance % len(places) for instance in range(len(place_of))]
    found, other = (locality(traffic, who, places) for who in (place_of, in_turn))
    what, ours, theirs = "node", found.internode_fraction, other.internode_fraction
    if len({place.node for place in places}) == 1:
        what, ours, theirs = "place", found.leaving_fraction, other.leaving_fraction
    source = (
        "measured"
        if measured
        else "as the profile has it"
        if profile.operators
        else "as far as the topology tells"
    )
    return (
        f"{ours:.0%} of the records go to another {what}, {theirs:.0%} if instances were placed"
        f" in turn; traffic {source}"
    )
