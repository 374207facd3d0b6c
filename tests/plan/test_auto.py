"""Auto takes the best of what it tried, and says what that was."""

import pytest

from tailrace.graph.model import Rule
from tailrace.plan.auto import auto
from tailrace.plan.machine import Cost, Crossing, cluster
from tailrace.plan.model import predict
from tailrace.plan.plan import check
from tailrace.plan.rlas import rlas
from tailrace.plan.round_robin import round_robin
from tests.plan.small import graph, profile

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
    assert rates[auto] >= max(rates.values())


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
    assert " ms; others: round robin" in plan.reason
