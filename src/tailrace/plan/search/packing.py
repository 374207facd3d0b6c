"""Placing instances one after the other into places that are not yet full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tailrace.graph.model import Graph, Grouping, Rule
from tailrace.plan.model.flow import flow_of
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.search.layout import Layout

RELAXED = 1.05
"""When not all fits, every place is taken to be so much bigger, and all is packed again."""


def demand(
    graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]
) -> tuple[Layout, float]:
    """An empty layout, and the highest source rate that any placement of it could have.

    Whether receivers are near is not known before they are placed, so streams that prefer them
    count as shuffled.
    """
    shuffled = replace(
        graph,
        streams=tuple(
            replace(stream, grouping=Grouping(Rule.SHUFFLE))
            if stream.grouping.rule is Rule.LOCAL_OR_SHUFFLE
            else stream
            for stream in graph.streams
        ),
    )
    flow = flow_of(shuffled, profile, machine, places)
    layout = Layout(flow, [len(part.instances) for part in flow.parts])
    return layout, 1 / layout.bound()


def pack(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    order: Callable[[int], list[int]],
) -> tuple[list[int], float]:
    """The first place for each instance where it fits, of those that `order(instance)` gives.

    Fitting is at the highest rate there could be. If one fits nowhere, all is packed again with
    more allowance. Gives the places, and the allowance that was needed.
    """
    layout, rate = demand(graph, profile, machine, places)
    allowance = 1.0
    while True:
        place_of = _packed(layout, rate, allowance, order)
        if place_of is not None:
            return place_of, allowance
        allowance *= RELAXED


def _packed(
    layout: Layout, rate: float, allowance: float, order: Callable[[int], list[int]]
) -> list[int] | None:
    place_of: list[int] = []
    placed: list[tuple[int, int]] = []

    def put(k: int) -> bool:
        for place in order(len(place_of)):
            layout.put(k, place, 1)
            if layout.fits(rate, allowance):
                place_of.append(place)
                placed.append((k, place))
                return True
            layout.put(k, place, -1)
        return False

    try:
        for k in layout.parts:
            for _ in range(layout.sizes[k]):
                if not put(k):
                    return None
        return place_of
    finally:
        for k, place in reversed(placed):
            layout.put(k, place, -1)
