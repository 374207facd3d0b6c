"""By resources: near to the reference, hard constraints kept, soft ones while they can be."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings

import tailrace as tr
from tailrace.graph.expand import chains
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place, cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.model.traffic import estimate
from tailrace.plan.plan import check
from tailrace.plan.schedulers.resource_aware import breadth_first, resource_aware
from tests.plan.topologies import Setting, settings_of_schedulers


def fork() -> Graph:
    topology = tr.Topology("fork")
    source = topology.source([1], name="source", parallelism=2)
    left = source.shuffle().map(abs, name="left", parallelism=3)
    left.shuffle().sink(print, name="far", parallelism=1)
    source.shuffle().sink(print, name="right", parallelism=2)
    return topology.graph


def test_instances_come_breadth_first_one_of_each_operator_in_turn() -> None:
    # source 0-1, left 2-4, right and far in the order of their chains
    first = {chain.label: chain.first for chain in chains(fork())}
    order = ["source", "left", "right", "far"]
    assert breadth_first(fork())[:4] == [first[name] for name in order]
    assert breadth_first(fork())[4:] == [
        first["source"] + 1,
        first["left"] + 1,
        first["right"] + 1,
        first["left"] + 2,
    ]


@given(settings_of_schedulers())
@settings(max_examples=100)
def test_plans_fit_and_are_the_same_every_time(setting: Setting) -> None:
    given_ = (setting.graph, setting.profile, setting.machine, setting.places)
    plan = resource_aware(*given_)
    check(plan, setting.graph, setting.places)
    assert plan == resource_aware(*given_)


def pairs(parallelism: int) -> Graph:
    topology = tr.Topology("pairs")
    source = topology.source([1], name="a", parallelism=parallelism)
    source.shuffle().sink(print, name="b", parallelism=parallelism)
    return topology.graph


def test_the_first_goes_to_the_node_with_most_resources() -> None:
    places = (Place(0, 0, 2), Place(1, 0, 8))
    plan = resource_aware(pairs(5), Profile({}), cluster(2, 1, 8), places)
    assert plan.place_of[0] == 1


def test_the_others_stay_near_it_while_there_is_room() -> None:
    places = (Place(0, 0), Place(1, 0), Place(0, 0), Place(1, 0))
    plan = resource_aware(pairs(2), Profile({}), cluster(2), places)
    first, second, *others = breadth_first(pairs(2))
    assert {places[plan.place_of[i]].node for i in (first, second)} == {0}
    assert {places[plan.place_of[i]].node for i in others} == {1}


def slow_memory(machine: Machine, bytes_per_s: float) -> Machine:
    nodes = tuple(
        replace(
            node,
            sockets=tuple(replace(s, memory_bytes_per_s=bytes_per_s) for s in node.sockets),
        )
        for node in machine.nodes
    )
    return replace(machine, nodes=nodes)


def test_memory_bandwidth_is_never_exceeded() -> None:
    graph = pairs(4)
    hungry = Profile(
        {"a": OperatorProfile(Work(1000.0, memory_bytes=100.0)), "b": OperatorProfile(Work(1000.0))}
    )
    machine = slow_memory(cluster(2, 1, 4), 150e6)
    places = machine.workers()
    plan = resource_aware(graph, hungry, machine, places)
    traffic = estimate(graph, hungry)
    used: Counter[int] = Counter()
    for instance, place in enumerate(plan.place_of):
        used[places[place].node] += round(traffic.memory_bytes[instance])
    # 4 x 100 MB/s at the full rate, 300 MB/s there are: two on each node, at a lower rate.
    assert used == {0: 200_000_000, 1: 200_000_000}
    assert "the cores are 100% busy" not in plan.reason


def test_cores_are_kept_while_some_have_enough_left() -> None:
    machine = cluster(2, 1, 4)
    plan = resource_aware(pairs(4), Profile({}), machine, machine.workers())
    assert set(Counter(plan.place_of).values()) == {1}
