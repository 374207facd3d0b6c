"""Plans: applied to a graph, refused when they do not fit, kept in a file."""

from dataclasses import replace
from pathlib import Path

import pytest

import tailrace as tr
from tailrace.graph.expand import chains
from tailrace.graph.model import Graph, Rule
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Place, cluster, server_a
from tailrace.plan.plan import (
    Plan,
    PlanError,
    apply,
    bound_to_cores,
    check,
    plan_for,
    plan_from_json,
    plan_to_json,
    with_parallelism,
)

PLACES = (Place(0, 0), Place(0, 0))


def words() -> Graph:
    """Sentences + parse, shuffled to split, by key to count + sink."""
    topology = tr.Topology("words")
    parsed = topology.source(["a b"], name="sentences").map(str.lower, name="parse")
    split = parsed.shuffle().flat_map(str.split, name="split", parallelism=2)
    counted = split.key_by().scan(lambda n, _: (n or 0) + 1, name="count", parallelism=2)
    counted.sink(print, name="sink")
    return topology.graph


def plan(**changes: object) -> Plan:
    made = plan_for(words(), PLACES, [0, 0, 1, 0, 1], scheduler="by hand", reason="a test")
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_plan_that_only_places_leaves_the_graph_as_it_is() -> None:
    graph = words()
    assert check(plan(), graph, PLACES) == graph


def test_a_plan_can_take_a_chain_apart_and_scale_it() -> None:
    apart = plan(
        parallelism={"sentences": 1, "parse": 3, "split": 1, "count": 2, "sink": 2},
        chains=(("sentences",), ("parse",), ("split",), ("count", "sink")),
        place_of=(0, 0, 1, 1, 0, 0, 1),
    )
    applied = check(apart, words())
    rules = {stream.target: stream.grouping.rule for stream in applied.streams}
    assert rules == {
        "parse": Rule.SHUFFLE,
        "split": Rule.SHUFFLE,
        "count": Rule.KEY,
        "sink": Rule.FORWARD,
    }
    assert wire(applied).instances == 7


def test_a_plan_can_fuse_what_was_shuffled() -> None:
    fused = plan(
        parallelism={"sentences": 2, "parse": 2, "split": 2, "count": 2, "sink": 2},
        chains=(("sentences", "parse", "split"), ("count", "sink")),
        place_of=(0, 1, 0, 1),
    )
    assert [chain.operators for chain in chains(check(fused, words()))] == list(fused.chains)


def test_a_keyed_stream_is_never_fused() -> None:
    fused = plan(chains=(("sentences", "parse"), ("split", "count", "sink")))
    with pytest.raises(PlanError, match="the plan fuses"):
        check(fused, words())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parallelism": {"sentences": 1}}, "no parallelism for \\['parse', 'split'"),
        ({"place_of": (0, 0)}, "places 2 instances; topology 'words' .* has 5"),
        ({"place_of": (0, 0, 1, 0, 2)}, "uses place 2; it has 2 places"),
        ({"core_of": (1,)}, "binds 1 places to cores; it has 2 places"),
        (
            {"parallelism": {"sentences": 0, "parse": 0, "split": 2, "count": 2, "sink": 2}},
            "parallelism of 'sentences' is 0",
        ),
        (
            {
                "parallelism": dict.fromkeys(
                    ["sentences", "parse", "split", "count", "sink", "x"], 1
                )
            },
            "names the operators \\['x'\\]",
        ),
    ],
)
def test_a_plan_that_does_not_fit_the_graph_is_refused(
    changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        check(plan(**changes), words())


def test_a_plan_for_other_workers_is_refused() -> None:
    with pytest.raises(PlanError, match="made for 2 workers; there are 3"):
        check(plan(), words(), [*PLACES, Place(0, 0)])
    other = "its worker 1 is on node 0, socket 0 with cores: 1, the one that there is on node 1"
    with pytest.raises(PlanError, match=other):
        check(plan(), words(), [Place(0, 0), Place(1, 0)])


def test_a_forward_that_cannot_fuse_goes_on_by_instance_while_it_can() -> None:
    topology = tr.Topology("merged")
    left = topology.source([1], name="left")
    left.merge(topology.source([2], name="right")).map(abs, name="abs").sink(print, name="sink")
    kept = plan_for(topology.graph, PLACES, [0, 0, 0], scheduler="by hand", reason="")
    assert apply(kept, topology.graph) == topology.graph
    wider = with_parallelism(topology.graph, {"abs": 2})
    assert {s.source: s.grouping.rule for s in wider.streams} == {
        "left": Rule.SHUFFLE,
        "right": Rule.SHUFFLE,
        "abs": Rule.FORWARD,
    }


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    made = plan(core_of=(3, None))
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


def test_a_file_that_is_no_plan_is_refused_with_what_is_wrong() -> None:
    saved = plan_to_json(plan())
    assert plan_from_json({key: saved[key] for key in saved if key != "core_of"}) == plan()
    with pytest.raises(PlanError, match="has no \\['chains'\\], and \\['chain'\\] mean nothing"):
        plan_from_json({("chain" if key == "chains" else key): saved[key] for key in saved})
    with pytest.raises(PlanError, match=r"no plan as .* 'nodes'"):
        plan_from_json({**saved, "places": [{"nodes": 0, "socket": 0}]})
    with pytest.raises(PlanError, match="a plan is a JSON object, not \\[1\\]"):
        plan_from_json([1])  # type: ignore[arg-type]


def test_workers_are_bound_to_cores_of_their_socket_while_there_are_enough() -> None:
    machine = cluster(2, sockets=2, cores=1)
    two = replace(plan(), places=(Place(0, 1), Place(1, 0)))
    assert bound_to_cores(two, machine).core_of == (1, 0)
    crowded = replace(plan(), places=(Place(0, 1), Place(0, 1)))
    assert bound_to_cores(crowded, machine).core_of == (None, None)
    sockets = replace(plan(), places=server_a().sockets()[:2])
    assert bound_to_cores(sockets, server_a()).core_of == (None, None)
