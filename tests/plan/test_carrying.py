"""What it costs to carry records, in predictions."""

from dataclasses import replace

from pytest import approx

import tailrace as tr
from tailrace.graph.model import Graph
from tailrace.plan.flow import flow_of
from tailrace.plan.layout import layout_of
from tailrace.plan.machine import Cost, Crossing, Jumbo, cluster
from tailrace.plan.model import predict
from tailrace.plan.plan import plan_for, with_parallelism
from tailrace.plan.profile import OperatorProfile, Profile, Work

MACHINE = replace(
    cluster(1, cores=2),
    same_socket=Crossing(Cost(message_ns=1000), Cost(), encode=Cost(500), decode=Cost(0)),
)


def graph() -> Graph:
    topology = tr.Topology()
    topology.source([1], name="numbers").shuffle().sink(print, name="sink")
    return topology.graph


def rate(place_of: list[int], **jumbos: Jumbo) -> float:
    source = OperatorProfile(Work(100.0), jumbos=jumbos)
    profile = Profile({"numbers": source, "sink": OperatorProfile(Work(10.0))})
    plan = plan_for(graph(), MACHINE.workers(), place_of, scheduler="by hand", reason="")
    return predict(graph(), plan, profile, MACHINE).source_rate


def test_measured_encoding_takes_the_place_of_the_machines() -> None:
    assert round(1e9 / rate([0, 1])) == round(100 + 500 + 1000 / 128)
    measured = rate([0, 1], main=Jumbo(encode_ns=2000, decode_ns=0, records=10))
    assert round(1e9 / measured) == 100 + 2000 + 1000 / 10


def test_in_one_worker_nothing_is_encoded() -> None:
    by_reference = rate([0, 0], main=Jumbo(encode_ns=2000, decode_ns=0, records=10))
    assert round(1e9 / by_reference) == 110


def test_picking_receivers_costs_something_only_if_there_are_several() -> None:
    def rate_with(receivers: int) -> float:
        shaped = with_parallelism(graph(), {"sink": receivers})
        source = OperatorProfile(Work(100.0), deal_ns={"sink": 50.0})
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
