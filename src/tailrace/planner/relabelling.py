"""Which of equal places is which: a plan with its places named so that the least has to move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tailrace.graph.expand import chains
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine
from tailrace.plan.plan import Plan, apply

_TIED = 1_000_000
"""Beside an instance that cannot move, any number of others counts for nothing."""


def least_moved(
    graph: Graph, present: Plan, plan: Plan, machine: Machine, tied: Collection[str] = ()
) -> Plan:
    """The plan on the present places, named so that most instances stay where they are.

    Workers of a socket are alike, and so are nodes with equal sockets and as many workers on each.
    Instances of `tied` operators stay before all others. A plan for other numbers of instances, or
    other places, is left as it is.
    """
    same = (present.places, present.chains, dict(present.parallelism))
    if (plan.places, plan.chains, dict(plan.parallelism)) != same:
        return plan
    stays: Counter[tuple[int, int]] = Counter()
    pairs = zip(plan.place_of, present.place_of, _weights(graph, plan, tied), strict=True)
    for wanted, had, weight in pairs:
        stays[wanted, had] += weight
    by_node: dict[int, dict[int, list[int]]] = {}
    for number, place in enumerate(plan.places):
        by_node.setdefault(place.node, {}).setdefault(place.socket, []).append(number)
    inside = {
        (one, other): _inside(by_node[one], by_node[other], stays)
        for one in by_node
        for other in by_node
        if machine.nodes[one].sockets == machine.nodes[other].sockets
        and machine.nodes[one].distances == machine.nodes[other].distances
        and _sizes(by_node[one]) == _sizes(by_node[other])
    }
    nodes = list(by_node)
    table = [
        [_staying(inside[one, other], stays) if (one, other) in inside else -_TIED**2
         for other in nodes]
        for one in nodes
    ]  # fmt: skip
    becomes: dict[int, int] = {}
    for row, column in enumerate(_matched(table)):
        becomes |= inside[nodes[row], nodes[column]]
    return replace(plan, place_of=tuple(becomes[place] for place in plan.place_of))


def _weights(graph: Graph, plan: Plan, tied: Collection[str]) -> Iterable[int]:
    for chain in chains(apply(plan, graph)):
        held = not set(tied).isdisjoint(chain.operators)
        yield from [_TIED if held else 1] * chain.parallelism


def _sizes(sockets: dict[int, list[int]]) -> dict[int, int]:
    return {socket: len(places) for socket, places in sockets.items()}


def _inside(
    wanted: dict[int, list[int]], had: dict[int, list[int]], stays: Counter[tuple[int, int]]
) -> dict[int, int]:
    """Of two nodes that are alike, the new place of each of the first."""
    found = {}
    for socket, places in wanted.items():
        others = had[socket]
        table = [[stays[one, other] for other in others] for one in places]
        for row, column in enumerate(_matched(table)):
            found[places[row]] = others[column]
    return found


def _staying(becomes: dict[int, int], stays: Counter[tuple[int, int]]) -> int:
    return sum(stays[pair] for pair in becomes.items())


def _matched(table: Sequence[Sequence[int]]) -> list[int]:
    # Here, for it needs numpy, and a job starts sooner without.
    from tailrace.routing.matching import best_matching

    return best_matching(table)
