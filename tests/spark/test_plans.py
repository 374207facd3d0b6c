"""Jobs that obey a plan, on a real, local Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.cli.command import main
from tailrace.plan.model.machine import Machine, Place, cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import Plan, PlanError, plan_for
from tailrace.planner.calibrate import cache_path
from tailrace.planner.detect import detect
from tailrace.spark.job import JobFailedError

PATIENCE_S = 60.0
ONE_NODE = cluster(1, cores=4)
COSTS = Profile(
    {
        "numbers": OperatorProfile(Work(100.0)),
        "double": OperatorProfile(Work(900.0)),
        "out": OperatorProfile(Work(100.0)),
    }
)


class Affinity(tr.Sink):
    """Writes the worker's pid and cores into a file of its own, with each record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, records: Iterator[Any]) -> None:
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        with (self.folder / str(os.getpid())).open("a") as file:
            file.writelines(f"{record} {cores}\n" for record in records)


def doubled(folder: Path, count: int = 1000) -> tr.Topology:
    topology = tr.Topology("doubled")
    numbers = topology.source(range(count), name="numbers").shuffle()
    numbers.map(lambda n: 2 * n, name="double").shuffle().sink(Affinity(folder), name="out")
    return topology


def written(folder: Path) -> tuple[list[int], set[str]]:
    """The records, and the sets of cores."""
    lines = [line.split() for path in folder.iterdir() for line in path.read_text().splitlines()]
    return sorted(int(record) for record, _ in lines), {cores for _, cores in lines}


def placed(topology: tr.Topology, place_of: tuple[int, ...], *cores: int | None) -> Plan:
    places = tuple(Place(0, 0) for _ in range(max(place_of) + 1))
    plan = plan_for(topology.graph, places, place_of, scheduler="by hand", reason="a test")
    return Plan(**{**vars(plan), "core_of": cores})


def test_a_scheduler_replicates_the_busy_operator_and_keeps_the_source(
    spark: Any, tmp_path: Path
) -> None:
    job = doubled(tmp_path).start(
        spark, workers=3, scheduler="rlas", profile=COSTS, machine=bindless(ONE_NODE)
    )
    job.await_termination(PATIENCE_S)
    assert job.plan is not None
    assert job.plan.scheduler == "rlas"
    parallelism = {chain.label: chain.parallelism for chain in job.chains}
    assert parallelism["numbers"] == 1
    assert parallelism["double"] > 1
    assert job.placement == job.plan.place_of
    assert written(tmp_path)[0] == [2 * n for n in range(1000)]


def test_for_a_rate_no_more_workers_start_than_sustain_it(spark: Any, tmp_path: Path) -> None:
    job = doubled(tmp_path).start(
        spark, workers=3, rate=100.0, profile=COSTS, machine=bindless(ONE_NODE)
    )
    job.await_termination(PATIENCE_S)
    assert job.plan is not None
    assert job.plan.scheduler == "auto"
    assert len(job.workers) == len(job.plan.places) == 1
    assert written(tmp_path)[0] == [2 * n for n in range(1000)]
    with pytest.raises(ValueError, match="rate and plan were given"):
        doubled(tmp_path).start(spark, rate=100.0, plan=job.plan)


def bindless(machine: Machine) -> Machine:
    """The machine with too few cores to bind three workers: this one may have less than it says."""
    (node,) = machine.nodes
    (socket,) = node.sockets
    fewer = type(socket)(socket.cores[:2])
    return Machine(machine.name, (type(node)(node.name, (fewer,), node.distances),))


def test_what_a_scheduler_needs_is_measured(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, saved = tmp_path / "machine.json", tmp_path / "out"
    bindless(ONE_NODE).save(machine)
    saved.mkdir()
    job = doubled(saved).start(spark, workers=3, scheduler="consolidate", machine=machine)
    job.await_termination(PATIENCE_S)
    assert "measuring the operators of 'doubled'" in capsys.readouterr().err
    assert written(saved)[0] == [2 * n for n in range(1000)]


def test_a_saved_plan_is_obeyed(spark: Any, tmp_path: Path) -> None:
    topology, path, out = doubled(tmp_path / "out"), tmp_path / "plan.json", tmp_path / "out"
    out.mkdir()
    plan = placed(topology, (1, 0, 1))
    fused = {**vars(plan), "chains": (("numbers", "double"), ("out",)), "place_of": (1, 0)}
    Plan(**fused).save(path)
    job = topology.start(spark, plan=path)
    job.await_termination(PATIENCE_S)
    assert [chain.label for chain in job.chains] == ["numbers + double", "out"]
    assert job.placement == (1, 0)
    assert "worker 1: ring to 0\n  numbers + double" in job.explain()
    assert written(out)[0] == [2 * n for n in range(1000)]


def test_workers_run_on_their_cores_and_get_all_back(spark: Any, tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    for name in ("bound", "free"):
        (tmp_path / name).mkdir()
    topology = doubled(tmp_path / "bound")
    topology.start(spark, plan=placed(topology, (0, 0, 1), None, core)).await_termination(
        PATIENCE_S
    )
    doubled(tmp_path / "free").start(spark, placement=(0, 0, 1)).await_termination(PATIENCE_S)
    everything = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    assert written(tmp_path / "bound")[1] == {str(core)}
    assert written(tmp_path / "free")[1] == {everything}


def test_a_core_that_is_not_there_fails_the_job_and_says_so(spark: Any, tmp_path: Path) -> None:
    topology = doubled(tmp_path)
    job = topology.start(spark, plan=placed(topology, (0, 0, 1), None, 4000))
    with pytest.raises(JobFailedError, match="to core 4000; it may use"):
        job.await_termination(PATIENCE_S)


def test_a_plan_for_several_nodes_is_seated(spark: Any, tmp_path: Path) -> None:
    """Each worker counts as a node here."""
    topology = doubled(tmp_path)
    plan = plan_for(
        topology.graph, (Place(1, 0), Place(0, 0)), (0, 1, 1), scheduler="by hand", reason=""
    )
    job = topology.start(spark, plan=plan, node="worker")
    job.await_termination(PATIENCE_S)
    assert sorted(set(job.placement)) == [0, 1]
    assert written(tmp_path)[0] == [2 * n for n in range(1000)]


def test_a_plan_that_does_not_fit_is_refused_with_the_reason(spark: Any, tmp_path: Path) -> None:
    topology = doubled(tmp_path)
    plan = placed(topology, (0, 1, 1))
    with pytest.raises(PlanError, match="made for 2 workers; 3 were asked for"):
        topology.start(spark, plan=plan, workers=3)
    with pytest.raises(PlanError, match=r"names the operators \['double', 'out'\]"):
        other = tr.Topology("other")
        other.source([1], name="numbers").sink(print, name="end")
        other.start(spark, plan=plan)
    with pytest.raises(ValueError, match="9 workers were asked for; this Spark has 4 task slots"):
        topology.start(spark, plan=placed(topology, (0, 1, 8)))
    with pytest.raises(ValueError, match="scheduler and plan were given"):
        topology.start(spark, plan=plan, scheduler="rlas")
    with pytest.raises(PlanError, match="places of 18 cores"):
        threads = Plan(**{**vars(plan), "places": (Place(0, 0, 18), Place(0, 1, 18))})
        topology.start(spark, plan=threads)
    with pytest.raises(ValueError, match="no scheduler 'best'"):
        topology.start(spark, scheduler="best")


def test_hosts_that_do_not_fit_the_plan_fail_the_job(spark: Any, tmp_path: Path) -> None:
    topology = doubled(tmp_path)
    job = topology.start(spark, plan=placed(topology, (0, 1, 1)), node="worker")
    with pytest.raises(
        JobFailedError, match="plan wants 1 node with 2 workers; Spark gave 2 nodes with 1 worker"
    ):
        job.await_termination(PATIENCE_S)


def test_the_traffic_is_what_the_audit_says(spark: Any, tmp_path: Path) -> None:
    topology = doubled(tmp_path, count=10_000)
    job = topology.start(spark, placement=(0, 0, 1))
    job.await_termination(PATIENCE_S)
    table, streams = job.traffic(), job.last_progress.streams
    inside, across = table.links
    assert (inside.stream, inside.sender, inside.receiver) == ("numbers -> double", 0, 1)
    assert (inside.sender_worker, inside.receiver_worker) == (0, 0)
    assert (across.sender_chain, across.receiver_chain) == ("double", "out")
    assert (across.sender_worker, across.receiver_worker) == (0, 1)
    for link in table.links:
        assert link.records == streams[link.stream].sent == 10_000
        assert 0 < link.messages <= 10_000
        assert 1 < link.bytes / link.records < 100
    # Both carry small numbers: the sample inside and what was sent are about the same.
    assert 1 / 3 < inside.bytes / across.bytes < 3
    assert all(load.busy_s > 0 and load.cpu_s > 0 for load in table.instances)
    cpu_s = job.last_progress.cpu_s
    assert sum(load.cpu_s for load in table.instances) == pytest.approx(sum(cpu_s.values()))
    assert table.instances[2].cpu_s == pytest.approx(cpu_s[1])


def test_the_traffic_as_a_dataframe_and_for_schedulers(spark: Any, tmp_path: Path) -> None:
    job = doubled(tmp_path).start(spark, placement=(0, 0, 1))
    job.await_termination(PATIENCE_S)
    table = job.traffic()
    found = table.dataframe(spark).groupBy("receiver_chain").sum("records").collect()
    assert {tuple(row) for row in found} == {("double", 1000), ("out", 1000)}
    traffic = table.traffic()
    assert traffic.records.keys() == {(0, 1), (1, 2)}
    assert traffic.records[0, 1] * table.seconds == pytest.approx(1000)
    assert len(traffic.loads) == 3
    plan = job.replan("consolidate", machine=ONE_NODE).plan
    assert plan.scheduler == "consolidate"


def slow(number: int) -> int:
    return sum(range(300)) + number


def test_a_running_job_can_be_planned_anew(spark: Any, tmp_path: Path) -> None:
    topology = tr.Topology("slow")
    numbers = topology.source(range(20_000), name="numbers").shuffle()
    numbers.map(slow, name="slow").shuffle().sink(Affinity(tmp_path), name="out")
    job = topology.start(spark, placement=(0, 0, 0), workers=3)
    job.await_termination(PATIENCE_S)
    found = job.replan(machine=ONE_NODE)
    assert found.plan.scheduler == "auto"
    assert found.plan.parallelism["slow"] > 1
    assert found.plan.parallelism["numbers"] == 1
    assert found.gain > 0.5
    assert found.profile.of("slow").work.execute_ns > found.profile.of("out").work.execute_ns
    assert "records/s" in str(found)
    again = topology.start(spark, plan=Plan(**{**vars(found.plan), "core_of": ()}))
    again.await_termination(PATIENCE_S)
    assert again.last_progress.balanced
    assert job.replan("random", machine=ONE_NODE).present.place_of == (0, 0, 0)


def test_the_command_line_runs_by_a_scheduler(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_path().parent.mkdir(parents=True)
    replace(detect(), yardstick_ns=300.0).save(cache_path())
    command = ["run", "tailrace.apps.word_count:topology", "--seconds", "0.5", "--workers", "2"]
    assert main([*command, "--scheduler", "rlas"]) == 0
    said = capsys.readouterr()
    assert "measuring the operators of 'word count'" in said.err
    assert "2 workers run" in said.err
    assert "nothing lost, nothing twice" in said.out
