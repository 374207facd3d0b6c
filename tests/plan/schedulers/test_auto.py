"""Auto takes the best of what it tried, and says what that was."""

import pytest
from hypothesis import given, settings

from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.machine import Cost, Crossing, Machine, Place, cluster
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import Plan, check
from tailrace.plan.schedulers.auto import EQUAL, auto
from tailrace.plan.schedulers.rlas import rlas
from tailrace.plan.schedulers.round_robin import round_robin
from tailrace.plan.schedulers.spread import spread
from tailrace.plan.search.quieter import leaving
from tests.plan.small import graph, graphs, machines, profile

DEAR = cluster(
    1,
    cores=2,
    same_socket=Crossing(Cost(record_ns=2_000), Cost(record_ns=2_000)),
)
LINE = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.KEY)])
TIMES = profile({"a": 100, "b": 100, "c": 50})


def test_it_is_at_least_as_good_as_each_rival() -> None:
    places = DEAR.workers()
    rates = {
        make: predict(LINE, make(LINE, TIMES, DEAR, places), TIMES, DEAR).throughput
        for make in (auto, rlas, round_robin)
    }
    assert rates[auto] >= max(rates.values()) * (1 - EQUAL)


def test_it_sends_no_more_between_hosts_than_what_nobody_planned_if_that_is_as_fast() -> None:
    """Word count with a source that is the limit wherever the rest is: all plans are as fast."""
    words = graph(
        [("source", "split", Rule.SHUFFLE), ("split", "count", Rule.KEY)],
        {"split": 4, "count": 4},
    )
    times = Profile(
        {
            "source": OperatorProfile(Work(50_000), {"main": 60.0}),
            "split": OperatorProfile(Work(2_000, {"main": 10.0}), {"main": 8.0}),
            "count": OperatorProfile(Work(200), {"main": 16.0}),
        }
    )
    hosts = cluster(4, cores=2)
    places = hosts.workers()

    def told(plan: Plan) -> tuple[float, float]:
        found = predict(words, plan, times, hosts)
        return found.source_rate, leaving(found.traffic, places).between_nodes

    fast, quiet = told(auto(words, times, hosts, places, keep=["source"]))
    unplanned_fast, unplanned_loud = told(spread(words, times, hosts, places))
    assert fast == pytest.approx(unplanned_fast, rel=0.02)
    assert quiet <= unplanned_loud
    assert quiet == 0  # one host has room for all of it


@given(graphs(), machines())
@settings(max_examples=20, deadline=None)
def test_of_equal_plans_it_never_takes_a_louder_one(
    topology: tuple[Graph, Profile], hardware: tuple[Machine, tuple[Place, ...]]
) -> None:
    some, times = topology
    machine, places = hardware

    def told(plan: Plan) -> tuple[float, float]:
        found = predict(some, plan, times, machine)
        return found.source_rate, leaving(found.traffic, places).between_nodes

    fast, quiet = told(auto(some, times, machine, places, budget_s=0.5))
    unplanned_fast, unplanned_loud = told(spread(some, times, machine, places))
    assert fast >= unplanned_fast * (1 - 2 * EQUAL)
    if unplanned_fast >= fast:
        assert quiet <= unplanned_loud * (1 + 1e-6)


def test_it_fuses_where_that_pays() -> None:
    """Two workers far apart: two fused copies of a and b beat any split of them."""
    line = graph([("a", "b", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100})
    plan = auto(line, times, DEAR, DEAR.workers())
    check(plan, line, DEAR.workers())
    assert plan.chains == (("a", "b"),)
    assert plan.parallelism == {"a": 2, "b": 2}
    assert predict(line, plan, times, DEAR).throughput == pytest.approx(1e7)
    assert plan.reason.startswith("rlas with a -> b fused: 10,000,000 records/s; others: ")


def test_copies_of_a_broadcast_are_no_gain() -> None:
    """Four receivers give four times as many records at the sinks, and half the rate."""
    wide = graph([("a", "b", Rule.ALL)], {"b": 4})
    times = profile({"a": 100, "b": 100})
    machine = cluster(1, cores=8, same_socket=Crossing(Cost(record_ns=25)))
    places = machine.workers()
    plan = auto(wide, times, machine, places)
    best = predict(wide, plan, times, machine).source_rate
    for make in (rlas, round_robin):
        assert best >= predict(wide, make(wide, times, machine, places), times, machine).source_rate
    assert f"{best:,.0f} records/s" in plan.reason


def test_what_is_kept_forbids_fusion_and_growth() -> None:
    line = graph([("a", "b", Rule.SHUFFLE)], {"b": 2})
    plan = auto(line, profile({"a": 100, "b": 100}), DEAR, DEAR.workers(), keep=["a", "b"])
    assert plan.parallelism == {"a": 1, "b": 2}


def test_for_latency_it_needs_a_rate_and_goes_by_it() -> None:
    places = DEAR.workers()
    with pytest.raises(ValueError, match="give external_rate"):
        auto(LINE, TIMES, DEAR, places, goal="latency")
    plan = auto(LINE, TIMES, DEAR, places, goal="latency", external_rate=1_000)
    waits = predict(LINE, plan, TIMES, DEAR, 1_000).latency_ms
    spread = predict(LINE, round_robin(LINE, TIMES, DEAR, places), TIMES, DEAR, 1_000).latency_ms
    assert waits < spread
    assert " ms; others: spread" in plan.reason
