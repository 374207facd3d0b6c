"""Less traffic between nodes at the same rate; never more, and nothing gets too full."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.graph.expand import chains
from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.machine import Machine, Place, cluster
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.schedulers.random_plan import random_plan
from tailrace.plan.search.quieter import Leaving, leaving, quieter
from tests.plan.small import graph, graphs, machines, placed, profile

LINE = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
TIMES = profile({"a": 1_000, "b": 1_000, "c": 1_000})
TWO = cluster(2, cores=2)
PLACES = (Place(0, 0), Place(0, 0), Place(1, 0), Place(1, 0))


def test_what_leaves_is_counted_by_what_it_crosses() -> None:
    traffic = {(0, 0): (9.0, 90.0), (0, 1): (1.0, 10.0), (1, 2): (2.0, 20.0), (3, 0): (3.0, 30.0)}
    assert leaving(traffic, PLACES) == Leaving(between_nodes=50.0, between_places=10.0)
    assert Leaving(1.0, 9.0) < Leaving(2.0, 0.0)


def test_instances_move_together_while_there_is_room() -> None:
    apart = placed(LINE, PLACES, 0, 2, 1)
    plan = quieter(LINE, apart, TIMES, TWO, 100_000)
    assert {PLACES[p].node for p in plan.place_of} in ({0}, {1})


def test_they_stay_apart_where_together_they_would_be_too_full() -> None:
    """At 900,000 records/s each needs a core of its own, and no node has three."""
    apart = placed(LINE, PLACES, 0, 2, 1)
    plan = quieter(LINE, apart, TIMES, TWO, 900_000)
    found = predict(LINE, plan, TIMES, TWO, 900_000)
    assert found.source_rate > 899_999
    assert len(set(plan.place_of)) == 3


def test_two_that_are_in_each_others_place_are_swapped() -> None:
    """Nobody can move alone: all four cores are full."""
    pairs = graph([("a", "b", Rule.SHUFFLE), ("c", "d", Rule.SHUFFLE)])
    times = profile(dict.fromkeys("abcd", 1000))
    place_of = {"a": 0, "b": 2, "c": 1, "d": 3}
    names = [chain.label for chain in chains(pairs)]
    apart = placed(pairs, PLACES, *(place_of[name] for name in names))
    plan = quieter(pairs, apart, times, TWO, 900_000)
    node = {name: PLACES[p].node for name, p in zip(names, plan.place_of, strict=True)}
    assert node["a"] == node["b"] != node["c"] == node["d"]


@given(graphs(), machines(), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_it_is_never_slower_nor_louder(
    topology: tuple[Graph, Profile], hardware: tuple[Machine, tuple[Place, ...]], seed: int
) -> None:
    graph, times = topology
    machine, places = hardware
    before = random_plan(graph, times, machine, places, seed=seed)
    found = predict(graph, before, times, machine)
    after = quieter(graph, before, times, machine, found.source_rates)
    assert after.parallelism == before.parallelism
    now = predict(graph, after, times, machine, found.source_rates)
    assert now.source_rate >= found.source_rate * (1 - 1e-6)
    louder = leaving(found.traffic, places).between_nodes * (1 + 1e-6)
    assert leaving(now.traffic, places).between_nodes <= louder
