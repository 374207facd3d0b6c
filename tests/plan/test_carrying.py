"""What it costs to carry records, in predictions."""

from dataclasses import replace

from pytest import approx

import tailrace as tr
from tailrace.graph.model import Graph, Grouping, Rule, Stream
from tailrace.plan.flow import flow_of
from tailrace.plan.layout import layout_of
from tailrace.plan.machine import Cost, Crossing, Jumbo, cluster
from tailrace.plan.model import predict
from tailrace.plan.plan import plan_for, with_parallelism
from tailrace.plan.profile import OperatorProfile, Profile, Work, way

MACHINE = replace(
    cluster(1, cores=2),
    same_socket=Crossing(Cost(message_ns=1000), Cost(), encode=Cost(500), decode=Cost(0)),
)


WAY = "numbers -> sink"


def graph() -> Graph:
    topology = tr.Topology()
    topology.source([1], name="numbers").shuffle().sink(print, name="sink")
    return topology.graph


def rate(place_of: list[int], jumbo: Jumbo | None = None) -> float:
    source = OperatorProfile(Work(100.0), jumbos={WAY: jumbo} if jumbo else {})
    profile = Profile({"numbers": source, "sink": OperatorProfile(Work(10.0))})
    plan = plan_for(graph(), MACHINE.workers(), place_of, scheduler="by hand", reason="")
    return predict(graph(), plan, profile, MACHINE).source_rate


def test_measured_encoding_takes_the_place_of_the_machines() -> None:
    assert round(1e9 / rate([0, 1])) == round(100 + 500 + 1000 / 128)
    measured = rate([0, 1], Jumbo(encode_ns=2000, decode_ns=0, records=10))
    assert round(1e9 / measured) == 100 + 2000 + 1000 / 20  # there is one receiver


def test_in_one_worker_nothing_is_encoded() -> None:
    by_reference = rate([0, 0], Jumbo(encode_ns=2000, decode_ns=0, records=10))
    assert round(1e9 / by_reference) == 110


def test_picking_receivers_costs_something_only_if_there_are_several() -> None:
    def rate_with(receivers: int) -> float:
        shaped = with_parallelism(graph(), {"sink": receivers})
        source = OperatorProfile(Work(100.0), deal_ns={WAY: 50.0})
        profile = Profile({"numbers": source, "sink": OperatorProfile(Work(10.0))})
        machine = cluster(1, cores=3)
        places = machine.workers()
        plan = plan_for(shaped, places, [*range(receivers + 1)], scheduler="by hand", reason="")
        rate = predict(shaped, plan, profile, machine).source_rate
        flow = flow_of(shaped, profile, machine, places)
        assert 1 / layout_of(flow, flow.counts(plan.place_of)).fullest() == approx(rate)
        return rate

    assert round(1e9 / rate_with(1)) == 100
    assert round(1e9 / rate_with(2)) == 150


def test_the_more_receivers_the_fewer_records_share_a_message() -> None:
    jumbo = Jumbo(encode_ns=0, decode_ns=0, records=10)
    assert [jumbo.among(n).records for n in (1, 2, 4, 100)] == [20, 10, 5, 1]
    source = OperatorProfile(Work(100.0), jumbos={WAY: jumbo})
    profile = Profile({"numbers": source, "sink": OperatorProfile(Work(10.0))})
    rates = []
    for receivers in (2, 4):
        shaped = with_parallelism(graph(), {"sink": receivers})
        flow = flow_of(shaped, profile, MACHINE, MACHINE.workers())
        (send_ns, _) = flow.carrying_ns(flow.edges[0], [1, receivers])
        rates.append(send_ns[0][1])
    assert rates == [1000 / 10, 1000 / 5]


def test_two_streams_between_the_same_operators_are_told_apart() -> None:
    """Of one output, to two ports; and of two outputs."""
    streams = [
        Stream("a", "b", Grouping(Rule.SHUFFLE)),
        Stream("a", "b", Grouping(Rule.SHUFFLE), port=1),
        Stream("a", "b", Grouping(Rule.SHUFFLE), "side"),
    ]
    assert len(set(map(way, streams))) == 3
