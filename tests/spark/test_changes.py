"""Running jobs on a real, local Spark that are changed while records flow: results stay exact."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.control.joining import ScaleError
from tailrace.graph.wiring import wire
from tailrace.plan.model.machine import Place
from tailrace.plan.plan import Plan, apply, plan_for
from tailrace.routing.tables import Table, Tables
from tailrace.spark.changes import Change, ChangeError
from tailrace.spark.job import Job

PATIENCE_S = 60.0
RECORDS, KEYS, WIDTH = 60_000, 101, 1000
SUMS = Counter[int]()
for n in range(RECORDS):
    SUMS[n % KEYS] += n
COUNTS = Counter((n % KEYS, n // WIDTH) for n in range(RECORDS))
ENDED = {"done", "failed", "undone"}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


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
            if n % 2 == 0 and not gate.exists():
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
    """Wait until records flow, or it is over; what has gone back counts anew."""
    before = job.last_progress.operators["step"].records_in

    def flow() -> bool:
        return job.last_progress.operators["step"].records_in not in (0, before)

    until(lambda: flow() or not job.is_active, "records flow")


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


def test_operators_run_fused_or_apart_as_plans_say(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    summed = Summed(tmp_path)
    job = start(summed.topology, checkpoint=tmp_path / "state", checkpoint_s=0.05)
    flows(job)
    fused = plan_like(job, job.placement)
    timed = fused.chains[0]
    assert timed[0] == "numbers"
    chains = (timed, *((name,) for chain in fused.chains[1:] for name in chain))
    count = sum(job.deployment.graph.operator(one).parallelism for one, *_ in chains)
    apart = replace(fused, chains=chains, place_of=tuple(i % 2 for i in range(count)))
    for plan in (apart, fused, apart):
        assert job.apply(plan).await_done(PATIENCE_S)
        assert tuple(chain.operators for chain in job.chains) == plan.chains
        assert job.placement == plan.place_of
        flows(job)
        assert job.rescale(sum=3).await_done(PATIENCE_S)
        assert job.rescale(sum=2).await_done(PATIENCE_S)
        flows(job)
    kill(job.workers[0]["pid"])
    until(lambda: job.last_progress.restarts == 1, "a worker is lost")
    until(lambda: job.status == "running", "all workers run")
    assert tuple(chain.operators for chain in job.chains) == chains
    summed.check(job)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def some_change(job: Job, chance: random.Random) -> Change:
    kind = chance.choice(["rescale", "move", "tables"])
    if kind == "rescale":
        return job.rescale(sum=chance.randint(1, 3), count=chance.randint(1, 3))
    if kind == "move":
        operator = chance.choice(["numbers", "step", "sum", "count", "sums", "row"])
        return job.move({(operator, 0): 1 - where(job, operator)[0]})
    counts = {name: len(where(job, name)) for name in ("sum", "count")}
    return job.apply(
        Tables(
            {
                name: Table(number, {key: chance.randrange(number) for key in range(KEYS)})
                for name, number in counts.items()
            }
        )
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_may_be_killed_while_the_job_changes(
    start: Callable[..., Job], tmp_path: Path, seed: int
) -> None:
    """Every change is done, or failed, or undone; the job goes on as it then says that it is."""
    chance = random.Random(seed)
    summed = Summed(tmp_path)
    job = start(summed.topology, checkpoint=tmp_path / "state", checkpoint_s=0.05, restarts=100)
    ends: list[str] = []
    for _ in range(6):
        until(lambda: job.status == "running" and len(job.workers) == 2, "all workers run")
        victim = chance.choice(job.workers)["pid"]
        killer = threading.Timer(chance.uniform(0.0, 0.06), kill, [victim])
        killer.start()
        for _ in range(3):
            change = some_change(job, chance)
            with suppress(ChangeError):
                assert change.await_done(PATIENCE_S)
            assert change.status in ENDED
            assert bool(change.error) == (change.status != "done")
            ends.append(change.status)
        killer.join()
        until(lambda gone=victim: gone not in {one["pid"] for one in job.workers}, "another")  # type: ignore[misc]
    until(lambda: job.status == "running", "all workers run")
    flows(job)
    assert job.rescale(sum=2, count=2).await_done(PATIENCE_S)
    assert len(where(job, "sum")) == 2
    assert "done" in ends
    assert job.last_progress.restarts >= 6
    summed.check(job)


def test_a_worker_may_be_killed_while_instances_spread_over_more_or_fewer(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    chance = random.Random(3)
    summed = Summed(tmp_path)
    job = start(summed.topology, checkpoint=tmp_path / "state", checkpoint_s=0.05, restarts=100)
    for workers in (3, 2, 3, 2):
        killer = threading.Timer(chance.uniform(0.0, 0.4), kill, [job.workers[0]["pid"]])
        killer.start()
        with suppress(ScaleError):  # gone back to when something ran there
            job.scale_workers(workers)
        killer.join()
        until(lambda: job.status == "running", "all workers run")
        flows(job)
    summed.check(job)


def test_what_cannot_be_is_refused_and_the_job_goes_on(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    summed = Summed(tmp_path)
    job = start(summed.topology)
    placement = job.placement
    with pytest.raises(ValueError, match=r"there is no operator 'nothing'; there are \[.*'sum'"):
        job.rescale(nothing=2)
    for count in (0, -1, 1.5, "2", True):
        with pytest.raises(
            (ValueError, TypeError), match=rf"parallelism of 'sum' is {count!r}; it must be"
        ):
            job.rescale(sum=count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no worker 7; there are 2"):
        job.move({("sum", 0): 7})
    with pytest.raises(ValueError, match=r"there is no instance sum\[9\]"):
        job.move({("sum", 9): 0})
    with pytest.raises(ValueError, match="table of keys for 'sum' is for 3 instances; there are 2"):
        job.apply(Tables({"sum": Table(3, {1: 2})}))
    with pytest.raises(ValueError, match="'step', which is no operator that is reached by key"):
        job.apply(Tables({"step": Table(2, {1: 1})}))
    plan = plan_like(job, placement)
    chains = tuple((name,) for chain in plan.chains for name in chain)
    count = sum(job.deployment.graph.operator(one).parallelism for (one,) in chains)
    timed, *rest = plan.chains
    apart = replace(plan, chains=(timed, *((name,) for chain in rest for name in chain)))
    apart = replace(apart, place_of=(0,) * len(wire(apply(apart, job.deployment.graph)).ids))
    with pytest.raises(ValueError, match=r"the sink '\w+' cannot be moved.* with checkpoint="):
        job.apply(apart)
    with pytest.raises(ValueError, match="'event_time' cannot be fused with 'numbers', nor taken"):
        job.apply(replace(plan, chains=chains, place_of=(0,) * count))
    with pytest.raises(ValueError, match=r"the sink 'sums' cannot be moved.* with checkpoint="):
        job.move({("sums", 0): 1 - where(job, "sums")[0]})
    with pytest.raises(ValueError, match=r"the sink 'sums' cannot be moved.* with checkpoint="):
        job.rescale(sums=3)
    assert job.last_progress.changes == ()
    assert job.placement == placement
    flows(job)
    stopped = job.workers[0]["pid"]
    os.kill(stopped, signal.SIGSTOP)  # it prepares nothing
    try:
        first = job.rescale(sum=3)
        with pytest.raises(RuntimeError, match="change 1 is in progress; wait for that"):
            job.rescale(count=3)
        assert not first.await_done(0.01)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert first.await_done(PATIENCE_S)
    assert job.rescale(count=3).await_done(PATIENCE_S)
    summed.check(job)
    with pytest.raises(RuntimeError, match="the job"):
        job.rescale(sum=2)


class Opening(tr.Operator):
    """Cannot be opened where a file says so."""

    def __init__(self, trouble: Path) -> None:
        self.trouble = trouble

    def open(self) -> None:
        if self.trouble.exists():
            raise OSError("no such device")

    def process(self, n: int) -> None:
        self.state = (self.state or 0) + n

    def finish_key(self) -> None:
        self.emit((self.key, self.state))


@pytest.mark.parametrize("kept", [False, True], ids=["plain", "checkpoints"])
def test_an_instance_that_cannot_be_opened_fails_the_change_and_not_the_job(
    start: Callable[..., Job], tmp_path: Path, kept: bool
) -> None:
    gate, trouble = tmp_path / "go on", tmp_path / "trouble"

    topology = tr.Topology()
    source = topology.source(range(10_000), name="numbers")

    def slowly(n: int) -> bool:
        if not gate.exists():
            time.sleep(0.001)
        return True

    steps = source.shuffle().filter(slowly, name="step").key_by(lambda n: n % KEYS)
    sums = steps.process(Opening(trouble), parallelism=2, name="sum")
    sums.shuffle().sink(tr.sinks.ndjson(tmp_path / "out", every_s=None), parallelism=1)
    job = start(topology, **({"checkpoint": tmp_path / "state"} if kept else {}))
    flows(job)
    trouble.touch()
    for change in (job.rescale(sum=3), None):
        change = change or job.move({("sum", 0): 1 - where(job, "sum")[0]})
        with pytest.raises(ChangeError, match=r"has failed: worker \d cannot.*no such device"):
            change.await_done(PATIENCE_S)
        assert change.status == "failed"
        flows(job)
    trouble.unlink()
    assert job.rescale(sum=3).await_done(PATIENCE_S)
    gate.touch()
    assert job.await_termination(PATIENCE_S)
    exact = Counter[int]()
    for n in range(10_000):
        exact[n % KEYS] += n
    assert dict(lines(tmp_path / "out")) == exact
    assert job.last_progress.restarts == 0


def test_what_a_socket_says_is_heard_where_it_was(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        topology = tr.Topology()
        heard = topology.source(
            tr.sources.socket("127.0.0.1", server.getsockname()[1], reconnect=False), name="heard"
        )
        heard.shuffle().filter(bool, name="step").sink(
            tr.sinks.ndjson(tmp_path / "out"), parallelism=1
        )
        job = start(topology)
        connection, _ = server.accept()
        with connection:
            with pytest.raises(ValueError, match="the source 'heard' cannot be moved"):
                job.move({("heard", 0): 1 - where(job, "heard")[0]})
            with pytest.raises(ValueError, match="the source 'heard' cannot be moved"):
                job.rescale(heard=2)
            connection.sendall(b"one\ntwo\n")
        assert job.await_termination(PATIENCE_S)
    assert sorted(lines(tmp_path / "out")) == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adapt": "soon"}, "adapt is 'soon'; it must be like \"30 s\""),
        ({"adapt": "3 weeks"}, "adapt is '3 weeks'"),
        ({"adapt": 0}, "adapt is 0"),
        ({"adapt": -1.0}, "adapt is -1"),
        ({"elastic": (0, 2)}, r"elastic is \(0, 2\); it must be"),
        ({"elastic": (3, 2)}, r"elastic is \(3, 2\); it must be"),
        ({"elastic": (1.5, 2)}, r"elastic is \(1.5, 2\); it must be"),
        ({"elastic": (1,)}, r"elastic is \(1,\); it must be"),
        ({"elastic": 2}, "elastic is 2; it must be"),
    ],
)
def test_what_a_job_cannot_follow_is_refused_before_it_starts(
    spark: Any, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Summed(tmp_path).topology.start(spark, **options)
