"""The published policies, step by step, and what keeps ours from herds and old news."""

from __future__ import annotations

from random import Random

import pytest

import tailrace as tr
from tailrace.graph.model import Rule
from tailrace.tail.du import LatencyShares
from tailrace.tail.late import Late, depth
from tailrace.tail.modes import changes, check_tail, tail_of, with_tail
from tailrace.tail.soonest import OLD_NEWS_NS, Soonest
from tailrace.tail.storm import LoadShares
from tests.tail.simulation import MS, Known

SECOND_NS = 1_000_000_000


def many(count: int) -> list[Known]:
    return [Known(place) for place in range(count)]


def test_du_moves_one_unit_from_slow_to_fast_in_every_pair_that_differs_enough() -> None:
    shares = LatencyShares(Random(0))
    shares.choose(many(5), 0)
    assert shares.units == [20] * 5
    shares.adjust([10.0, 11.0, 12.0, 13.0, 40.0])
    assert shares.units == [21, 20, 20, 20, 19], "13 / 11 is below 1.2"
    shares.adjust([10.0, 10.0, 12.0, 20.0, 40.0])
    assert shares.units == [22, 21, 20, 19, 18]


def test_du_ages_latencies_by_half() -> None:
    shares = LatencyShares(Random(0))
    shares.choose(many(2), 0)
    shares.adjust([10.0, 100.0])
    shares.adjust([10.0, 10.0])  # 7.5 and 30
    assert shares.units == [52, 48]
    shares.adjust([10.0, 10.0])  # 8.75 and 20
    shares.adjust([10.0, 10.0])  # 9.4 and 15
    shares.adjust([10.0, 10.0])  # 9.7 and 12.5
    shares.adjust([10.0, 10.0])  # 9.8 and 11.25: close enough
    assert shares.units == [55, 45]


def test_du_goes_by_the_average_latency_of_each_period() -> None:
    receivers = many(2)
    shares = LatencyShares(Random(0))
    shares.choose(receivers, 0)
    for one, latency_ms in zip(receivers, (2, 8), strict=True):
        one.taken += 100
        one.under_way_ns += 100 * latency_ms * MS
    shares.choose(receivers, 4 * SECOND_NS)
    assert shares.units == [50, 50]
    shares.choose(receivers, 5 * SECOND_NS)
    assert shares.units == [51, 49]


def test_storms_weights_grow_slowly_and_fall_fast() -> None:
    shares = LoadShares(Random(0))
    receivers = many(3)
    shares.choose(receivers, 0)
    shares.adjust([0.1, 0.14, 0.3], [0, 1, 2])
    shares.adjust([0.1, 0.14, 0.3], [0, 1, 2])
    assert shares.weights == [100, 100, 80]
    shares.adjust([0.1, 0.1, 0.1], [0, 1, 2])
    assert shares.weights == [100, 100, 81]


def test_storm_leaves_the_own_worker_above_and_returns_below() -> None:
    receivers = [Known(0, here=True), Known(1)]
    shares = LoadShares(Random(0), stays=True)
    assert {shares.choose(receivers, 0) for _ in range(100)} == {0}
    receivers[0].waiting = 64
    assert {shares.choose(receivers, 5 * SECOND_NS) for _ in range(100)} == {0, 1}
    receivers[0].waiting = 10
    assert {shares.choose(receivers, 10 * SECOND_NS) for _ in range(100)} == {0}


def test_ours_counts_what_waits_and_how_long_each_takes() -> None:
    receivers = [Known(0, service_ns=4 * MS), Known(1, service_ns=MS, waiting=2)]
    policy = Soonest(Random(0))
    assert policy.choose(receivers, 0) == 1
    receivers[1].waiting = 4
    assert policy.choose(receivers, 0) == 0


def test_equals_have_their_turn() -> None:
    receivers = [Known(place, service_ns=MS) for place in range(3)]
    policy = Soonest(Random(0))
    assert [policy.choose(receivers, 0) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_others_are_taken_to_be_worked_off() -> None:
    receivers = [Known(0, service_ns=MS, others=5), Known(1, service_ns=MS, waiting=2)]
    policy = Soonest(Random(0))
    assert policy.choose(receivers, 0) == 1
    assert policy.choose(receivers, 4 * MS) == 0


def test_who_was_slow_gets_another_chance_some_time() -> None:
    receivers = [Known(0, service_ns=100 * MS), Known(1, service_ns=MS, waiting=1)]
    policy = Soonest(Random(0))
    assert policy.choose(receivers, OLD_NEWS_NS) == 1
    receivers[1].heard_ns = 20 * OLD_NEWS_NS
    assert policy.choose(receivers, 20 * OLD_NEWS_NS) == 0


def test_what_can_stay_leaves_an_overloaded_worker_and_comes_back() -> None:
    here, there = Known(0, here=True, service_ns=MS), Known(1, service_ns=MS, way_ns=MS // 2)
    policy = Soonest(Random(0), stays=True)
    here.waiting = 3
    assert policy.choose([here, there], 0) == 0, "not worth leaving"
    here.waiting = 20
    assert policy.choose([here, there], 0) == 1
    here.waiting, there.waiting = 3, 1
    assert policy.choose([here, there], 0) == 1, "still away"
    here.waiting, there.waiting = 1, 1
    assert policy.choose([here, there], 0) == 0


def test_a_queue_is_shared_by_workers_not_by_their_instances() -> None:
    receivers = [Known(0, service_ns=2 * MS, waiting=1), Known(0, service_ns=2 * MS)]
    receivers.append(Known(1, service_ns=2 * MS, waiting=1))
    assert Late().next(receivers, 1, 0) is None, "a worker has one thread, and both are busy"
    receivers[0].waiting = 0
    assert Late().next(receivers, 1, 0) == (0, 1)


def test_somebody_is_always_chosen_if_nobody_has_anything() -> None:
    receivers = [Known(0, service_ns=MS, others=9), Known(1, service_ns=50 * MS, others=9)]
    assert Late().next(receivers, 1, 0) == (0, 1)


def test_a_free_receiver_that_is_too_slow_waits_for_a_longer_queue() -> None:
    receivers = [Known(0, service_ns=MS, waiting=1), Known(1, service_ns=8 * MS)]
    assert Late().next(receivers, 1, 0) is None
    found = Late().next(receivers, 20, 0)
    assert found is not None
    assert found[0] == 0, "with a backlog the fast one has one ahead"
    receivers[0].waiting = 2
    found = Late().next(receivers, 20, 0)
    assert found is not None
    assert found[0] == 1


def test_the_quicker_a_receiver_is_the_more_it_has_ahead() -> None:
    assert [depth(service_ns, 100_000) for service_ns in (MS, 100_000, 10_000)] == [1, 2, 11]


def test_a_stream_has_its_own_mode_or_the_jobs() -> None:
    topology = tr.Topology()
    first = topology.source([1]).shuffle(tail="shared").map(abs, parallelism=2, name="a")
    first.shuffle().map(abs, parallelism=3, name="b").key_by().scan(max).sink(print)
    graph = with_tail(topology.graph, "balance")
    modes = {one.label: tail_of(one) for one in graph.streams if one.grouping.rule is Rule.SHUFFLE}
    assert modes == {"source -> a": "shared", "a -> b": "balance"}
    assert changes(graph, "off", ["a -> b"]) == {1: "off"}
    with pytest.raises(ValueError, match="no shuffled stream 'b -> scan'; there are"):
        changes(graph, "off", ["b -> scan"])
    with pytest.raises(ValueError, match="tail is 'fast'; it must be one of 'off', 'balance'"):
        check_tail("fast")
    with pytest.raises(ValueError, match="tail is 'fast'"):
        topology.source([1]).shuffle(tail="fast")  # type: ignore[arg-type]
