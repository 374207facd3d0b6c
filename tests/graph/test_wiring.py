"""Every pair of instances that a stream joins has a number, the same on every worker."""

import pickle

import pytest

from tailrace import Topology
from tailrace.graph.wiring import Wiring, wire


def pairs(wiring: Wiring) -> list[tuple[int, int]]:
    return [(link.sender, link.receiver) for link in wiring.links]


def test_links_are_numbered_in_order() -> None:
    topology = Topology()
    topology.source([1], parallelism=2).shuffle().map(abs, parallelism=3).gather().sink(print)
    wiring = wire(topology.graph)
    assert [link.id for link in wiring.links] == list(range(len(wiring.links)))
    assert pairs(wiring)[:6] == [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
    assert wiring.instances == 8


def test_streams_inside_a_chain_have_no_links() -> None:
    topology = Topology()
    topology.source([1], parallelism=3).map(abs).sink(print)
    assert wire(topology.graph).links == ()


def test_a_forwarded_stream_between_chains_joins_equal_indexes() -> None:
    topology = Topology()
    left = topology.source([1], name="left", parallelism=2)
    right = topology.source([2], name="right", parallelism=2)
    left.merge(right).sink(print)
    assert pairs(wire(topology.graph)) == [(0, 4), (1, 5), (2, 4), (3, 5)]


def test_links_are_found_by_either_end() -> None:
    topology = Topology()
    topology.source([1], parallelism=3).shuffle().sink(print, parallelism=4)
    wiring = wire(topology.graph)
    for instance in range(wiring.instances):
        assert wiring.links_into[instance] == [x for x in wiring.links if x.receiver == instance]
        assert wiring.links_out_of[instance] == [x for x in wiring.links if x.sender == instance]


def test_the_chain_of_every_instance_is_found() -> None:
    topology = Topology()
    topology.source([1], parallelism=2).shuffle().map(abs, parallelism=3).gather().sink(print)
    wiring = wire(topology.graph)
    for chain in wiring.chains:
        assert all(wiring.chain_of(instance) is chain for instance in chain.instances)
    for unknown in (-1, wiring.instances):
        with pytest.raises(KeyError, match=f"no instance {unknown}; there are 8"):
            wiring.chain_of(unknown)


def test_the_numbers_follow_from_the_graph_alone() -> None:
    topology = Topology()
    sides = topology.source([1], parallelism=2).split(str, ["1", "2"])
    sides["1"].merge(sides["2"]).shuffle().sink(print, parallelism=3)
    graph = topology.graph
    copy = pickle.loads(pickle.dumps(graph.streams))
    assert [stream.label for stream in copy] == [stream.label for stream in graph.streams]
    assert pairs(wire(graph)) == pairs(wire(topology.graph))
