"""Plans for a rate: as few nodes and workers as sustain it, with room to spare."""

from __future__ import annotations

from functools import partial
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.loads import ExternalRate
from tailrace.plan.model.machine import Cost, Crossing, Machine, Place, cluster
from tailrace.plan.model.prediction import Prediction, predict
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import Plan, check
from tailrace.plan.schedulers.auto import auto
from tailrace.plan.schedulers.by_name import SCHEDULERS
from tailrace.plan.schedulers.consolidate import consolidate
from tailrace.plan.schedulers.for_rate import HEADROOM, for_rate, fullest
from tailrace.plan.schedulers.spread import spread
from tailrace.plan.search.quieter import leaving
from tests.plan.small import graph, graphs, machines, profile

HOSTS = cluster(
    4,
    cores=2,
    same_socket=Crossing(Cost(record_ns=100), Cost(record_ns=100)),
    other_node=Crossing(Cost(record_ns=400), Cost(record_ns=400)),
)
WORDS = graph(
    [("source", "split", Rule.SHUFFLE), ("split", "count", Rule.KEY)], {"split": 2, "count": 2}
)
TIMES = Profile(
    {
        "source": OperatorProfile(Work(1_000), {"main": 60.0}),
        "split": OperatorProfile(Work(2_000, {"main": 10.0}), {"main": 8.0}),
        "count": OperatorProfile(Work(200), {"main": 16.0}),
    }
)


def nodes(plan: Plan) -> int:
    return len({plan.places[p].node for p in plan.place_of})


def at(plan: Plan, rate: ExternalRate) -> Prediction:
    return predict(WORDS, plan, TIMES, HOSTS, rate)


def test_one_host_is_enough_where_four_were_used() -> None:
    places = HOSTS.workers()
    assert nodes(consolidate(WORDS, TIMES, HOSTS, places)) == 4
    plan = for_rate(consolidate, WORDS, TIMES, HOSTS, places, 10_000)
    check(plan, WORDS, places)
    assert nodes(plan) == 1
    found = at(plan, 10_000)
    assert found.source_rate == pytest.approx(10_000)
    assert leaving(found.traffic, places).between_nodes == 0
    assert plan.reason.startswith("10,000 records/s need 1 worker on 1 node, at most 80% full. ")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_more_is_used_only_for_more_records(name: str) -> None:
    places = HOSTS.workers()
    used = []
    for rate in (1_000, 100_000, 150_000):
        plan = for_rate(SCHEDULERS[name], WORDS, TIMES, HOSTS, places, rate)
        assert plan.places == places  # so that workers find their seats
        assert fullest(at(plan, rate)) <= HEADROOM + 1e-9
        used.append((nodes(plan), len(set(plan.place_of))))
    assert used == sorted(used)
    assert used[0] == (1, 1)


def test_auto_scales_until_it_sustains_the_rate() -> None:
    """Two copies of everything are not enough for 400,000 records/s; more hosts and copies are."""
    places = HOSTS.workers()
    make = partial(auto, goal="traffic", external_rate=400_000)
    plan = for_rate(make, WORDS, TIMES, HOSTS, places, 400_000)
    assert plan.parallelism["split"] > 2
    assert nodes(plan) > 1
    assert at(plan, 400_000).source_rate == pytest.approx(400_000)


def test_a_rate_that_nothing_sustains_gets_the_best_there_is() -> None:
    places = HOSTS.workers()
    make = partial(auto, goal="traffic", external_rate=1e9)
    plan = for_rate(make, WORDS, TIMES, HOSTS, places, 1e9)
    best = at(plan, None).source_rate
    assert best >= 0.99 * at(auto(WORDS, TIMES, HOSTS, places), None).source_rate
    assert plan.reason.startswith(
        f"no plan found sustains the rate with room to spare; {best:,.0f} "
    )


def test_on_one_node_workers_without_work_are_left_out() -> None:
    alone = cluster(1, cores=4)
    plan = for_rate(spread, WORDS, TIMES, alone, alone.workers(), 1_000)
    assert plan.places == (Place(0, 0),)
    assert set(plan.place_of) == {0}


def test_sources_may_have_rates_of_their_own() -> None:
    two = graph([("a", "c", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100, "c": 1_000})
    machine = cluster(2, cores=2)
    plan = for_rate(spread, two, times, machine, machine.workers(), {"a": 1_000, "b": 750_000})
    assert len(set(plan.place_of)) == 2
    found = predict(two, plan, times, machine, {"a": 1_000, "b": 750_000})
    assert found.source_rates == {"a": pytest.approx(1_000), "b": pytest.approx(750_000)}
    with pytest.raises(ValueError, match=r"given for \['a'\]; the sources are \['a', 'b'\]"):
        for_rate(spread, two, times, machine, machine.workers(), {"a": 1_000})


@pytest.mark.parametrize("rate", [0, -1, inf, nan, {"source": 0}])
def test_what_is_no_rate_is_refused(rate: ExternalRate) -> None:
    with pytest.raises(ValueError, match="it must be above 0, in records per second"):
        for_rate(spread, WORDS, TIMES, HOSTS, HOSTS.workers(), rate)


@given(graphs(), machines(), st.floats(1e3, 1e7), st.sampled_from(["spread", "consolidate"]))
@settings(max_examples=60, deadline=None)
def test_every_plan_fits_and_none_is_too_full_that_says_it_is_not(
    topology: tuple[Graph, Profile],
    hardware: tuple[Machine, tuple[Place, ...]],
    rate: float,
    name: str,
) -> None:
    graph, times = topology
    machine, places = hardware
    plan = for_rate(SCHEDULERS[name], graph, times, machine, places, rate)
    check(plan, graph, plan.places)
    if not plan.reason.startswith("no plan"):
        assert fullest(predict(graph, plan, times, machine, rate)) <= HEADROOM + 1e-6
