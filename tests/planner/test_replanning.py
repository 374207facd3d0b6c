"""Plans for running jobs, from numbers that a monitor could have told."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

import tailrace as tr
from tailrace.control.progress.summary import OperatorProgress, StreamProgress, Summary, summarise
from tailrace.control.progress.traffic import TrafficTable, traffic_of
from tailrace.control.protocol import Progress
from tailrace.control.roster import Roster
from tailrace.graph.model import Graph
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Cost, Crossing, cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.planner.planning import places_for
from tailrace.planner.replanning import across, present_plan, replanned, sized
from tailrace.planner.running import observed_profile
from tailrace.runtime.counting import LaneCounts, SentBy, columns
from tailrace.runtime.deployment import deploy

WAY = Crossing(Cost(500.0, 1.0), Cost(500.0, 1.0))
MACHINE = cluster(2, cores=2, same_socket=WAY, other_node=WAY)


def graph() -> Graph:
    topology = tr.Topology("numbers")
    numbers = topology.source([1], name="numbers").shuffle()
    numbers.map(abs, name="work").shuffle().sink(print, name="out")
    return topology.graph


def told(records: int) -> tuple[Summary, TrafficTable]:
    """Each record takes 1 us in the source, 20 us in `work`, 1 us in the sink, and has 50 bytes."""
    wiring = wire(graph())
    roster = Roster(4)
    roster.hear(Progress(0, 1_000_000_000, running_s=2.0))
    lanes = LaneCounts(
        *columns([(gate, records // 10, records, 50 * records) for gate in (0, 1)], 4)
    )
    sent_by = [SentBy(stream, 0, array("q", [records])) for stream in wiring.streams]
    instances = [(0, 1e-6 * records, 1.0), (1, 2e-5 * records, 20.0), (2, 1e-6 * records, 1.0)]
    last = Progress(0, 3_000_000_000, running_s=4.0, instances=instances)
    last.lanes, last.sent_by = lanes, sent_by
    roster.progress, roster.earlier = {0: last}, {0: replace(roster.progress[0])}
    times_us = {"numbers": 1.0, "work": 20.0, "out": 1.0}
    summary = replace(
        summarise(Roster(4), wiring),
        emitted={"numbers": records},
        operators={
            name: OperatorProgress(records, 0, 0, 0, us, us, us) for name, us in times_us.items()
        },
        streams={
            wiring.graph.streams[number].label: StreamProgress(records, records, 0, 0, 0, 0)
            for number in wiring.streams
        },
    )
    return summary, traffic_of(roster, deploy(wiring.graph, (0, 0, 0)))


def test_rates_are_of_the_last_period() -> None:
    _, table = told(10_000)
    assert [link.records_per_s for link in table.links] == [5_000, 5_000]
    assert [link.bytes_per_s for link in table.links] == [250_000, 250_000]
    assert table.seconds == 4.0
    traffic = table.traffic()
    assert traffic.records == {(0, 1): 2_500, (1, 2): 2_500}
    assert traffic.loads == (0.25, 5.0, 0.25)
    assert "[1] (0) -> out [2] (0)" in str(table)


def test_what_holds_a_job_up_gets_more_instances_and_the_gain_is_told() -> None:
    summary, table = told(10_000)
    present = present_plan(graph(), (0, 0, 0), ["a", "a", "b", "b"], MACHINE)
    assert [place.node for place in present.places] == [0, 0, 1, 1]
    found = replanned(graph(), present, MACHINE, summary, table, "rlas")
    assert found.present_records_per_s == pytest.approx(1e6 / 22)
    assert found.plan.parallelism["work"] >= 3
    assert found.gain == pytest.approx(found.records_per_s * 22e-6 - 1)
    assert found.gain > 1


def test_where_nothing_better_is_found_auto_stays() -> None:
    summary, table = told(10_000)
    first = replanned(
        graph(), present_plan(graph(), (0, 0, 0), "aabb", MACHINE), MACHINE, summary, table, "rlas"
    )
    again = replanned(graph(), first.plan, MACHINE, summary, table, "random")
    assert again.present == first.plan
    assert again.gain < 0
    one = present_plan(graph(), (0, 0, 0), "a", cluster(1, cores=1))
    stayed = replanned(graph(), one, cluster(1, cores=1), summary, table, "auto", keep=["work"])
    assert stayed.gain >= 0


def test_a_plan_that_is_the_present_one_on_other_equal_places_moves_nothing() -> None:
    summary, table = told(10_000)
    for place_of in ((0, 2, 1), (3, 1, 2)):
        present = present_plan(graph(), place_of, "aabb", MACHINE)
        found = replanned(graph(), present, MACHINE, summary, table, "consolidate").plan
        mirrored = present_plan(graph(), [3 - place for place in found.place_of], "aabb", MACHINE)
        again = replanned(graph(), mirrored, MACHINE, summary, table, "consolidate")
        assert again.plan.place_of == mirrored.place_of


def test_sizes_are_those_on_the_way() -> None:
    summary, table = told(10_000)
    profile = sized(observed_profile(summary, graph()), graph(), table)
    assert profile.of("numbers").bytes_of("main") == 50
    assert profile.of("numbers").work.execute_ns == 1_000
    assert profile.of("work").work.execute_ns == pytest.approx(20_000)


def test_what_stays_of_the_profile_counts_as_on_the_machines_cores() -> None:
    summary, table = told(10_000)
    base = Profile({"numbers": OperatorProfile(Work(2_000.0))}, yardstick_ns=200.0)
    slower = replace(MACHINE, yardstick_ns=300.0)
    present = present_plan(graph(), (0, 0, 0), "aabb", slower)
    found = replanned(graph(), present, slower, summary, table, "random", base=base)
    assert found.profile.of("numbers").work.execute_ns == pytest.approx(3_000)
    assert found.profile.of("work").work.execute_ns == pytest.approx(20_000)
    assert found.present_records_per_s == pytest.approx(1e6 / 24)


def test_a_job_that_has_done_nothing_tells_nothing() -> None:
    summary, table = told(0)
    present = present_plan(graph(), (0, 0, 0), "aabb", MACHINE)
    with pytest.raises(ValueError, match="'numbers' has emitted nothing so far"):
        replanned(graph(), present, MACHINE, summary, table, "auto")


def test_workers_on_more_nodes_than_the_machine_has_are_refused() -> None:
    with pytest.raises(ValueError, match="the workers are on 3 nodes; machine"):
        present_plan(graph(), (0, 0, 0), "abc", MACHINE)


def test_workers_on_several_hosts_are_on_as_many_nodes_like_the_one_that_is_known() -> None:
    one = cluster(1, cores=2, same_socket=WAY, other_node=WAY)
    three = across(one, "abca")
    assert [node.sockets for node in three.nodes] == [one.nodes[0].sockets] * 3
    assert len({node.name for node in three.nodes}) == 3
    assert three.other_node == WAY
    present = present_plan(graph(), (0, 1, 2), "abca", three)
    assert [place.node for place in present.places] == [0, 1, 2, 0]
    assert across(one, "aa") is one
    assert across(MACHINE, "abc") is MACHINE


def test_workers_are_shared_out_over_the_nodes() -> None:
    assert [place.node for place in places_for(MACHINE, 3)] == [0, 0, 1]
    assert [place.node for place in places_for(MACHINE, 1)] == [0]
    assert len(places_for(MACHINE, 9)) == 9
