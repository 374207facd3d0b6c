"""Less traffic between nodes at the same rate: instances move and swap while nothing gets too full.

A plan with the highest rate is one of many, for where something else is full, it does not matter
to the rate who runs where. It matters to the network, and to those who share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.graph.model import Graph
from tailrace.plan.model.flow import Flow, flow_of_plan
from tailrace.plan.model.loads import ExternalRate, loads, resource_uses, source_rates
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan
from tailrace.plan.search.effort import Effort

LAYOUTS = 2_000
"""How many it looks at, unless told: about a second."""
_FULL = 1 + 1e-9
_Step = tuple[int, int, int]
"""A part, a place, and how many more of its instances run there."""


@dataclass(frozen=True, order=True)
class Leaving:
    """What leaves its place, in bytes per second; less is less between nodes first of all."""

    between_nodes: float
    between_places: float
    """Of one node."""


def leaving(
    traffic: Mapping[tuple[int, int], tuple[float, float]], places: Sequence[Place]
) -> Leaving:
    """What crosses nodes and places, of records and bytes from place to place."""
    far = near = 0.0
    for (p, q), (_, size) in traffic.items():
        if places[p].node != places[q].node:
            far += size
        elif p != q:
            near += size
    return Leaving(far, near)


def quieter(
    graph: Graph,
    plan: Plan,
    profile: Profile,
    machine: Machine,
    rate: ExternalRate,
    *,
    fullest: float = 1.0,
    layouts: int = LAYOUTS,
) -> Plan:
    """The plan with less traffic between nodes, if there is one near it; never with more.

    Nothing gets fuller than `fullest` when that many records arrive at the sources, so what
    sustains the rate so still does. The scheduler and the parallelism stay.
    """
    flow = flow_of_plan(graph, plan, profile, machine)
    search = _Search(flow, flow.counts(plan.place_of), rate, fullest, Effort(layouts))
    if not search.run():
        return plan
    place_of = list(plan.place_of)
    for part, row in zip(flow.parts, search.counts, strict=True):
        where = [place for place, instances in enumerate(row) for _ in range(instances)]
        for instance, place in zip(part.instances, where, strict=True):
            place_of[instance] = place
    return replace(plan, place_of=tuple(place_of))


class _Search:
    def __init__(
        self,
        flow: Flow,
        counts: list[list[int]],
        rate: ExternalRate,
        fullest: float,
        effort: Effort,
    ) -> None:
        self.flow, self.counts, self._effort = flow, counts, effort
        self._fullest = fullest * _FULL
        self._emitted = source_rates(flow, rate)

    def run(self) -> bool:
        """Take what helps until nothing does; whether anything did."""
        now = self._judged()
        better = False
        while now is not None and now.between_nodes:
            found = self._step(now)
            if found is None:
                return better
            now, better = found, True
        return better

    def _step(self, now: Leaving) -> Leaving | None:
        """The first change that lessens what crosses nodes, taken; None when there is none."""
        for steps in self._changes():
            if not self._effort.spend():
                return None
            for k, p, more in steps:
                self.counts[k][p] += more
            found = self._judged()
            if found is not None and found.between_nodes < now.between_nodes * (1 - 1e-6):
                return found
            for k, p, more in steps:
                self.counts[k][p] -= more
        return None

    def _changes(self) -> Iterator[list[_Step]]:
        """Single instances to another node, then pairs that change places."""
        nodes = [place.node for place in self.flow.places]
        there = [
            (k, p)
            for k, row in enumerate(self.counts)
            for p, instances in enumerate(row)
            if instances
        ]
        for k, p in there:
            for q, node in enumerate(nodes):
                if node != nodes[p]:
                    yield [(k, p, -1), (k, q, 1)]
        for index, (k, p) in enumerate(there):
            for j, q in there[index + 1 :]:
                if k != j and nodes[p] != nodes[q]:
                    yield [(k, p, -1), (j, q, -1), (k, q, 1), (j, p, 1)]

    def _judged(self) -> Leaving | None:
        """What crosses at the rate; None if something is too full."""
        found = loads(self.flow, self.counts, self._emitted)
        for row, cpu in zip(self.counts, found.part, strict=True):
            for instances, used in zip(row, cpu, strict=True):
                if instances and used / instances > self._fullest:
                    return None
        if any(use.used > self._fullest for use in resource_uses(self.flow, found)):
            return None
        return leaving(found.traffic, self.flow.places)
