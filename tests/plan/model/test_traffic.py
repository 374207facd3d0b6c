"""What flows between instances, estimated, and where it goes: TurboStream's table II."""

from collections.abc import Mapping

import pytest

import tailrace as tr
from tailrace.graph.model import DEAD_LETTERS, Graph
from tailrace.plan.model.machine import cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.model.traffic import Pair, estimate, locality, measured_or_estimated
from tailrace.plan.plan import PlanError

ALONE = Profile({})


def records(graph: Graph, profile: Profile = ALONE) -> Mapping[Pair, float]:
    return estimate(graph, profile).records


def shuffled(workers: int, hops: int = 3) -> Graph:
    """Everybody sends to everybody: as many instances of each operator as there are workers."""
    topology = tr.Topology("shuffled")
    stream = topology.source([1], parallelism=workers)
    for _ in range(hops):
        stream = stream.shuffle().map(abs, parallelism=workers)
    stream.sink(print)
    return topology.graph


@pytest.mark.parametrize(
    ("nodes", "workers", "intranode", "internode"),
    [
        (8, 8, "0.00%", "100.00%"),
        (4, 8, "14.29%", "85.71%"),
        (2, 8, "42.86%", "57.14%"),
        (1, 1, "0.00%", "0.00%"),
        (4, 4, "0.00%", "100.00%"),
        (2, 4, "33.33%", "66.67%"),
        (2, 2, "0.00%", "100.00%"),
        (1, 2, "100.00%", "0.00%"),
    ],
)
def test_table_ii_comes_out(nodes: int, workers: int, intranode: str, internode: str) -> None:
    graph = shuffled(workers)
    places = cluster(nodes, 1, workers // nodes).workers()
    traffic = estimate(graph, ALONE)
    in_turn = [instance % workers for instance in range(len(traffic.loads))]
    found = locality(traffic, in_turn, places)
    assert f"{found.intranode_ipc_fraction:.2%}" == intranode
    assert f"{found.internode_ipc_fraction:.2%}" == internode


def test_a_shuffled_stream_spreads_evenly() -> None:
    topology = tr.Topology()
    topology.source([1], parallelism=2).shuffle().sink(print, parallelism=4)
    assert records(topology.graph) == {(s, r): 0.25 for s in (0, 1) for r in range(2, 6)}


def test_a_gathered_stream_goes_to_the_first_and_a_broadcast_to_all() -> None:
    topology = tr.Topology()
    topology.source([1], parallelism=2).broadcast().map(abs, parallelism=2).gather().sink(print)
    assert records(topology.graph) == {
        **{(s, r): 1.0 for s in (0, 1) for r in (2, 3)},
        (2, 4): 2.0,
        (3, 4): 2.0,
    }


def test_a_forwarded_stream_between_chains_joins_equal_indexes() -> None:
    topology = tr.Topology()
    left = topology.source([1], name="left", parallelism=2)
    left.merge(topology.source([2], name="right", parallelism=2)).sink(print)
    assert records(topology.graph) == {(0, 4): 1.0, (1, 5): 1.0, (2, 4): 1.0, (3, 5): 1.0}


def test_what_runs_fused_exchanges_nothing() -> None:
    topology = tr.Topology()
    topology.source([1], parallelism=3).map(abs).sink(print)
    assert records(topology.graph) == {}


def test_dead_letters_are_rare() -> None:
    topology = tr.Topology()
    mapped = topology.source([1]).shuffle().map(abs, name="map", on_error="dead letter")
    mapped.shuffle().sink(print, name="good")
    mapped.dead_letters().shuffle().sink(print, name="bad")
    assert DEAD_LETTERS in topology.graph.operator("map").outputs
    assert records(topology.graph) == {(0, 1): 1.0, (1, 2): 1.0}


def words() -> Graph:
    topology = tr.Topology("words")
    split = topology.source(["a b"], name="lines").shuffle().flat_map(str.split, name="split")
    split.key_by().sink(print, name="sink", parallelism=2)
    return topology.graph


def profiled() -> Profile:
    return Profile(
        {
            "lines": OperatorProfile(Work(1000.0, memory_bytes=10.0), {"main": 50.0}),
            "split": OperatorProfile(Work(500.0, {"main": 10.0}), {"main": 5.0}),
            "sink": OperatorProfile(Work(40.0)),
        }
    )


def test_a_profile_gives_rates_sizes_and_loads() -> None:
    traffic = estimate(words(), profiled())
    assert traffic.records == pytest.approx({(0, 1): 1e6, (1, 2): 5e6, (1, 3): 5e6})
    assert traffic.bytes == pytest.approx({(0, 1): 50e6, (1, 2): 25e6, (1, 3): 25e6})
    assert traffic.loads == pytest.approx((1.0, 0.5, 0.2, 0.2))
    assert traffic.memory_bytes == pytest.approx((10e6, 0.0, 0.0, 0.0))


def test_work_may_depend_on_the_input() -> None:
    topology = tr.Topology()
    left = topology.source([1], name="left")
    right = topology.source([2], name="right")
    left.merge(right).map(abs, name="both").shuffle().sink(print, name="sink")
    cheap, dear = Work(10.0, {"main": 0.0}), Work(100.0, {"main": 2.0})
    profile = Profile(
        {
            **{o.name: OperatorProfile(Work(1e9)) for o in topology.graph.operators},
            "both": OperatorProfile(cheap, by_input={"right": dear}),
        }
    )
    traffic = estimate(topology.graph, profile)
    assert traffic.loads[2] == pytest.approx(110e-9)
    assert traffic.records[2, 3] == pytest.approx(2.0)


def test_without_a_profile_all_instances_are_equally_busy() -> None:
    assert estimate(words(), ALONE).loads == (1.0, 1.0, 1.0, 1.0)


def test_measured_traffic_of_another_topology_is_refused() -> None:
    other = estimate(shuffled(2), ALONE)
    with pytest.raises(PlanError, match="between 8 instances; topology 'words' has 4"):
        measured_or_estimated(words(), ALONE, other)


def test_traffic_can_be_weighed_by_the_price_of_a_record() -> None:
    traffic = estimate(words(), profiled())
    assert traffic.weighted().flows[1] == pytest.approx({0: 1e6, 2: 5e6, 3: 5e6})
    by_size = traffic.weighted(lambda record_bytes: record_bytes)
    assert by_size.flows[1] == pytest.approx({0: 50e6, 2: 25e6, 3: 25e6})
