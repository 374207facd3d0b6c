"""What is asked of a topology when something fails, and what its sources need for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace import sources
from tailrace.connectors.journal import Journaled
from tailrace.runtime.guarantees import bound, check_guarantee
from tailrace.runtime.sink import Guarantee
from tailrace.runtime.source import Source


def graph_of(*made: tuple[str, Source]) -> Any:
    topology = tr.Topology()
    for name, source in made:
        topology.source(source, name=name).sink(print)
    return topology.graph


def test_exactly_once_is_refused_for_a_source_that_cannot_be_read_again() -> None:
    graph = graph_of(("numbers", sources.items([1])), ("calls", sources.listen(1)))
    with pytest.raises(tr.TopologyError, match=r"the source 'calls': Listen cannot .*journal=True"):
        check_guarantee(graph, "exactly once")
    others: list[Guarantee] = ["at least once", "at most once"]
    for wanted in others:
        check_guarantee(graph, wanted)


def test_exactly_once_goes_with_sources_that_rewind_or_have_a_journal() -> None:
    check_guarantee(
        graph_of(
            ("numbers", sources.items([1])),
            ("calls", sources.listen(1, journal=True)),
            ("talk", sources.socket("there", 1, journal=True)),
            ("own", sources.journaled(Source())),
        ),
        "exactly once",
    )


def test_an_unknown_guarantee_is_refused() -> None:
    with pytest.raises(tr.TopologyError, match="guarantee is 'some'; it must be one of"):
        check_guarantee(graph_of(("a", Source())), "some")  # type: ignore[arg-type]


def test_every_source_has_a_folder_of_its_own_below_that_of_the_checkpoints(tmp_path: Path) -> None:
    plain = sources.items([1])
    graph = graph_of(
        ("a b", sources.listen(1, journal=True)), ("a/b", sources.listen(1, journal=True))
    )
    found = [one.logic.source for one in bound(graph, f"{tmp_path}/").operators if one.is_source]
    assert all(isinstance(one, Journaled) for one in found)
    assert [one.folder for one in found] == [
        f"{tmp_path}/sources/a%20b",
        f"{tmp_path}/sources/a%2Fb",
    ]
    numbers = bound(graph_of(("numbers", plain)), str(tmp_path)).operator("numbers")
    assert numbers.logic.source is plain


@pytest.mark.parametrize(
    ("source", "rewinds"),
    [
        (sources.items([1]), True),
        (sources.lines("x"), True),
        (sources.lines("x", follow=True), True),
        (sources.ndjson("x"), True),
        (sources.parquet("x"), True),
        (sources.rate(1), True),
        (sources.poisson(1, str), True),
        (sources.bursts(1, 1.0, [1, 2]), True),
        (sources.unpaced({1, 2}), False),
        (sources.socket("x", 1), False),
        (sources.socket("x", 1, journal=True), True),
        (sources.listen(1), False),
        (sources.listen(1, journal=True), True),
    ],
)
def test_sources_say_whether_they_can_be_read_again(source: Source, rewinds: bool) -> None:
    assert source.rewinds is rewinds
