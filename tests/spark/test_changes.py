"""Running jobs on a real, local Spark that are changed while records flow: results stay exact."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.plan.model.machine import Place
from tailrace.plan.plan import Plan, plan_for
from tailrace.routing.tables import Table, Tables
from tailrace.spark.job import Job

PATIENCE_S = 60.0
RECORDS, KEYS, WIDTH = 40_000, 101, 1000
SUMS = Counter[int]()
for n in range(RECORDS):
    SUMS[n % KEYS] += n
COUNTS = Counter((n % KEYS, n // WIDTH) for n in range(RECORDS))
ENDED = {"done", "failed", "undone"}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.001)


def lines(folder: Path) -> list[Any]:
    return [
        json.loads(line) for path in folder.glob("part-*") for line in path.read_text().splitlines()
    ]


class Summed:
    """Sums by key, and counts by key and window, which go slowly until they are let go."""

    def __init__(self, folder: Path) -> None:
        self.gate = folder / "go on"
        self.sums, self.counts = folder / "sums", folder / "counts"
        self.topology = tr.Topology("summed")
        gate = self.gate

        def slowly(n: int) -> bool:
            if n % 4 == 0 and not gate.exists():
                time.sleep(0.001)
            return True

        numbers = self.topology.source(range(RECORDS), parallelism=2, name="numbers")
        timed = numbers.event_time(lambda n: n, max_delay_s=5 * WIDTH, parallelism=2)
        steps = timed.shuffle().filter(slowly, parallelism=2, name="step")
        keyed = steps.key_by(lambda n: n % KEYS)
        sums = keyed.fold(lambda total, n: (total or 0) + n, parallelism=2, name="sum")
        sums.shuffle().sink(tr.sinks.ndjson(self.sums, every_s=None, overwrite=True), name="sums")
        windows = keyed.window(tr.tumbling(WIDTH))
        counts = windows.aggregate(lambda count, _: count + 1, 0, parallelism=2, name="count")
        rows = counts.shuffle().map(lambda one: (one.key, one.start, one.value), name="row")
        rows.sink(tr.sinks.ndjson(self.counts, every_s=None, overwrite=True), name="counts")

    def check(self, job: Job) -> None:
        """Let it run to its end: everything is there, once."""
        self.gate.touch()
        assert job.await_termination(PATIENCE_S)
        sums = lines(self.sums)
        assert len(sums) == len(dict(sums))
        assert dict(sums) == SUMS
        counts = lines(self.counts)
        found = Counter({(key, int(start) // WIDTH): count for key, start, count in counts})
        assert len(counts) == len(found)
        assert found == COUNTS
        assert job.last_progress.balanced


def flows(job: Job) -> None:
    """Wait until more records have gone through the job than by now."""
    before = job.last_progress.operators["step"].records_in
    until(lambda: job.last_progress.operators["step"].records_in > before, "records flow")


@pytest.fixture
def start(spark: Any) -> Iterator[Callable[..., Job]]:
    """Starts jobs of two workers; afterwards they are over."""
    jobs: list[Job] = []

    def begin(topology: tr.Topology, **options: Any) -> Job:
        job = topology.start(spark, **{"workers": 2, "progress_s": 0.05, **options})
        jobs.append(job)
        assert job.await_running(PATIENCE_S)
        return job

    yield begin
    for job in jobs:
        job.stop(drain=False)
        assert not job.is_active


def plan_like(job: Job, place_of: tuple[int, ...]) -> Plan:
    """What runs, elsewhere."""
    places = tuple(Place(0, 0) for _ in range(max(place_of) + 1))
    graph = job.deployment.graph
    return plan_for(graph, places, place_of, scheduler="by hand", reason="a test")


def where(job: Job, operator: str) -> list[int]:
    chain = next(chain for chain in job.chains if operator in chain.operators)
    return [job.placement[instance] for instance in chain.instances]


@pytest.mark.parametrize("node", ["memory", "worker"])
@pytest.mark.parametrize("kept", [False, True], ids=["plain", "checkpoints"])
def test_results_stay_exact_whatever_changes(
    start: Callable[..., Job], tmp_path: Path, kept: bool, node: str
) -> None:
    summed = Summed(tmp_path)
    checkpoint = {"checkpoint": tmp_path / "state", "checkpoint_s": 0.05} if kept else {}
    job = start(summed.topology, node=node, **checkpoint)
    flows(job)

    for number in (3, 1, 2):
        change = job.rescale(sum=number, count=number)
        assert change.await_done(PATIENCE_S)
        assert change.status == "done"
        assert (len(where(job, "sum")), len(where(job, "count"))) == (number, number)
        flows(job)

    for operator in ("sum", "count", "numbers"):
        rank = 1 - where(job, operator)[0]
        change = job.move({(operator, 0): rank})
        assert change.await_done(PATIENCE_S)
        assert where(job, operator)[0] == rank
        flows(job)

    keys: dict[Hashable, int] = {key: (key + 1) % 2 for key in range(KEYS)}
    change = job.apply(Tables({name: Table(2, keys) for name in ("sum", "count")}))
    assert change.await_done(PATIENCE_S)
    assert change.moved_keys > 0
    flows(job)

    tied = () if kept else ("sums", "counts", "row")  # files would be written over
    place_of = tuple(
        worker if one.operator in tied else 1 - worker
        for one, worker in zip(job.deployment.wiring.ids, job.placement, strict=True)
    )
    assert job.apply(plan_like(job, place_of)).await_done(PATIENCE_S)
    assert job.placement == place_of
    flows(job)

    job.scale_workers(3)
    assert 2 in job.placement
    flows(job)
    job.scale_workers(2)
    assert set(job.placement) == {0, 1}
    flows(job)

    assert job.last_progress.restarts == 0
    assert {change.status for change in job.last_progress.changes} == {"done"}
    summed.check(job)
