"""The machines of a cluster, as its executors see them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tailrace.plan.model.machine import Machine, Node, Place, machine_from_json, machine_to_json
from tailrace.planner.detect import detect
from tailrace.spark.cluster import Cluster


def survey(
    cluster: Cluster, slots: int, node: str, costs: Machine
) -> tuple[Machine, tuple[Place, ...]]:
    """The nodes that have so many task slots, and a place for each of these. Runs a Spark job.

    Sockets and cores are those of the nodes; what transport costs is taken from `costs`, since it
    is measured where the driver runs.
    """
    return assembled([json.loads(told) for told in cluster.ask(slots, look)], node, costs)


def look() -> str:
    """In a task: where it runs, and on what."""
    from pyspark import BarrierTaskContext

    task = BarrierTaskContext.get()
    rank = task.partitionId()
    address = task.getTaskInfos()[rank].address
    return json.dumps([rank, address, machine_to_json(detect())])


def assembled(
    told: Sequence[tuple[int, str, dict[str, object]]], node: str, costs: Machine
) -> tuple[Machine, tuple[Place, ...]]:
    """Machine and places from what the tasks have told: rank, address of the executor, machine."""
    tasks: Counter[str] = Counter()
    found: dict[str, Node] = {}
    for rank, address, saved in told:
        host = address.rpartition(":")[0] or address
        home = {"memory": host, "executor": address, "worker": f"{host} {rank}"}[node]
        tasks[home] += 1
        found[home] = replace(machine_from_json(saved).nodes[0], name=home)
    farthest = max(max(map(max, one.distances)) for one in found.values())
    more = max(0, farthest - len(costs.other_socket))
    machine = replace(
        costs,
        name=f"{len(found)} nodes",
        nodes=tuple(found.values()),
        other_socket=costs.other_socket
        + ((*costs.other_socket[-1:], costs.same_socket)[0],) * more,
        channel_bytes_per_s=costs.channel_bytes_per_s + (float("inf"),) * more,
    )
    places = tuple(
        place
        for number, home in enumerate(found)
        for place in machine.workers(tasks[home])
        if place.node == number
    )
    return machine, places
