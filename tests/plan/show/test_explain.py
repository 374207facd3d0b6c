"""Plans in words and pictures."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import tailrace as tr
from planner_parts.briskstream import linear_road
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Cost, Crossing, Machine, cluster, server_a
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import Plan, PlanError, plan_for
from tailrace.plan.show.explain import explain, explained
from tailrace.plan.show.picture import picture

MACHINE = cluster(2, cores=1, link_bits_per_s=8e6, other_node=Crossing(Cost(100), Cost(300)))


def words() -> Graph:
    topology = tr.Topology("words & <more>")
    split = topology.source(["a b"], name="sentences").shuffle().flat_map(str.split, name="split")
    counted = split.key_by().scan(lambda n, _: (n or 0) + 1, name="count", parallelism=2)
    counted.sink(print, name="sink")
    return topology.graph


def profile(split_ns: float = 600.0) -> Profile:
    return Profile(
        {
            "sentences": OperatorProfile(Work(100.0), {"main": 20.0}),
            "split": OperatorProfile(Work(split_ns, {"main": 2.0}), {"main": 1.0}),
            "count": OperatorProfile(Work(200.0), {"main": 10.0}),
            "sink": OperatorProfile(Work(50.0)),
        }
    )


def plan(place_of: list[int], machine: Machine = MACHINE) -> Plan:
    places = machine.workers()
    return plan_for(words(), places, place_of, scheduler="by hand", reason="for a test")


def test_it_says_who_runs_where_and_how_much() -> None:
    text = explain(words(), plan([0, 0, 0, 1]), profile(), MACHINE)
    assert "plan of 'by hand', 4 instances on 2 workers of 2 nodes" in text
    assert "for a test" in text
    first, second = text.split("\nnode 1\n")
    assert re.search(r"node 0\n  worker 0 \(socket 0\): 100% busy", first)
    assert "split " in first
    assert "count + sink (1 of 2)" in first.split("node 0\n")[1]
    assert "count + sink (2 of 2)" in second


def test_a_full_worker_is_the_bottleneck_with_those_who_share_it() -> None:
    text = explain(words(), plan([0, 0, 0, 1]), profile(), MACHINE)
    assert "limited by  worker 0, which is full" in text
    assert "shared by split" in text
    assert "worker 1 would have room" in text


def test_a_full_instance_says_what_its_time_goes_to() -> None:
    machine = replace(cluster(1, cores=4), same_socket=Crossing(receiver=Cost(400)))
    spread = plan([0, 1, 2, 3], machine)
    told = explain(words(), spread, profile(), machine)
    assert "'split'" in told
    assert "1,000 ns on a record: 60% work, 40% sending and fetching" in told
    assert "more instances of 'split' would help" in told


def test_an_instance_that_mostly_fetches_should_be_nearer() -> None:
    machine = replace(cluster(1, cores=4), same_socket=Crossing(receiver=Cost(4000)))
    assert "a place nearer" in explain(words(), plan([0, 1, 2, 3], machine), profile(), machine)


def test_a_full_link_is_named() -> None:
    narrow = replace(MACHINE, link_bytes_per_s=1000.0)
    told = explain(words(), plan([0, 1, 1, 1]), profile(), narrow)
    assert re.search(r"limited by  the link (out of node 0|into node 1), which is full", told)
    assert "should cross it less often" in told


def test_when_all_keep_up_nothing_limits() -> None:
    told = explain(words(), plan([0, 0, 0, 1]), profile(), MACHINE, external_rate=10.0)
    assert "expected    10 records/s from the sources, 20 records/s at the sinks\n" in told
    assert "nothing: everything keeps up" in told


def test_without_a_rate_of_arrival_the_rates_are_the_most_that_the_plan_sustains() -> None:
    most = (
        r"at most [\d,]+ records/s from the sources, .* at the sinks, however fast records arrive"
    )
    assert re.search(
        f"expected    {most}\n", explain(words(), plan([0, 0, 0, 1]), profile(), MACHINE)
    )
    drawn = picture(words(), plan([0, 0, 0, 1]), profile(), MACHINE)
    assert re.search(rf"<p>Expected: {most}\.", drawn)


def test_traffic_between_workers_is_listed() -> None:
    text = explain(words(), plan([0, 0, 0, 1]), profile(), MACHINE, external_rate=1000.0)
    assert re.search(r"worker 0 -> worker 1\s+1,000 records/s\s+0.00 MB/s  to another node", text)


def test_a_plan_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="places 3 instances"):
        explain(words(), replace(plan([0, 0, 0, 1]), place_of=(0, 0, 0)), profile(), MACHINE)


def test_instances_that_are_alike_are_told_together() -> None:
    graph, numbers = linear_road()
    machine = server_a(2)
    graph = replace(
        graph, operators=tuple(replace(operator, parallelism=3) for operator in graph.operators)
    )
    many = plan_for(
        graph,
        machine.sockets(),
        [i % 2 for i in range(36)],
        scheduler="round robin",
        reason="",
    )
    text = explain(graph, many, numbers, machine)
    assert "socket 0 (socket 0): " in text
    assert "of 18 cores busy" in text
    assert re.search(r"toll_notify x 2 .* each", text)


# ---- the picture ----


def drawing(page: str) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", page, re.DOTALL)
    assert found
    return ElementTree.fromstring(found.group())


def test_the_picture_stands_alone() -> None:
    page = picture(words(), plan([0, 0, 0, 1]), profile(), MACHINE)
    assert "<script" not in page
    assert re.findall(r"https?://[^\"]*", page) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in page
    assert "words &amp; &lt;more&gt;" in page
    assert "<more>" not in page


def test_every_place_and_instance_is_drawn() -> None:
    root = drawing(picture(words(), plan([0, 0, 0, 1]), profile(), MACHINE))
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
    assert {"node 0", "node 1", "worker 0", "worker 1", "split", "sentences"} <= set(texts)
    assert texts.count("count + sink") == 2


def test_lines_are_as_wide_as_the_traffic() -> None:
    three = cluster(3, cores=1)
    uneven = plan([0, 1, 1, 2], three)
    told = explained(words(), uneven, profile(), three)
    root = drawing(picture(words(), uneven, profile(), three))
    drawn = sorted(
        float(element.attrib["stroke-width"])
        for element in root.iter()
        if element.tag.endswith("}path")
    )
    sizes = sorted(size for (p, q), (_, size) in told.prediction.traffic.items() if p != q)
    assert len(drawn) == len(sizes) == 2
    assert drawn[1] / drawn[0] == pytest.approx(sizes[1] / sizes[0], rel=0.1)


def test_places_do_not_overlap() -> None:
    four = cluster(1, cores=4)
    root = drawing(picture(words(), plan([0, 0, 0, 3], four), profile(), four))
    boxes = [
        [float(element.attrib[name]) for name in ("x", "y", "width", "height")]
        for element in root.iter()
        if element.attrib.get("class") == "box"
    ]
    assert len(boxes) == 4
    for i, (x, y, width, height) in enumerate(boxes):
        for left, top, _, _ in boxes[:i]:
            assert abs(x - left) >= width or abs(y - top) >= height
