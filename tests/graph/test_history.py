"""Cutting a topology down to what a history run needs."""

from __future__ import annotations

import pytest

import tailrace as tr
from tailrace.graph.history import cut, ends
from tailrace.graph.model import OnError
from tailrace.graph.validate import validate


def forked() -> tr.Topology:
    topology = tr.Topology()
    left, right = topology.source([1], name="left"), topology.source([2], name="right")
    both = left.merge(right).map(abs, name="abs", on_error="dead letter")
    both.sink(print, name="out")
    both.dead_letters().sink(print, name="dead")
    right.map(abs, name="aside").sink(print, name="side")
    return topology


def names(graph: tr.Topology, source: str, sink: str) -> set[str]:
    return {operator.name for operator in cut(graph.graph, source, sink).operators}


def test_only_what_leads_to_the_sink_is_kept() -> None:
    assert names(forked(), "left", "out") == {"left", "right", "abs", "out"}
    assert names(forked(), "right", "side") == {"right", "aside", "side"}


def test_dead_letters_that_nobody_reads_any_more_are_skipped() -> None:
    graph = cut(forked().graph, "left", "out")
    validate(graph)
    assert graph.operator("abs").on_error is OnError.SKIP
    assert cut(forked().graph, "left", "dead").operator("abs").on_error is OnError.DEAD_LETTER


def test_a_source_that_does_not_lead_to_the_sink_is_refused() -> None:
    with pytest.raises(
        tr.TopologyError, match="no stream leads from the source 'left' to the sink"
    ):
        cut(forked().graph, "left", "side")


def test_the_ends_are_the_only_ones_or_must_be_named() -> None:
    graph = forked().graph
    with pytest.raises(tr.TopologyError, match=r"has 2 sources, \['left', 'right'\]: say source="):
        ends(graph, None, "out")
    with pytest.raises(tr.TopologyError, match=r"there is no sink 'abs'; there are \['out', "):
        ends(graph, "left", "abs")
    topology = tr.Topology()
    topology.source([1]).sink(print)
    assert ends(topology.graph, None, None) == ("source", "sink")
