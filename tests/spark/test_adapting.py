"""Jobs on a real, local Spark that find a better plan by what they have seen, and go over to it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.adapt.elastic import ElasticPolicy, Size, Use, by_use
from tailrace.apps import word_count
from tailrace.control.progress.summary import (
    OperatorProgress,
    Summary,
    WorkerProgress,
    summarise,
)
from tailrace.control.roster import Roster
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Cost, Crossing, cluster
from tailrace.spark.adapting import use_of
from tailrace.spark.job import Job

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


def results(folder: Path) -> Counter[str]:
    paths = folder.glob("part-*")
    return Counter(line for path in paths for line in path.read_text().splitlines())


def exact(count: int) -> Counter[str]:
    expected = word_count.expected(map(word_count.sentences(), range(count)))
    return Counter(f'["{word}",{n}]' for word, n in expected)


def await_workers(job: Job, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(job.workers) != count:
        assert job.is_active and time.monotonic() < deadline, job.last_progress.thought
        time.sleep(0.01)


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
    assert results(tmp_path / "out") == exact(20_000)


def test_workers_follow_a_policy_of_ones_own_and_nothing_is_lost(
    spark: Any, tmp_path: Path
) -> None:
    needed = [2]

    def size(use: Use, rate: float) -> Size:
        return Size(needed[0], {"split": needed[0]})

    topology, _ = counted(tmp_path / "out", count=20_000)
    policy = ElasticPolicy(1, 2, sizing=size, up_s=0.1, down_s=0.2)
    job = topology.start(spark, workers=1, elastic=policy)
    await_workers(job, 2)
    needed[0] = 1
    await_workers(job, 1)
    assert job.await_termination(PATIENCE_S)
    assert results(tmp_path / "out") == exact(20_000)


def test_an_operator_that_waits_is_busy_and_a_worker_that_spins_is_not() -> None:
    topology = tr.Topology("calls")
    topology.source([1], name="numbers").map(abs, name="call").sink(print, name="out")
    nothing = summarise(Roster(1), wire(topology.graph))

    def told(at_s: int, records: int) -> Summary:
        us = {"numbers": 300.0, "call": 900.0, "out": 0.0}
        return replace(
            nothing,
            at_ns=at_s * 10**9,
            emitted={"numbers": records},
            operators={
                name: OperatorProgress(records, 0, 0, 0, one, one, one) for name, one in us.items()
            },
            workers={0: WorkerProgress(records * 3e-4, 0.0, 0.0, spun_s=records * 2e-4)},
        )

    use = use_of(told(1, 1_000), told(2, 2_000))
    assert use is not None
    assert use.rate == 1_000
    assert use.cpu == pytest.approx(0.3)
    assert use.cores == pytest.approx({"numbers": 0.025, "call": 0.9, "out": 0.0})
    assert by_use(0.8)(use, use.rate).workers == 2


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
