"""Layouts: they agree with the model, steps can be taken back, the bound bounds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.flow import flow_of
from tailrace.plan.model.machine import Machine, Place, cluster, server_a
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import with_parallelism
from tailrace.plan.schedulers.random_plan import random_plan
from tailrace.plan.search.layout import Layout, layout_of, layout_of_plan, twins
from tests.plan.small import all_counts, graph, graphs, machines, placed, profile, sustained

Case = tuple[Graph, Profile]
On = tuple[Machine, tuple[Place, ...]]


def sized(case: Case, data: st.DataObject) -> Graph:
    sizes = {operator.name: data.draw(st.integers(1, 3)) for operator in case[0].operators}
    return with_parallelism(case[0], sizes)


@given(graphs(), machines(), st.data())
@settings(max_examples=200)
def test_a_layout_is_as_full_as_the_model_says(case: Case, on: On, data: st.DataObject) -> None:
    machine, places = on
    flow = flow_of(sized(case, data), case[1], machine, places)
    chance = random.Random(data.draw(st.integers(0, 99)))
    counts = [[0] * len(places) for _ in flow.parts]
    for row, part in zip(counts, flow.parts, strict=True):
        for _ in part.instances:
            row[chance.randrange(len(places))] += 1
    layout = layout_of(flow, counts)
    assert 1 / layout.fullest() == pytest.approx(sustained(flow, counts))
    for _ in range(10):
        k = chance.randrange(len(counts))
        p = chance.choice([p for p in layout.places if layout.counts[k][p]])
        q = chance.randrange(len(places))
        layout.put(k, p, -1)
        layout.put(k, q, 1)
    assert 1 / layout.fullest() == pytest.approx(sustained(flow, layout.counts))


@given(graphs(most=3), machines(), st.data())
@settings(max_examples=200)
def test_no_completion_is_better_than_the_bound(case: Case, on: On, data: st.DataObject) -> None:
    machine, places = on
    flow = flow_of(sized(case, data), case[1], machine, places)
    layout = Layout(flow, [len(part.instances) for part in flow.parts])
    for k in layout.parts:
        for _ in range(data.draw(st.integers(0, layout.sizes[k]))):
            layout.put(k, data.draw(st.integers(0, len(places) - 1)), 1)
    bound = layout.bound()
    missing = list(layout.missing)
    for more in all_counts(missing, len(places)):
        counts = [
            [a + b for a, b in zip(row, extra, strict=True)]
            for row, extra in zip(layout.counts, more, strict=True)
        ]
        assert 1 / sustained(flow, counts) >= bound * (1 - 1e-9)


def test_the_bound_counts_the_way_to_what_is_placed() -> None:
    """Two producers apart: their consumer is far from one of them, wherever it goes."""
    wider = graph([("a", "b", Rule.SHUFFLE)], {"a": 2})
    machine = server_a()
    flow = flow_of(wider, profile({"a": 100, "b": 100}), machine, machine.sockets())
    layout = Layout(flow, [2, 1])
    layout.put(0, 0, 1)
    layout.put(0, 4, 1)
    assert layout.bound() == pytest.approx((100 + 548 / 2) * 1e-9)


def test_places_that_cannot_be_told_apart_are_twins() -> None:
    topology, times = graph([("a", "b", Rule.SHUFFLE)]), profile({"a": 1, "b": 1})
    machine = server_a()
    assert twins(flow_of(topology, times, machine, machine.sockets())) == [0, 0, 0, 0, 4, 4, 4, 4]
    machine = cluster(2, sockets=2, cores=1)
    assert twins(flow_of(topology, times, machine, machine.workers(2))) == [0, 0, 2, 2]
    uneven = (Place(0, 0, 2), Place(0, 0, 1))
    assert twins(flow_of(topology, times, machine, uneven)) == [0, 1]


def test_a_plans_layout_has_the_plans_parallelism() -> None:
    topology, times = graph([("a", "b", Rule.SHUFFLE)]), profile({"a": 1, "b": 1})
    machine = cluster(1, cores=4)
    places = machine.workers()
    flow = flow_of(topology, times, machine, places)
    wider = with_parallelism(topology, {"a": 1, "b": 3})
    layout = layout_of_plan(flow, placed(wider, places, 3, 0, 0, 2))
    assert layout.counts == [[0, 0, 0, 1], [2, 0, 1, 0]]
    plan = random_plan(topology, times, machine, places, seed=3)
    assert sum(map(sum, layout_of_plan(flow, plan).counts)) == 4
