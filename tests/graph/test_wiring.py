"""Chains of operators, the streams between them, and what instances are called."""

import pytest

from tailrace import Topology
from tailrace.graph.wiring import InstanceId, wire


def test_instances_have_the_names_of_their_first_operators_in_the_order_of_plans() -> None:
    topology = Topology()
    numbers = topology.source([1], parallelism=2, name="numbers").shuffle()
    numbers.map(abs, parallelism=3, name="work").sink(print)
    wiring = wire(topology.graph)
    assert [str(one) for one in wiring.ids] == [
        *("numbers[0]", "numbers[1]"),
        *("work[0]", "work[1]", "work[2]"),
    ]
    assert wiring.ids[3] == InstanceId("work", 1)


def test_streams_inside_a_chain_join_nothing() -> None:
    topology = Topology()
    topology.source([1], parallelism=3).map(abs).sink(print)
    assert wire(topology.graph).streams == {}


def test_streams_between_chains_are_known_by_their_number_in_the_graph() -> None:
    topology = Topology()
    topology.source([1]).map(abs).shuffle().map(abs, parallelism=3).gather().sink(print)
    wiring = wire(topology.graph)
    labels = {n: wiring.graph.streams[n].label for n in wiring.streams}
    assert list(labels.values()) == ["map -> map 2", "map 2 -> sink"]
    assert all(wiring.graph.streams[number].label == label for number, label in labels.items())


def test_the_chain_of_every_instance_is_found() -> None:
    topology = Topology()
    topology.source([1], parallelism=2).shuffle().map(abs, parallelism=3).gather().sink(print)
    wiring = wire(topology.graph)
    for chain in wiring.chains:
        assert all(wiring.chain_of(instance) is chain for instance in chain.instances)
        assert all(wiring.home[name] is chain for name in chain.operators)
    for unknown in (-1, wiring.instances):
        with pytest.raises(KeyError, match=f"no instance {unknown}; there are 6"):
            wiring.chain_of(unknown)
