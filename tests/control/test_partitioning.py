"""A key graph is partitioned in another process as it would be here, and failures are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.control.partitioning import PartitioningFailedError, partition_aside
from tailrace.routing.deciding import tables_for
from tailrace.routing.homes import Home
from tailrace.routing.keygraph import key_graph
from tailrace.routing.pairs import PairCounts

HOMES = {"a": [Home(0, 0), Home(1, 1)], "b": [Home(0, 0), Home(1, 1)]}
PAIRS = [PairCounts("a", "b", {(i, (i * 7 + i % 3) % 40): 1.0 + i % 5 for i in range(40)}, 120.0)]


def test_the_other_process_finds_the_same_tables() -> None:
    assert tables_for(PAIRS, HOMES, solve=partition_aside) == tables_for(PAIRS, HOMES)


def test_what_goes_wrong_there_is_told_here() -> None:
    graph, _ = key_graph(PAIRS, HOMES, {})
    with pytest.raises(PartitioningFailedError, match=r"69 keys ended with code 1: (.|\n)*Type"):
        partition_aside(replace(graph, edges="none"))


def test_one_that_takes_too_long_is_given_up() -> None:
    graph, _ = key_graph(PAIRS, HOMES, {})
    with pytest.raises(PartitioningFailedError, match=r"not partitioned within 0\.0 s"):
        partition_aside(graph, most_s=0.0)
