"""Deployments that a running job may be asked for."""

import pytest

import tailrace as tr
from tailrace.graph.wiring import wire
from tailrace.runtime.arranging import rescaled
from tailrace.runtime.deployment import deploy
from tailrace.testing import collect
from tests.runtime.cores import Cores


def merged() -> tuple[tr.Topology, list[int]]:
    """Two streams meet, so nothing is fused, though one of them goes instance by instance."""
    topology = tr.Topology()
    few = topology.source([-1, -2], name="few")
    many = topology.source(range(300), name="many").shuffle().map(abs, parallelism=2, name="step")
    both = many.merge(few.shuffle()).map(lambda n: n, parallelism=2, name="both")
    return topology, collect(both.shuffle())


@pytest.mark.parametrize("named", ["step", "both"])
def test_both_sides_of_a_stream_that_goes_instance_by_instance_are_rescaled(named: str) -> None:
    topology, results = merged()
    count = wire(topology.graph).instances
    cores = Cores(topology, [index % 3 for index in range(count)])
    cores.rounds(5)
    for number in (3, 1, 2):
        after = rescaled(cores.deployment, {named: number}, [0, 1, 2])
        assert {after.graph.operator(one).parallelism for one in ("step", "both")} == {number}
        cores.change(after)
        cores.rounds(5)
    cores.rounds(500)
    assert sorted(results) == [-2, -1, *range(300)]
    for core in cores.cores:
        core.close()


def test_two_numbers_for_what_goes_instance_by_instance_are_refused() -> None:
    topology, _ = merged()
    before = deploy(topology.graph, [0] * wire(topology.graph).instances)
    with pytest.raises(ValueError, match=r"'step' and 'both' have as many .* both 3 and 1 were"):
        rescaled(before, {"step": 3, "both": 1}, [0])
