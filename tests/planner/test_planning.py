"""From a topology to a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import tailrace as tr
from tailrace.plan.model.machine import cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.plan import Plan
from tailrace.plan.schedulers.by_name import SCHEDULERS
from tailrace.planner import calibrate
from tailrace.planner.calibrate import cache_path
from tailrace.planner.detect import detect
from tailrace.planner.planning import fixed, machine_of, planned

MACHINE = cluster(1, cores=4)


class Numbered(tr.Operator):
    """Remembers how many it has seen."""

    seen = 0

    def process(self, record: int) -> None:
        self.seen += 1
        self.emit((self.seen, record))


def topology() -> tr.Topology:
    topology = tr.Topology("numbered")
    numbers = topology.source(range(5000), name="numbers").shuffle().map(abs, name="work")
    numbered = numbers.shuffle().process(Numbered(), name="numbered").key_by()
    numbered.process(Numbered(), name="by key").sink(lambda _: None, name="out")
    return topology


def test_what_remembers_without_a_key_and_what_reads_from_outside_stay_as_many() -> None:
    assert fixed(topology().graph) == ["numbers", "numbered"]
    times_ns = {"numbers": 100.0, "work": 100.0, "numbered": 200.0, "by key": 900.0, "out": 1.0}
    profile = Profile({name: OperatorProfile(Work(ns)) for name, ns in times_ns.items()})
    plan = topology().plan(4, "rlas", profile=profile, machine=MACHINE).plan
    assert plan.parallelism["numbers"] == plan.parallelism["numbered"] == 1
    assert plan.parallelism["by key"] > 1


def test_more_can_be_kept() -> None:
    plan = topology().plan(4, "auto", machine=MACHINE, keep=["by key", "work"]).plan
    assert set(plan.parallelism.values()) == {1}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_can_be_asked_and_its_plan_explained(name: str, tmp_path: Path) -> None:
    profile, path = tmp_path / "profile.json", tmp_path / "machine.json"
    topology().plan(4, "spread", machine=MACHINE).profile.save(profile)
    MACHINE.save(path)
    made = topology().plan(4, name, profile=profile, machine=path)
    assert f"plan of '{name}'" in made.explain()
    made.plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made.plan


def test_workers_are_bound_to_cores_but_not_where_nobody_plans() -> None:
    assert topology().plan(4, "rlas", machine=MACHINE).plan.core_of == (0, 1, 2, 3)
    assert topology().plan(4, "spread", machine=MACHINE).plan.core_of == ()


def test_schedulers_that_are_blind_have_nothing_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert planned(topology().graph, 2, "round robin").profile == Profile({})
    assert capsys.readouterr().err == ""


def test_a_plan_for_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="a plan for 0 workers was asked for"):
        topology().plan(0)


def test_it_is_announced_when_the_machine_has_to_be_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "calibrate", partial(replace, yardstick_ns=300.0))
    cache_path().parent.mkdir()
    detect().save(cache_path())  # as an earlier version did, without the cores' speed
    machine_of(None)
    assert "measuring this machine" in capsys.readouterr().err
    machine_of(None)
    assert capsys.readouterr().err == ""


def test_a_plan_for_a_rate_is_as_small_as_sustains_it() -> None:
    times_ns = {"numbers": 100.0, "work": 100.0, "numbered": 200.0, "by key": 900.0, "out": 1.0}
    profile = Profile({name: OperatorProfile(Work(ns)) for name, ns in times_ns.items()})
    few = topology().plan(4, profile=profile, machine=MACHINE, rate=10_000)
    many = topology().plan(4, profile=profile, machine=MACHINE)
    assert len(few.plan.places) == 1 < len(set(many.plan.place_of))
    assert few.prediction.source_rate == pytest.approx(10_000)
    assert "10,000 records/s need 1 worker on 1 node" in few.explain()
    with pytest.raises(ValueError, match="rate is -1; it must be above 0"):
        topology().plan(4, rate=-1)


def test_schedulers_that_are_blind_to_costs_have_them_measured_for_a_rate() -> None:
    made = planned(topology().graph, 4, "spread", machine=MACHINE, rate=1_000)
    assert made.profile.operators
    assert len(made.plan.places) == 1
