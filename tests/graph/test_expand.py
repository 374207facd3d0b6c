"""Operators become chains, chains become instances."""

from tailrace import Topology
from tailrace.graph.expand import chains


def labels(topology: Topology) -> list[str]:
    return [chain.label for chain in chains(topology.graph)]


def test_operators_of_one_parallelism_run_fused() -> None:
    topology = Topology()
    topology.source([1]).map(abs).filter(bool).sink(print)
    assert labels(topology) == ["source + map + filter + sink"]


def test_a_grouping_starts_a_new_chain() -> None:
    topology = Topology()
    topology.source([1]).map(abs).shuffle().filter(bool).sink(print)
    assert labels(topology) == ["source + map", "filter + sink"]


def test_another_parallelism_starts_a_new_chain() -> None:
    topology = Topology()
    topology.source([1]).map(abs, parallelism=2).sink(print)
    assert labels(topology) == ["source", "map + sink"]


def test_branches_of_one_operator_are_one_chain() -> None:
    topology = Topology()
    stream = topology.source([1])
    stream.map(abs, name="left").sink(print, name="a")
    stream.map(abs, name="right").sink(print, name="b")
    (chain,) = chains(topology.graph)
    assert sorted(chain.operators) == ["a", "b", "left", "right", "source"]
    assert chain.operators.index("left") < chain.operators.index("a")


def test_a_merged_operator_starts_a_chain_even_if_forwarded_to() -> None:
    topology = Topology()
    left = topology.source([1], name="left")
    right = topology.source([2], name="right")
    left.merge(right).map(abs).sink(print)
    assert labels(topology) == ["left", "right", "map + sink"]


def test_two_streams_of_one_operator_into_another_do_not_fuse() -> None:
    topology = Topology()
    sides = topology.source([1]).split(str, ["1", "2"])
    sides["1"].merge(sides["2"]).sink(print)
    assert labels(topology) == ["source + split", "sink"]


def test_instances_are_numbered_chain_by_chain_without_gaps() -> None:
    topology = Topology()
    stream = topology.source([1], parallelism=2).map(abs).shuffle().map(abs, parallelism=3)
    stream.gather().sink(print, parallelism=1)
    found = chains(topology.graph)
    assert [list(chain.instances) for chain in found] == [[0, 1], [2, 3, 4], [5]]
