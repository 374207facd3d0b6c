"""Consolidate: balanced over nodes, sockets and workers, with little traffic between them."""

from collections import Counter
from collections.abc import Callable, Hashable

import pytest
from hypothesis import given, settings

import tailrace as tr
from tailrace.apps import sol
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Cost, Crossing, Machine, Place, cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.model.traffic import Traffic, estimate, locality
from tailrace.plan.plan import Plan, check, plan_for
from tailrace.plan.schedulers.consolidate import BALANCE_FACTOR, consolidate
from tailrace.plan.schedulers.scheduler import Scheduler
from tailrace.plan.search.balance import Balance, carried
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.split_refine import best_split
from tests.plan.graphs import least_cut, some_case
from tests.plan.topologies import Setting, pipelines, settings_of_schedulers

ALONE = Profile({})


def published(graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]) -> Plan:
    return consolidate(graph, profile, machine, places, published=True)


def in_turn(graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]) -> Plan:
    instances = len(estimate(graph, profile).loads)
    where = [instance % len(places) for instance in range(instances)]
    return plan_for(graph, places, where, scheduler="in turn", reason="a test")


def excess(setting: Setting, plan: Plan, groups: list[list[int]]) -> float:
    """How far the instances in these groups of places are from their balance over the groups."""
    loads = estimate(setting.graph, setting.profile).weighted().loads
    group_of = {place: g for g, group in enumerate(groups) for place in group}
    inside = [i for i, place in enumerate(plan.place_of) if place in group_of]
    ours = [loads[i] for i in inside]
    cores = [float(sum(setting.places[p].cores for p in group)) for group in groups]
    balance = Balance.of(ours, cores, BALANCE_FACTOR)
    return balance.excess(carried(ours, [group_of[plan.place_of[i]] for i in inside], len(groups)))


def places_by(setting: Setting, key: Callable[[Place], Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for index, place in enumerate(setting.places):
        groups.setdefault(key(place), []).append(index)
    return list(groups.values())


@given(settings_of_schedulers())
@settings(max_examples=100)
def test_nodes_sockets_and_workers_are_balanced(setting: Setting) -> None:
    plan = consolidate(setting.graph, setting.profile, setting.machine, setting.places)
    check(plan, setting.graph, setting.places)
    assert excess(setting, plan, places_by(setting, lambda place: place.node)) == 0.0
    for node in places_by(setting, lambda place: place.node):
        sockets = [
            [p for p in socket if p in node]
            for socket in places_by(setting, lambda place: (place.node, place.socket))
            if socket[0] in node
        ]
        assert excess(setting, plan, sockets) == 0.0
        for socket in sockets:
            assert excess(setting, plan, [[place] for place in socket]) == 0.0


@given(settings_of_schedulers())
@settings(max_examples=100)
def test_no_more_goes_between_nodes_than_in_the_papers_plan(setting: Setting) -> None:
    given_ = (setting.graph, setting.profile, setting.machine, setting.places)
    traffic = estimate(setting.graph, setting.profile)
    ours, papers = (scheduler(*given_) for scheduler in (consolidate, published))
    if excess(setting, papers, places_by(setting, lambda place: place.node)) == 0.0:
        less, more = (locality(traffic, plan.place_of, plan.places) for plan in (ours, papers))
        assert less.internode_fraction <= more.internode_fraction + 1e-9


@given(settings_of_schedulers())
@settings(max_examples=50)
def test_the_papers_plan_fits_and_deals_out_a_nodes_instances_in_turn(setting: Setting) -> None:
    plan = published(setting.graph, setting.profile, setting.machine, setting.places)
    check(plan, setting.graph, setting.places)
    for node in {place.node for place in setting.places}:
        workers = [p for p, place in enumerate(setting.places) if place.node == node]
        taken = [place for place in plan.place_of if setting.places[place].node == node]
        assert taken == [workers[turn % len(workers)] for turn in range(len(taken))]


def test_pipelines_are_kept_whole() -> None:
    machine = cluster(2, 1, 2)
    plan = consolidate(pipelines(4), ALONE, machine, machine.workers())
    traffic = estimate(pipelines(4), ALONE)
    assert locality(traffic, plan.place_of, plan.places).leaving_fraction == 0.0
    assert set(Counter(plan.place_of).values()) == {3}


def test_a_node_with_more_workers_gets_more() -> None:
    places = (Place(0, 0), Place(0, 0), Place(0, 0), Place(1, 0))
    plan = consolidate(pipelines(4), ALONE, cluster(2), places)
    assert Counter(places[place].node for place in plan.place_of) == {0: 9, 1: 3}


def test_sockets_of_a_node_are_told_apart() -> None:
    machine = cluster(1, sockets=2, cores=2)
    plan = consolidate(pipelines(2), ALONE, machine, machine.sockets())
    first = plan.place_of[0]
    assert [place == first for place in plan.place_of] == [True, False] * 3


def crossed() -> Graph:
    """Two sources that each send to two sinks; which pairs are busy only the run shows."""
    topology = tr.Topology("crossed")
    topology.source([1], parallelism=2).key_by().sink(print, parallelism=2)
    return topology.graph


@pytest.mark.parametrize("busy", [{(0, 2), (1, 3)}, {(0, 3), (1, 2)}])
def test_measured_traffic_overrules_the_estimate(busy: set[tuple[int, int]]) -> None:
    records = {(s, r): 100.0 if (s, r) in busy else 1.0 for s in (0, 1) for r in (2, 3)}
    measured = Traffic((1.0,) * 4, records, {pair: 100 * n for pair, n in records.items()})
    machine = cluster(2, 1, 1)
    plan = consolidate(crossed(), ALONE, machine, machine.workers(), traffic=measured)
    assert {pair for pair in records if len({plan.place_of[i] for i in pair}) == 1} == busy
    assert plan.reason.endswith("traffic measured")


def test_measured_load_counts() -> None:
    measured = Traffic((9.0, 3.0, 3.0, 3.0), {(0, 2): 1.0, (0, 3): 1.0}, {(0, 2): 9.0, (0, 3): 9.0})
    machine = cluster(2, 1, 1)
    plan = consolidate(crossed(), ALONE, machine, machine.workers(), traffic=measured)
    assert len({plan.place_of[0]} | set(plan.place_of[1:])) == 2
    assert len(set(plan.place_of[1:])) == 1


PER_BYTE = Crossing(Cost(byte_ns=1.0))


@pytest.mark.parametrize(
    "machine",
    [
        cluster(2, 1, 1, other_node=PER_BYTE),
        cluster(1, 2, 1, other_socket=PER_BYTE),
        cluster(1, 1, 2, same_socket=PER_BYTE),
    ],
    ids=["nodes", "sockets", "workers"],
)
def test_few_large_records_stay_rather_than_many_small_ones(machine: Machine) -> None:
    topology = tr.Topology("sizes")
    stream = topology.source([1], name="0")
    for name in "12":
        stream = stream.shuffle().map(abs, name=name)
    stream.shuffle().sink(print, name="3")
    large = OperatorProfile(Work(1000.0), {"main": 10_000.0})
    profile = Profile({**{name: OperatorProfile(Work(1000.0)) for name in "0123"}, "1": large})
    plan = consolidate(topology.graph, profile, machine, machine.workers())
    # Twice as many records cross as if 1 and 2 were parted, but only small ones.
    assert plan.place_of[1] == plan.place_of[2] != plan.place_of[0] == plan.place_of[3]


def test_a_few_instances_get_the_best_split_there_is() -> None:
    # The search alone cuts more here.
    case = some_case(421)
    graph, balance = case.graph, case.balance
    searched = best_split(graph, case.capacities, BALANCE_FACTOR, 64, Effort(10**7))
    assert graph.cut(searched) > least_cut(graph, balance)

    topology = tr.Topology("measured")
    topology.source([1], parallelism=graph.size).sink(print)
    records = {(v, u): f for v, near in enumerate(graph.flows) for u, f in near.items() if v < u}
    measured = Traffic(graph.loads, records, records)
    places = tuple(Place(node, 0) for node, n in enumerate(case.workers) for _ in range(n))
    plan = consolidate(topology.graph, ALONE, cluster(3), places, traffic=measured)
    assert graph.cut([places[place].node for place in plan.place_of]) == least_cut(graph, balance)


def internode_fraction(scheduler: Scheduler, graph: Graph, nodes: int) -> float:
    machine = cluster(nodes, 1, 8 // nodes)
    plan = scheduler(graph, ALONE, machine, machine.workers())
    return locality(estimate(graph, ALONE), plan.place_of, plan.places).internode_fraction


def test_the_reason_says_what_was_gained() -> None:
    machine = cluster(2, 1, 4)
    plan = consolidate(sol.topology().graph, ALONE, machine, machine.workers())
    assert plan.reason == (
        "20% of the records go to another node, 54% if instances were placed in turn;"
        " traffic as far as the topology tells"
    )


def test_sol_sends_less_between_nodes_than_in_turn() -> None:
    graph = sol.topology().graph
    ours, papers, turns = (
        {nodes: internode_fraction(scheduler, graph, nodes) for nodes in (2, 4, 8)}
        for scheduler in (consolidate, published, in_turn)
    )
    # Two nodes: one cut through a layer, 1 of 5 hops. Eight: the source with three of its
    # receivers, 2 x 2 of the hops on the other node of four, 1 x 2 on each node of three.
    assert ours[2] == pytest.approx(0.2)
    assert ours[8] == pytest.approx(1 - (3 / 5 + 4 / 25 + 6 * 2 / 25) / 5)
    assert all(ours[nodes] <= papers[nodes] + 1e-9 < turns[nodes] for nodes in ours)
