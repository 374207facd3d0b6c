"""The model against examples computed by hand."""

from dataclasses import replace
from math import inf, isinf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner_parts.briskstream import word_count
from tailrace.graph.expand import chains
from tailrace.graph.model import DEAD_LETTERS, MAIN, Graph, Grouping, Operator, Rule, Stream
from tailrace.plan.model.machine import (
    Cost,
    Crossing,
    Machine,
    Node,
    Place,
    Socket,
    cluster,
    server_a,
)
from tailrace.plan.model.prediction import Prediction, predict
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import plan_for
from tests.plan.small import graph, graphs, machines, placed, profile

LINE = graph([("a", "b", Rule.SHUFFLE)])
TIMES = profile({"a": 100, "b": 200})
ONE = cluster(1, cores=4)
ROOMY = (Place(0, 0, 4),)
TWO = (Place(0, 0, 2), Place(0, 0, 2))


def limit(found: Prediction) -> tuple[str, tuple[int, ...]]:
    return found.bottleneck.what, found.bottleneck.where


def test_a_profile_of_faster_cores_counts_as_on_the_machines() -> None:
    times = replace(TIMES, yardstick_ns=200.0)
    machine = replace(ONE, yardstick_ns=300.0, same_place=Crossing(receiver=Cost(record_ns=100)))
    found = predict(LINE, placed(LINE, ROOMY, 0, 0), times, machine)
    assert found.throughput == pytest.approx(1e9 / (200 * 300 / 200 + 100))


def test_the_slowest_instance_says_the_rate() -> None:
    found = predict(LINE, placed(LINE, ROOMY, 0, 0), TIMES, ONE)
    assert found.throughput == pytest.approx(5e6)
    assert found.source_rate == pytest.approx(5e6)
    assert found.busy == pytest.approx((0.5, 1.0))
    assert found.rates == pytest.approx((5e6, 5e6))
    # The source alone could emit 10 million: twice what b can take.
    assert limit(found) == ("instance", (1,))
    assert found.bottleneck.used == pytest.approx(2.0)
    assert found.oversupply == pytest.approx({"a": 1.0, "b": 2.0})


def test_a_worker_of_one_core_shares_it() -> None:
    found = predict(LINE, placed(LINE, [Place(0, 0)], 0, 0), TIMES, ONE)
    assert found.throughput == pytest.approx(1 / 300e-9)
    assert found.bottleneck.what == "place"
    assert found.uses[0].what == "place"
    assert found.uses[0].used == pytest.approx(1.0)


def test_workers_on_too_few_cores_share_the_socket() -> None:
    both = (Place(0, 0), Place(0, 0))
    found = predict(LINE, placed(LINE, both, 0, 1), TIMES, cluster(1, cores=1))
    assert found.throughput == pytest.approx(1 / 300e-9)
    assert found.bottleneck.what == "socket"


def test_replicas_share_the_work_evenly() -> None:
    wider = graph([("a", "b", Rule.KEY)], {"b": 3})
    found = predict(wider, placed(wider, ROOMY, 0, 0, 0, 0), TIMES, ONE)
    assert found.throughput == pytest.approx(1e7)
    assert found.rates[1:] == pytest.approx((1e7 / 3,) * 3)
    assert limit(found) == ("instance", (0,))
    assert found.bottleneck.used == pytest.approx(1.0)


def test_an_external_rate_below_the_capacity_is_what_goes_through() -> None:
    found = predict(LINE, placed(LINE, ROOMY, 0, 0), TIMES, ONE, external_rate=2e6)
    assert found.throughput == pytest.approx(2e6)
    assert found.bottleneck.what == "source"
    assert found.oversupply["b"] == pytest.approx(0.4)
    flooded = predict(LINE, placed(LINE, ROOMY, 0, 0), TIMES, ONE, external_rate=8e6)
    assert flooded.throughput == pytest.approx(5e6)
    assert limit(flooded) == ("instance", (1,))
    assert flooded.bottleneck.used == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("socket", "splitter_ns", "counter_ns"),
    [
        (0, 1612.8, 612.3),
        (1, 1612.8 + 3 * 307.7, 612.3 + 307.7),
        (4, 1612.8 + 3 * 548.0, 612.3 + 548.0),
    ],
)
def test_time_per_record_grows_with_the_distance_by_formula_2(
    socket: int, splitter_ns: float, counter_ns: float
) -> None:
    """Local times are the paper's; a fetch is formula 2 with the latencies of table 2."""
    topology, paper = word_count()
    machine = server_a()
    apart = plan_for(topology, machine.sockets(), [0, 0, socket, 0, 0], scheduler="", reason="")
    found = predict(topology, apart, paper, machine)
    assert found.busy[2] / found.rates[2] * 1e9 == pytest.approx(splitter_ns)
    apart = plan_for(topology, machine.sockets(), [0, 0, 0, socket, 0], scheduler="", reason="")
    found = predict(topology, apart, paper, machine)
    assert found.busy[3] / found.rates[3] * 1e9 == pytest.approx(counter_ns)


def test_the_sender_pays_too() -> None:
    machine = cluster(1, cores=4, same_socket=Crossing(Cost(record_ns=30), Cost(byte_ns=1)))
    found = predict(LINE, placed(LINE, TWO, 0, 1), TIMES, machine)
    assert found.source_rate == pytest.approx(1 / 264e-9)
    assert found.busy == pytest.approx((130 / 264, 1.0))


def test_an_instance_that_is_near_some_of_its_producers_pays_for_the_others() -> None:
    machine = cluster(1, cores=4, same_socket=Crossing(receiver=Cost(record_ns=100)))
    wider = graph([("a", "b", Rule.SHUFFLE)], {"a": 2})
    found = predict(wider, placed(wider, TWO, 0, 1, 1), TIMES, machine)
    assert found.busy[2] / found.rates[2] * 1e9 == pytest.approx(250)


def test_a_sink_whose_dead_letters_are_read_is_still_a_sink() -> None:
    read = replace(
        LINE,
        operators=(*LINE.operators, Operator("dead", None)),
        streams=(*LINE.streams, Stream("b", "dead", Grouping(Rule.SHUFFLE), DEAD_LETTERS)),
    )
    times = profile({"a": 100, "b": 200, "dead": 100})
    found = predict(read, placed(read, ROOMY, 0, 0, 0), times, ONE)
    assert found.throughput == pytest.approx(5e6)


def test_selectivity_multiplies_along_the_stream() -> None:
    longer = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100, "c": 100}, a=2.0, b=5.0)
    found = predict(longer, placed(longer, ROOMY, 0, 0, 0), times, ONE)
    assert found.throughput == pytest.approx(1e7)
    assert found.rates == pytest.approx((1e6, 2e6, 1e7))


def test_work_and_output_can_depend_on_the_input() -> None:
    tolls = graph(
        [("a", "b", Rule.KEY), ("a", "c", Rule.KEY), ("b", "c", Rule.KEY), ("c", "d", Rule.KEY)]
    )
    times = Profile(
        {
            "a": OperatorProfile(Work(100)),
            "b": OperatorProfile(Work(100)),
            "c": OperatorProfile(Work(300), by_input={"b": Work(500, {MAIN: 0.0})}),
            "d": OperatorProfile(Work(1)),
        }
    )
    found = predict(tolls, placed(tolls, ROOMY, 0, 0, 0, 0), times, ONE)
    assert found.source_rate == pytest.approx(1 / 800e-9)
    assert found.throughput == pytest.approx(1 / 800e-9)


def test_a_fused_chain_adds_up_and_fetches_once() -> None:
    """Equation 6: the times of all, the fetch of the first."""
    machine = cluster(1, cores=4, same_socket=Crossing(receiver=Cost(record_ns=50)))
    fused = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.FORWARD)])
    times = profile({"a": 100, "b": 200, "c": 30}, b=2.0)
    found = predict(fused, placed(fused, TWO, 0, 1), times, machine)
    assert found.source_rate == pytest.approx(1 / (200 + 2 * 30 + 50) * 1e9)
    assert found.throughput == pytest.approx(2 * found.source_rate)


def test_over_supply_is_shared_in_proportion() -> None:
    """c takes in a third of what comes, from a and b alike; d sees only that."""
    two = graph([("a", "c", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE), ("c", "d", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100, "c": 150, "d": 100})
    found = predict(two, placed(two, (Place(0, 0, 8),), 0, 0, 0, 0), times, cluster(1, cores=8))
    assert found.oversupply == pytest.approx({"a": 1, "b": 1, "c": 3, "d": 100 / 150})
    assert found.throughput == pytest.approx(1 / 150e-9)


def test_a_slow_source_does_not_hold_back_a_fast_one() -> None:
    two = graph([("a", "c", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
    plan = placed(two, ROOMY, 0, 0, 0)
    found = predict(two, plan, profile({"a": 100, "b": 1000, "c": 10}), ONE)
    assert found.source_rates == pytest.approx({"a": 1e7, "b": 1e6})
    assert found.throughput == pytest.approx(1.1e7)
    # When c is the limit it takes of both, in proportion to what comes.
    found = predict(two, plan, profile({"a": 100, "b": 1000, "c": 200}), ONE)
    assert found.throughput == pytest.approx(5e6)
    assert limit(found) == ("instance", (2,))


def test_pipelines_that_share_nothing_do_not_know_of_each_other() -> None:
    two = graph([("a", "b", Rule.SHUFFLE), ("c", "d", Rule.SHUFFLE)])
    times = profile({"a": 50, "b": 100, "c": 100, "d": 10_000})
    found = predict(two, placed(two, ROOMY, 0, 0, 0, 0), times, ONE)
    assert found.source_rates == pytest.approx({"a": 1e7, "c": 1e5})
    assert found.busy == pytest.approx((0.5, 0.01, 1.0, 1.0))
    assert found.oversupply == pytest.approx({"a": 1.0, "b": 2.0, "c": 1.0, "d": 100.0})
    # On one core they share it in proportion to what each could do.
    found = predict(two, placed(two, [Place(0, 0)], 0, 0, 0, 0), times, ONE)
    assert found.source_rates["a"] == pytest.approx(100 * found.source_rates["c"])
    assert found.uses[0].used == pytest.approx(1.0)


def test_a_source_below_its_external_rate_leaves_others_at_theirs() -> None:
    two = graph([("a", "b", Rule.SHUFFLE), ("c", "d", Rule.SHUFFLE)])
    plan = placed(two, ROOMY, 0, 0, 0, 0)
    found = predict(two, plan, profile(dict.fromkeys("abcd", 100)), ONE, {"a": 4e7, "c": 2e6})
    assert found.source_rates == pytest.approx({"a": 1e7, "c": 2e6})


def test_a_link_can_be_all_that_limits() -> None:
    machine = cluster(2, cores=1, link_bits_per_s=64e6)
    found = predict(LINE, placed(LINE, machine.workers(), 0, 1), profile({"a": 0, "b": 0}), machine)
    assert found.source_rate == pytest.approx(8e6 / 64)
    assert found.bottleneck.what == "link"


def test_external_rates_can_differ_by_source() -> None:
    two = graph([("a", "c", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100, "c": 100})
    plan = placed(two, ROOMY, 0, 0, 0)
    found = predict(two, plan, times, ONE, {"a": 1e6, "b": 3e6})
    assert found.rates == pytest.approx((1e6, 3e6, 4e6))
    throttled = predict(two, plan, times, ONE, {"a": 5e6, "b": 15e6})
    assert throttled.rates == pytest.approx((2.5e6, 7.5e6, 10e6))
    with pytest.raises(ValueError, match="given for \\['a'\\]; the sources are \\['a', 'b'\\]"):
        predict(two, plan, times, ONE, {"a": 1.0})


@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        (Rule.SHUFFLE, (0.5, 0.5)),
        (Rule.KEY, (0.5, 0.5)),
        (Rule.PARTIAL_KEY, (0.5, 0.5)),
        (Rule.ALL, (1.0, 1.0)),
        (Rule.GLOBAL, (1.0, 0.0)),
        (Rule.LOCAL_OR_SHUFFLE, (0.0, 1.0)),
    ],
)
def test_a_grouping_says_who_gets_how_much(rule: Rule, shares: tuple[float, float]) -> None:
    wider = graph([("a", "b", rule)], {"b": 2})
    found = predict(wider, placed(wider, TWO, 1, 0, 1), TIMES, ONE)
    assert found.rates[1:] == pytest.approx([share * found.source_rate for share in shares])


def test_without_a_receiver_in_the_place_local_streams_are_shuffled() -> None:
    wider = graph([("a", "b", Rule.LOCAL_OR_SHUFFLE)], {"a": 2, "b": 2})
    three = (*TWO, Place(0, 0, 2))
    found = predict(wider, placed(wider, three, 0, 2, 0, 1), TIMES, ONE)
    assert found.rates[2:] == pytest.approx((0.75 * found.source_rate, 0.25 * found.source_rate))


def test_a_forward_that_is_not_fused_goes_instance_by_instance() -> None:
    merged = graph([("a", "c", Rule.FORWARD), ("b", "c", Rule.FORWARD)], dict.fromkeys("abc", 2))
    times = profile({"a": 100, "b": 100, "c": 100})
    machine = cluster(1, cores=4, same_socket=Crossing(receiver=Cost(record_ns=60)))
    found = predict(merged, placed(merged, TWO, 0, 1, 0, 0, 0, 0), times, machine)
    # Only the second instance of a is away from its receiver.
    assert found.busy[5] / found.busy[4] == pytest.approx(260 / 200)


def test_memory_channels_and_links_can_be_the_limit() -> None:
    sockets = (Socket((0, 1), 1e8), Socket((2, 3), 1e8))
    machine = Machine(
        "m",
        (Node("n", sockets, ((0, 1), (1, 0))), Node("o", sockets, ((0, 1), (1, 0)))),
        other_socket=(Crossing(),),
        channel_bytes_per_s=(3.2e7,),
        link_bytes_per_s=6.4e6,
    )
    hungry = Profile(
        {
            "a": OperatorProfile(Work(100), {MAIN: 64.0}),
            "b": OperatorProfile(Work(200, memory_bytes=1000)),
        }
    )
    places = machine.sockets()
    found = predict(LINE, placed(LINE, places, 0, 0), hungry, machine)
    assert found.bottleneck.what == "memory"
    assert found.source_rate == pytest.approx(1e5)
    found = predict(LINE, placed(LINE, places, 0, 1), TIMES, machine)
    assert found.bottleneck.what == "channel"
    assert found.source_rate == pytest.approx(5e5)
    assert found.bottleneck.where == (0, 0, 1)
    found = predict(LINE, placed(LINE, places, 0, 2), TIMES, machine)
    assert found.bottleneck.what == "link"
    assert found.source_rate == pytest.approx(1e5)
    assert found.traffic == {(0, 2): pytest.approx((1e5, 6.4e6))}


def test_latency_grows_with_the_load_and_has_no_end_at_the_limit() -> None:
    plan = placed(LINE, ROOMY, 0, 0)
    waits = [predict(LINE, plan, TIMES, ONE, rate).latency_ms for rate in (1, 1e6, 4e6)]
    assert waits[0] == pytest.approx(300e-6, rel=1e-5)
    assert waits == sorted(waits)
    assert isinf(predict(LINE, plan, TIMES, ONE).latency_ms)


def test_a_topology_that_costs_nothing_has_no_rate() -> None:
    with pytest.raises(ValueError, match="costs nothing"):
        predict(LINE, placed(LINE, ROOMY, 0, 0), profile({"a": 0, "b": 0}), ONE)


@given(graphs(), machines(), st.data())
def test_nothing_is_over_full_and_something_is_full(
    case: tuple[Graph, Profile], on: tuple[Machine, tuple[Place, ...]], data: st.DataObject
) -> None:
    topology, times = case
    machine, places = on
    where = [data.draw(st.integers(0, len(places) - 1)) for _ in chains(topology)]
    found = predict(topology, placed(topology, places, *where), times, machine)
    fullest = max(*found.busy, *(use.used for use in found.uses))
    assert fullest == pytest.approx(1.0)
    assert 0 < found.throughput < inf
