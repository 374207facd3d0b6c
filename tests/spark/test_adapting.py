"""Jobs on a real, local Spark that find a better plan by what they have seen, and go over to it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.apps import word_count
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Cost, Crossing, cluster

PATIENCE_S = 60.0
MACHINE = cluster(1, cores=4, other_node=Crossing(Cost(50_000.0), Cost(50_000.0)))
"""Whose like two hosts are: to cross between them costs far more than anything else."""


def counted(folder: Path, count: int | None = None) -> tuple[tr.Topology, tuple[int, ...]]:
    """Words, and the placement by which every record goes to the other of two workers."""
    source = tr.sources.rate(2_000, word_count.sentences(), count=count)
    topology, counts = word_count.word_count(source)
    counts.shuffle().sink(tr.sinks.ndjson(folder, overwrite=True), parallelism=1)
    chains = wire(topology.graph).chains
    worst = [at % 2 for at, chain in enumerate(chains) for _ in range(chain.parallelism)]
    return topology, tuple(worst)


def test_a_job_in_the_worst_placement_is_moved_and_loses_nothing(
    spark: Any, tmp_path: Path
) -> None:
    topology, worst = counted(tmp_path / "out", count=20_000)
    job = topology.start(
        spark,
        placement=worst,
        scheduler="consolidate",
        adapt="300 ms",
        machine=MACHINE,
        node="worker",
    )
    deadline = time.monotonic() + PATIENCE_S
    while job.is_active and "done" not in [one.status for one in job.last_progress.changes]:
        assert time.monotonic() < deadline, f"never moved: {job.last_progress.thought}"
        time.sleep(0.01)
    placement = job.placement
    assert placement != worst
    assert job.replan("consolidate", machine=MACHINE).gain == pytest.approx(0.0, abs=0.2)
    assert job.await_termination(PATIENCE_S)
    paths = (tmp_path / "out").glob("part-*")
    lines = [line for path in paths for line in path.read_text().splitlines()]
    make = word_count.sentences()
    exact = word_count.expected(map(make, range(20_000)))
    assert Counter(lines) == Counter(f'["{word}",{n}]' for word, n in exact)


def test_without_adapt_a_scheduler_and_a_placement_contradict_each_other(
    spark: Any, tmp_path: Path
) -> None:
    topology, worst = counted(tmp_path)
    with pytest.raises(ValueError, match="placement and scheduler were given; one says who runs"):
        topology.start(spark, placement=worst, scheduler="consolidate")


def test_a_scheduler_that_does_not_exist_is_refused_beside_a_placement(
    spark: Any, tmp_path: Path
) -> None:
    topology, worst = counted(tmp_path)
    with pytest.raises(ValueError, match="'best'"):
        topology.start(spark, placement=worst, scheduler="best", adapt="1 s")
