"""Which column is the event time of a DataFrame's rows: found, or refused with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import pytest

import tailrace as tr
from tailrace.graph.model import Graph
from tailrace.spark.ordering import time_columns

COLUMNS = ["at", "key"]


class Visit(NamedTuple):
    key: Any
    at: Any


def timed(time: Callable[[Any], Any], stream: Any = None) -> Any:
    stream = tr.Topology().source([0], name="in") if stream is None else stream
    return stream.event_time(time, max_delay_s=0, name="time")


def graph_of(stream: Any) -> Graph:
    stream.sink(print)
    draft = stream._draft
    return Graph("test", tuple(draft.operators.values()), tuple(draft.streams))


@pytest.mark.parametrize(
    "time",
    [
        lambda row: row["at"],
        itemgetter("at"),
        lambda row: row["at"] / 1000,
        lambda row: 60 + 2 * row["at"].timestamp() - 5,
        lambda row: row["at"] // 1_000_000,
    ],
)
def test_a_function_that_reads_one_column_tells_it(time: Callable[[Any], Any]) -> None:
    assert time_columns(graph_of(timed(time)), "in", COLUMNS) == ["at"]


def test_the_only_column_is_the_record_itself() -> None:
    assert time_columns(graph_of(timed(lambda at: at)), "in", ["at"]) == ["at"]


def test_it_is_found_through_the_record_function_and_behind_filters() -> None:
    rows = tr.Topology().source([0], name="in").filter(lambda visit: visit.key)
    graph = graph_of(timed(lambda visit: visit.at, rows))
    assert time_columns(graph, "in", COLUMNS, lambda row: Visit(row["key"], row["at"])) == ["at"]


def test_without_event_time_no_order_is_needed() -> None:
    graph = graph_of(tr.Topology().source([0], name="in").map(str))
    assert time_columns(graph, "in", COLUMNS) == []


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (lambda rows: timed(lambda row: -1 * row["at"], rows), "does more than read a column"),
        (lambda rows: timed(lambda row: row["other"], rows), "does more than read a column"),
        (lambda rows: timed(lambda row: row["at"], rows.map(dict)), "records may have changed"),
        (
            lambda rows: timed(lambda row: row["at"], rows.shuffle()),
            "2 instances of 'in' send to each",
        ),
        (
            lambda rows: timed(lambda row: row["at"], rows).merge(
                rows.event_time(lambda row: row["key"], max_delay_s=0)
            ),
            r"different columns, \['at', 'key'\]",
        ),
    ],
)
def test_what_cannot_be_known_is_refused_with_the_remedy(
    stream: Callable[[Any], Any], why: str
) -> None:
    rows = tr.Topology().source([0], name="in", parallelism=2)
    with pytest.raises(tr.TopologyError, match=f"{why}.*order_by=<the column of event time>"):
        time_columns(graph_of(stream(rows)), "in", COLUMNS)
