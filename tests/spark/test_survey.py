"""A cluster's machine put together from what its tasks tell."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.plan.model.machine import Cost, Crossing, Machine, cluster, machine_to_json
from tailrace.spark.survey import assembled

WAY = Crossing(Cost(100.0), Cost(200.0))
COSTS = cluster(1, cores=2, same_socket=WAY)


def told(*hosts: str, sockets: int = 1) -> list[tuple[int, str, dict[str, Any]]]:
    saved = machine_to_json(cluster(1, sockets=sockets, cores=2))
    return [(rank, f"{host}:{7000 + rank % 2}", saved) for rank, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("node", "nodes"),
    [("memory", [0, 0, 0, 1]), ("executor", [0, 0, 1, 2]), ("worker", [0, 1, 2, 3])],
)
def test_there_is_a_place_for_each_task_on_its_node(node: str, nodes: list[int]) -> None:
    machine, places = assembled(told("a", "a", "a", "b"), node, COSTS)
    assert [place.node for place in places] == nodes
    assert len(machine.nodes) == nodes[-1] + 1
    assert machine.same_socket == WAY


def test_sockets_are_the_nodes_own_and_cost_what_is_known() -> None:
    one = Machine("driver", COSTS.nodes, same_socket=WAY)
    machine, places = assembled(told("a", "a", "a", sockets=2), "memory", one)
    assert [place.socket for place in places] == [0, 0, 1]
    assert machine.crossing(0, 2, places) == WAY
