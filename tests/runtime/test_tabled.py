"""Tables of keys in a deployment: streams are routed by them, and what does not fit is refused."""

from __future__ import annotations

import pytest

import tailrace as tr
from tailrace.graph.wiring import wire
from tailrace.routing.homes import Home
from tailrace.routing.slots import Routes
from tailrace.routing.tables import Table
from tailrace.runtime.deployment import deploy
from tailrace.runtime.tabled import homes_of, routes_by, with_tables
from tailrace.testing import collect


def topology() -> tr.Topology:
    made = tr.Topology()
    numbers = made.source(range(40))
    first = numbers.key_by(lambda n: n % 10).scan(lambda s, n: n, name="first", parallelism=2)
    second = first.key_by(lambda pair: pair[1] % 4).scan(
        lambda s, n: n, name="second", parallelism=1
    )
    collect(second)
    return made


def test_streams_into_an_operator_go_by_its_table() -> None:
    deployment = deploy(topology().graph, (0, 0, 1, 0))
    tables = tr.Tables({"first": Table(2, {3: 1, 4: 0})})
    (number,) = routes_by(tables, deployment)
    assert deployment.graph.streams[number].target == "first"
    route = with_tables(deployment, tables).route(number)
    assert (route.owner(3), route.owner(4)) == (1, 0)
    assert route.owner(5) == Routes.even(2).owner(5)


def test_tables_that_do_not_fit_are_refused() -> None:
    deployment = deploy(topology().graph, (0, 0, 1, 0))
    with pytest.raises(ValueError, match=r"'sink'.*those are \['first', 'second'\]"):
        with_tables(deployment, tr.Tables({"sink": Table(1)}))
    with pytest.raises(ValueError, match="'first' is for 3 instances; there are 2"):
        with_tables(deployment, tr.Tables({"first": Table(3)}))


def test_homes_are_those_of_the_placement() -> None:
    wiring = wire(topology().graph)
    assert homes_of(wiring, (0, 1, 2, 1), ["x", "y", "x"]) == {
        "first": [Home(1, 1), Home(0, 2)],
        "second": [Home(1, 1)],
    }
    assert homes_of(wiring, (0, 1, 2, 1))["first"] == [Home(0, 1), Home(0, 2)]
