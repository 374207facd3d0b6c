"""What it costs to carry records, in predictions."""

from dataclasses import replace

from pytest import approx

import tailrace as tr
from tailrace.graph.model import Graph, Grouping, Rule, Stream
from tailrace.plan.model.flow import flow_of
from tailrace.plan.model.machine import Cost, Crossing, Jumbo, cluster
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import OperatorProfile, Profile, Work, stream_key
from tailrace.plan.plan import plan_for, with_parallelism
from tailrace.plan.schedulers.spread import spread
from tailrace.plan.search.layout import layout_of

MACHINE = replace(
    cluster(1, cores=2),
    same_socket=Crossing(Cost(message_ns=1000), Cost(), encode=Cost(500), decode=Cost(0)),
)


STREAM = "numbers -> sink"


def graph() -> Graph:
    topology = tr.Topology()
    topology.source([1], name="numbers").shuffle().sink(print, name="sink")
    return topology.graph


def rate(place_of: list[int], jumbo: Jumbo | None = None) -> float:
    source = OperatorProfile(Work(100.0), jumbos={STREAM: jumbo} if jumbo else {})
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


def test_picking_receivers_costs_the_same_however_many_there_are() -> None:
    """The key function is called for one, too."""

    def rate_with(receivers: int) -> float:
        shaped = with_parallelism(graph(), {"sink": receivers})
        source = OperatorProfile(Work(100.0), deal_ns={STREAM: 50.0})
        profile = Profile({"numbers": source, "sink": OperatorProfile(Work(10.0))})
        machine = cluster(1, cores=3)
        places = machine.workers()
        plan = plan_for(shaped, places, [*range(receivers + 1)], scheduler="by hand", reason="")
        rate = predict(shaped, plan, profile, machine).source_rate
        flow = flow_of(shaped, profile, machine, places)
        assert 1 / layout_of(flow, flow.counts(plan.place_of)).fullest() == approx(rate)
        return rate

    assert round(1e9 / rate_with(1)) == 150
    assert round(1e9 / rate_with(2)) == 150


def message_ns(receivers: int, workers: int) -> float:
    """A record's share of a message from the first worker to the second."""
    source = OperatorProfile(Work(100.0), jumbos={STREAM: Jumbo(0, 0, records=64)})
    profile = Profile({"numbers": source, "sink": OperatorProfile(Work(10.0))})
    machine = replace(cluster(1, cores=workers), same_socket=MACHINE.same_socket)
    shaped = with_parallelism(graph(), {"sink": receivers})
    flow = flow_of(shaped, profile, machine, machine.workers())
    send_ns, _ = flow.carrying_ns(flow.edges[0], [1, receivers])
    return send_ns[0][1]


def test_the_more_workers_receive_the_fewer_records_share_a_message() -> None:
    jumbo = Jumbo(encode_ns=0, decode_ns=0, records=10)
    assert [jumbo.among(n).records for n in (1, 2, 4, 100)] == [20, 10, 5, 1]
    assert [message_ns(16, workers) for workers in (2, 4, 8)] == [1000 / 64, 1000 / 32, 1000 / 16]


def test_a_record_costs_the_same_however_many_instances_the_workers_have() -> None:
    """What goes from one worker to another travels in one message."""
    assert message_ns(4, 4) == message_ns(16, 4) == message_ns(256, 4)
    assert message_ns(2, 4) < message_ns(4, 4)  # some workers have none


def test_predictions_do_not_fall_with_parallelism() -> None:
    """64 instances of each on four workers, with the same work to do, sustain what four do."""
    machine = replace(cluster(1, cores=4), same_socket=MACHINE.same_socket)
    times = Profile(
        {
            "numbers": OperatorProfile(Work(100.0), jumbos={STREAM: Jumbo(50, 50, records=64)}),
            "sink": OperatorProfile(Work(100.0)),
        }
    )

    def sustained(parallelism: int) -> float:
        shaped = with_parallelism(graph(), dict.fromkeys(("numbers", "sink"), parallelism))
        plan = spread(shaped, times, machine, machine.workers())
        return predict(shaped, plan, times, machine).source_rate

    assert sustained(64) == approx(sustained(4))


def test_two_streams_between_the_same_operators_are_told_apart() -> None:
    """Of one output, to two ports; and of two outputs."""
    streams = [
        Stream("a", "b", Grouping(Rule.SHUFFLE)),
        Stream("a", "b", Grouping(Rule.SHUFFLE), port=1),
        Stream("a", "b", Grouping(Rule.SHUFFLE), "side"),
    ]
    assert len(set(map(stream_key, streams))) == 3
