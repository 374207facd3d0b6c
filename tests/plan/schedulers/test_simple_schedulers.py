"""Round robin, first fit, random and the operating system, and the list of all schedulers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.machine import Cost, Crossing, Machine, Place, cluster
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import check, with_parallelism
from tailrace.plan.schedulers.by_name import SCHEDULERS, scheduler
from tailrace.plan.schedulers.first_fit import first_fit
from tailrace.plan.schedulers.os_placement import os_placement
from tailrace.plan.schedulers.random_plan import random_plan
from tailrace.plan.schedulers.round_robin import round_robin
from tests.plan.small import graph, graphs, machines, profile

LINE = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)], {"b": 3})
TIMES = profile({"a": 100, "b": 300, "c": 100})
QUAD = cluster(1, cores=4)


def test_round_robin_goes_round() -> None:
    plan = round_robin(LINE, TIMES, QUAD, QUAD.workers(2))
    assert plan.place_of == (0, 1, 0, 1, 0)


def test_round_robin_can_pass_over_full_places() -> None:
    """Five equal instances on one big and one small place: the small one takes its turn once."""
    five = graph([("a", "b", Rule.SHUFFLE)], {"a": 1, "b": 4})
    places = (Place(0, 0, 4), Place(0, 0, 1))
    plan = round_robin(
        five, profile({"a": 100, "b": 400}), cluster(1, cores=5), places, skip_full=True
    )
    assert plan.place_of == (0, 1, 0, 0, 0)


def test_first_fit_fills_one_place_after_the_other() -> None:
    places = (Place(0, 0, 2), Place(0, 0, 2), Place(0, 0, 2))
    plan = first_fit(LINE, TIMES, cluster(1, cores=6), places)
    assert plan.place_of == (0, 0, 1, 1, 2)
    assert "100%" in plan.reason


def test_first_fit_takes_places_to_be_bigger_when_not_all_fits() -> None:
    """Three instances that fill a core each, and fetching on top of it."""
    machine = cluster(1, cores=3, same_socket=Crossing(receiver=Cost(record_ns=30)))
    three = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
    plan = first_fit(three, profile({"a": 100, "b": 100, "c": 100}), machine, machine.workers())
    assert plan.place_of == (0, 1, 2)
    assert "134%" in plan.reason


def test_random_plans_take_all_cores_and_repeat_by_seed() -> None:
    places = cluster(1, cores=8).workers()
    plans = [random_plan(LINE, TIMES, QUAD, places, seed=seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert sum(plans[0].parallelism.values()) == 8
    few = random_plan(LINE, TIMES, QUAD, places, max_instances=4)
    assert sum(few.parallelism.values()) == 4


def test_the_system_gives_the_least_busy_place() -> None:
    places = (Place(0, 0, 1), Place(0, 0, 3))
    times = profile({"a": 99, "b": 300, "c": 10})
    plan = os_placement(LINE, times, QUAD, places)
    assert plan.place_of == (0, 1, 1, 1, 0)
    times = profile({"a": 101, "b": 300, "c": 10})
    assert os_placement(LINE, times, QUAD, places).place_of == (0, 1, 1, 1, 1)


@given(graphs(), machines(), st.sampled_from(sorted(SCHEDULERS)), st.data())
def test_every_scheduler_makes_plans_that_fit(
    case: tuple[Graph, Profile],
    on: tuple[Machine, tuple[Place, ...]],
    name: str,
    data: st.DataObject,
) -> None:
    sizes = {operator.name: data.draw(st.integers(1, 3)) for operator in case[0].operators}
    topology = with_parallelism(case[0], sizes)
    machine, places = on
    plan = scheduler(name)(topology, case[1], machine, places)
    check(plan, topology, places)
    assert plan.scheduler == name
    assert plan.reason


def test_an_unknown_scheduler_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match="no scheduler 'best'; there are \\['auto', "):
        scheduler("best")
