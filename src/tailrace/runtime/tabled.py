"""Tables of keys in a deployment: which streams they are for, and where instances are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tailrace.graph.model import Rule
from tailrace.graph.wiring import Wiring
from tailrace.routing.homes import Home
from tailrace.routing.slots import Routes
from tailrace.routing.tables import Tables
from tailrace.runtime.deployment import Deployment


def with_tables(deployment: Deployment, tables: Tables) -> Deployment:
    """The deployment with keys routed by tables, above the slots that it has.

    Raises ValueError for a table of an operator that is not reached by key, or for another number
    of instances.
    """
    return replace(deployment, routes={**deployment.routes, **routes_by(tables, deployment)})


def routes_by(tables: Tables, deployment: Deployment) -> dict[int, Routes]:
    """The routes of the streams that tables are for, by their numbers."""
    reached: dict[str, list[int]] = {}
    for number in deployment.wiring.streams:
        stream = deployment.graph.streams[number]
        if stream.grouping.rule is Rule.KEY:
            reached.setdefault(stream.target, []).append(number)
    found = {}
    for operator, table in tables.tables.items():
        if operator not in reached:
            raise ValueError(
                f"there is a table of keys for {operator!r}, which is no operator that is reached"
                f" by key; those are {sorted(reached)}"
            )
        parallelism = deployment.graph.operator(operator).parallelism
        if table.parallelism != parallelism:
            raise ValueError(
                f"the table of keys for {operator!r} is for {table.parallelism} instances; there"
                f" are {parallelism}. Make another, or start as many"
            )
        for number in reached[operator]:
            found[number] = table.routes(deployment.route(number))
    return found


def homes_of(
    wiring: Wiring, placement: Sequence[int], nodes: Sequence[Hashable] | None = None
) -> dict[str, list[Home]]:
    """Where the instances of operators that are reached by key run, by a placement.

    `nodes` has what counts as the node of each worker; without, all are one.
    """
    numbers: Mapping[Hashable, int] = {node: n for n, node in enumerate(dict.fromkeys(nodes or ()))}
    homes = {}
    for number, (_, target) in wiring.streams.items():
        if wiring.graph.streams[number].grouping.rule is Rule.KEY:
            homes[target.operators[0]] = [
                Home(0 if nodes is None else numbers[nodes[placement[i]]], placement[i])
                for i in target.instances
            ]
    return homes
