"""Plans whose places are named so that the least has to move."""

from __future__ import annotations

from dataclasses import replace

import tailrace as tr
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Node, Place, Socket, cluster
from tailrace.plan.plan import Plan, plan_for
from tailrace.planner.relabelling import least_moved

TWO = cluster(2, cores=2)
PLACES = tuple(Place(node, 0) for node in (0, 0, 1, 1))


def graph(parallelism: int = 2) -> Graph:
    topology = tr.Topology("numbers")
    numbers = topology.source([1], name="numbers").shuffle()
    worked = numbers.map(abs, name="work", parallelism=parallelism).shuffle()
    worked.sink(print, name="out", parallelism=1)
    return topology.graph


def plan(*place_of: int, places: tuple[Place, ...] = PLACES) -> Plan:
    return plan_for(graph(), places, place_of, scheduler="some", reason="")


def test_the_mirror_image_of_the_present_plan_moves_nothing() -> None:
    present = plan(0, 1, 2, 3)
    assert least_moved(graph(), present, plan(3, 2, 1, 0), TWO).place_of == (0, 1, 2, 3)
    assert least_moved(graph(), present, plan(1, 0, 3, 2), TWO).place_of == (0, 1, 2, 3)


def test_what_is_together_stays_together() -> None:
    # All on one node and in one worker, which one does not matter: the one that has most of it.
    assert least_moved(graph(), plan(0, 2, 2, 1), plan(0, 0, 0, 0), TWO).place_of == (2, 2, 2, 2)


def test_an_instance_that_cannot_move_decides() -> None:
    found = least_moved(graph(), plan(0, 2, 2, 1), plan(3, 3, 3, 3), TWO, tied=["numbers"])
    assert found.place_of == (0, 0, 0, 0)


def test_workers_of_nodes_that_differ_are_not_exchanged() -> None:
    (node, _) = TWO.nodes
    larger = Node("larger", (Socket((0, 1, 2, 3)),))
    uneven = Machine("uneven", (node, larger))
    wanted = plan(3, 3, 2, 2)
    assert least_moved(graph(), plan(0, 0, 1, 1), wanted, uneven).place_of[0] in (2, 3)
    three = (*PLACES, Place(1, 0))
    crowded = plan(4, 4, 4, 4, places=three)
    found = least_moved(graph(), plan(0, 0, 0, 0, places=three), crowded, TWO)
    assert set(found.place_of) <= {2, 3, 4}


def test_a_plan_for_other_numbers_or_places_is_left_as_it_is() -> None:
    more = plan_for(graph(3), PLACES, (3, 3, 3, 3, 3), scheduler="some", reason="")
    assert least_moved(graph(), plan(0, 0, 0, 0), more, TWO) is more
    fewer = replace(plan(1, 1, 1, 1), places=PLACES[:2])
    assert least_moved(graph(), plan(0, 0, 0, 0), fewer, TWO) is fewer
