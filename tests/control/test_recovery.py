"""A roster that loses workers: what it decides, and that it never gets stuck, by seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tailrace.control.budget import Budget
from tailrace.control.protocol import (
    Failed,
    Go,
    Hello,
    Met,
    Open,
    Peers,
    Progress,
    Ready,
    RollBack,
    Stop,
    Suspects,
)
from tailrace.control.roster import ALL, Line, Roster
from tests.control.world import World

SEEDS = 300
ENOUGH = Budget(restarts=10_000, pause_s=0.0)


def hello(rank: int, life: int = 0, launch: int = 0) -> Hello:
    return Hello(
        rank,
        1000 + 100 * life + rank,
        "10.0.0.1",
        "executor",
        f"ring {rank} {life}",
        ("10.0.0.1", rank),
        launch=launch,
        supervisor=500 + rank,
        life=life,
    )


def begun(roster: Roster) -> None:
    """All have been introduced; let them meet, open and run."""
    attempt = roster.attempt
    for rank in range(roster.workers):
        roster.hear(Met(rank, attempt), speaker=roster.speakers[rank])
    for rank in range(roster.workers):
        roster.hear(Ready(rank, {}, attempt), speaker=roster.speakers[rank])


def running(workers: int, budget: Budget = ENOUGH) -> Roster:
    roster = Roster(workers, recover=True, budget=budget)
    for rank in range(workers):
        roster.hear(hello(rank), speaker=rank)
    begun(roster)
    assert roster.phase == "running"
    return roster


def test_who_is_left_stops_and_meets_the_new_one_and_all_go_on() -> None:
    roster = running(2)
    roster.epoch, roster.manifest = 7, "epochs/7"
    roster.now_s = 99.9
    assert roster.lost(1, 100.0, speaker=1) == [(0, RollBack(1))]
    assert roster.phase == "recovering"
    new = hello(1, life=1)
    peers = Peers((hello(0), new), (0, 1), attempt=1, epoch=7, manifest="epochs/7")
    assert roster.hear(new, speaker=2) == [(0, peers), (1, peers)]
    assert roster.hear(Met(0, 1), speaker=0) == []
    assert roster.hear(Met(1, 1), speaker=2) == [(0, Open()), (1, Open())]
    assert roster.hear(Ready(0, {}, 1), speaker=0) == []
    roster.now_s = 100.05
    assert roster.hear(Ready(1, {}, 1), speaker=2) == [(ALL, Go())]
    assert roster.phase == "running"
    [event] = roster.recovery.restarts.events
    assert (event.at_ns, round(event.took_ms)) == (100_000_000_000, 50)
    assert "worker 1 (pid 1001 on 10.0.0.1) is gone" in str(event)
    assert "running again after 50 ms" in str(event)
    assert roster.recovery.restarts.total == 1


def test_what_was_said_in_an_attempt_that_is_over_counts_for_nothing() -> None:
    roster = running(2)
    roster.hear(Progress(0, 1, ended=True), speaker=0)
    roster.lost(1, 100.0, speaker=1)
    roster.hear(hello(1, life=1), speaker=2)
    for old in (Met(0), Ready(0, {}), Progress(0, 2, ended=True), Suspects(0, 1, "closed")):
        assert roster.hear(old, speaker=0) == []
    assert (roster.met, roster.ways, roster.doubt) == (set(), {}, None)
    begun(roster)
    assert roster.phase == "running"
    roster.hear(Progress(1, 3, ended=True, attempt=1), speaker=2)
    assert roster.phase == "running"  # the other's end was of before
    roster.hear(Progress(0, 3, ended=True, attempt=1), speaker=0)
    assert roster.phase == "stopped"


def test_a_successor_may_be_heard_before_the_end_of_who_was_killed_is_noticed() -> None:
    roster = running(2)
    orders = roster.hear(hello(1, life=1), speaker=2)
    assert [type(message) for _, message in orders] == [RollBack, Peers, Peers]
    assert roster.lost(1, 100.0, speaker=1) == []
    begun(roster)
    assert roster.phase == "running"
    assert roster.recovery.restarts.total == 1


def test_all_workers_at_once_are_one_restart() -> None:
    roster = running(3)
    for rank in range(3):
        roster.lost(rank, 100.0 + rank / 1000, speaker=rank)
    for rank in range(3):
        roster.hear(hello(rank, life=1), speaker=10 + rank)
    begun(roster)
    assert roster.phase == "running"
    assert (roster.recovery.restarts.total, len(roster.recovery.restarts.events)) == (1, 3)


def test_who_dies_again_while_the_job_recovers_costs_another_restart() -> None:
    roster = running(2, Budget(restarts=2))
    roster.lost(1, 100.0, speaker=1)
    roster.hear(hello(1, life=1), speaker=2)
    assert roster.lost(1, 100.1, speaker=2) == [(0, RollBack(2))]
    roster.hear(hello(1, life=2), speaker=3)
    roster.tick(100.3)
    assert roster.recovery.introduced
    roster.lost(1, 100.4, speaker=3)
    assert roster.phase == "failed"
    assert "all 2 restarts (restarts=2) are used up" in roster.reason


def test_pauses_grow_and_are_over_after_a_quiet_minute() -> None:
    roster = running(1, Budget(restarts=4))
    now_s, speaker, waited = 100.0, 0, []
    for life in range(1, 5):
        roster.lost(0, now_s, speaker=speaker)
        speaker = life
        orders = roster.hear(hello(0, life=life), speaker=speaker)
        due_s = roster.due_s
        if due_s is not None:
            assert orders == []
            assert roster.tick(due_s - 0.01) == []
            assert roster.tick(due_s) != []
        waited.append(0.0 if due_s is None else round(due_s - now_s, 3))
        begun(roster)
        now_s = roster.now_s + 1.0
    assert waited == [0.0, 0.1, 0.2, 0.4]
    roster.lost(0, roster.now_s + 60.1, speaker=speaker)
    assert roster.hear(hello(0, life=9), speaker=9) != []  # at once


def test_the_same_record_may_fail_twice_and_another_one_does_not_count_with_it() -> None:
    roster = running(1)
    for life, record in enumerate(["77", "78", "77", "77"], start=1):
        number = roster.speakers[0]
        failed = Failed(0, f"operator 'divide' failed on {record}", "Trace", "divide", record)
        orders = roster.hear(failed, speaker=number)
        if life == 4:
            break
        assert orders[0] == (Line(number), RollBack(life))
        assert roster.lost(0, 100.0 + life, speaker=number) == []
        roster.hear(hello(0, life=life), speaker=life)
        begun(roster)
    assert roster.phase == "failed"
    assert roster.reason == (
        "operator 'divide' failed on 77; it has failed 3 times in a row on that"
    )
    assert roster.traceback == "Trace"


def test_what_fails_before_the_job_has_ever_run_fails_it_at_once() -> None:
    roster = Roster(1, recover=True)
    roster.hear(hello(0))
    roster.hear(Failed(0, "operator 'a' failed in open", "Trace", "a"))
    assert (roster.phase, roster.reason) == ("failed", "operator 'a' failed in open")
    roster = Roster(1, recover=True)
    roster.relaunch("Spark ended the workers: ImportError: no numpy")
    assert roster.phase == "failed"


def test_a_worker_that_is_lost_before_the_job_has_ever_run_is_replaced_by_spark() -> None:
    roster = Roster(2, recover=True, budget=ENOUGH)
    for rank in range(2):
        roster.hear(hello(rank), speaker=rank)
    roster.lost(1, 100.0, speaker=1)
    assert roster.relaunch("Spark ended the workers: crashed") == [(ALL, Stop(drain=False))]
    roster.lost(0, 100.1, speaker=0)
    for rank in range(2):
        roster.hear(hello(rank, launch=1), speaker=2 + rank)
    begun(roster)
    assert (roster.phase, roster.launch) == ("running", 1)


def test_processes_that_spark_loses_before_anybody_came_use_up_the_budget() -> None:
    roster = Roster(1, recover=True, budget=Budget(restarts=3))
    phases = []
    for _ in range(4):
        roster.relaunch("Spark ended the workers: crashed", lost=True)
        phases.append(roster.phase)
    assert phases == ["starting", "starting", "starting", "failed"]


def test_a_drain_that_is_asked_for_meanwhile_begins_when_the_job_is_back() -> None:
    roster = running(1)
    roster.lost(0, 100.0, speaker=0)
    assert roster.stop(drain=True) == []
    assert roster.phase == "recovering"
    roster.hear(hello(0, life=1), speaker=1)
    roster.hear(Met(0, 1), speaker=1)
    assert roster.hear(Ready(0, {}, 1), speaker=1) == [(ALL, Go()), (ALL, Stop(drain=True))]
    assert roster.phase == "draining"
    roster.lost(0, 101.0, speaker=1)
    roster.hear(hello(0, life=2), speaker=2)
    begun(roster)
    assert roster.phase == "draining"


def test_a_stop_while_the_job_recovers_is_the_end() -> None:
    roster = running(2)
    roster.lost(1, 100.0, speaker=1)
    assert roster.stop(drain=False) == [(ALL, Stop(drain=False))]
    assert roster.hear(hello(1, life=1), speaker=2) == [(Line(2), Stop(drain=False))]
    assert roster.hear(hello(0, life=1), speaker=3) == [(Line(3), Stop(drain=False))]
    assert roster.phase == "stopped"


def test_workers_that_cannot_reach_each_other_meet_anew() -> None:
    roster = running(2)
    roster.tick(100.0)
    roster.hear(Suspects(0, 1, "reset"), speaker=0)
    assert roster.tick(105.9) == []
    told = [message for _, message in roster.tick(106.0)]
    assert told[:2] == [RollBack(1), RollBack(1)]
    assert isinstance(told[2], Peers)


def test_a_stage_that_spark_has_ended_is_followed_by_another_that_waits_for_its_end() -> None:
    roster = running(2)
    roster.lost(1, 100.0, speaker=1)
    assert roster.relaunch("Spark ended the workers: lost") == [(ALL, Stop(drain=False))]
    assert (roster.launch, roster.hellos, roster.recovery.restarts.total) == (1, {}, 1)
    assert roster.hear(hello(1, life=1), speaker=2) == [(Line(2), Stop(drain=False))]
    assert roster.hear(hello(0, launch=1), speaker=3) == []
    assert roster.hear(hello(1, launch=1), speaker=4) == []  # one of before is still there
    orders = roster.lost(0, 100.2, speaker=0)
    assert [type(message) for _, message in orders] == [Peers, Peers]
    begun(roster)
    assert roster.phase == "running"


def test_stages_that_never_get_anywhere_use_up_the_budget() -> None:
    roster = running(1, Budget(restarts=3))
    for _ in range(5):
        roster.relaunch("Spark ended the workers: no more")
    assert roster.phase == "failed"
    assert roster.launch == 3


def test_spark_has_to_help_when_a_host_is_gone_or_nobody_comes_back() -> None:
    roster = running(2)
    roster.lost(1, 100.0, silent=True, speaker=1)
    found = [roster.abandoned]
    roster.relaunch("Spark ended the workers: cancelled")
    found.append(roster.abandoned)
    assert found == [True, False]
    roster = running(2)
    roster.lost(1, 100.0, speaker=1)
    found.clear()
    for now_s in (104.9, 105.0):
        roster.tick(now_s)
        found.append(roster.abandoned)
    assert found == [False, True]


def test_a_copy_that_spark_has_started_takes_the_place_of_who_was_lost() -> None:
    roster = running(2)
    copy = replace(hello(1), supervisor=900, pid=901)
    assert roster.hear(copy, speaker=5) == []
    orders = roster.lost(1, 100.0, speaker=1)
    assert (0, RollBack(1)) in orders
    assert roster.hellos[1] == copy
    begun(roster)
    assert roster.phase == "running"


@pytest.mark.parametrize("budget", [Budget(restarts=0), Budget(restarts=1)])
def test_a_budget_that_is_used_up_fails_the_job_with_what_was_lost(budget: Budget) -> None:
    roster = running(1, budget)
    for life in range(1, 3):
        roster.lost(0, 100.0, speaker=roster.speakers.get(0, -1))
        if roster.over:
            break
        roster.hear(hello(0, life=life), speaker=life)
        begun(roster)
    assert roster.phase == "failed"
    assert "worker 0" in roster.reason
    assert f"restarts={budget.restarts}" in roster.reason


def test_restarts_are_a_whole_number() -> None:
    with pytest.raises(ValueError, match=r"restarts is -1; it must be a whole number, at least 0"):
        Budget(restarts=-1)


# ---- by seeds ----


def shaken(seed: int, work_s: float | None = None) -> World:
    """A job of 1 to 4 workers, half a minute of bad luck."""
    world = World(seed, 1 + seed % 4, ENOUGH, work_s)
    random = world.random
    for _ in range(random.randrange(1, 12)):
        at_s = random.uniform(0.6, 30.0)
        kind = random.choice(["worker", "worker", "worker", "task", "all", "fail", "silence"])
        world.after(at_s, partial(strike, world, kind))
    return world


def strike(world: World, kind: str) -> None:
    living = [one for one in world.processes.values() if one.alive]
    if not living:
        return
    victim = world.random.choice(living)
    world.history.append(f"{world.now_s:.3f} {kind} {victim.rank} ({victim.number})")
    if kind == "worker":
        world.kill(victim)
    elif kind == "all":
        for one in living:
            world.kill(one)
    elif kind == "fail" and world.roster.recovery.ran:
        world.fail(victim, f"record {world.now_s}")
    elif kind == "silence" and world.roster.recovery.ran:
        world.silence(victim)
    elif kind == "task" and world.roster.recovery.ran:
        world.kill_task(next(one for one in world.tasks if one.pid == victim.supervisor))


def test_an_endless_job_always_runs_again_when_the_bad_luck_is_over() -> None:
    for seed in range(SEEDS):
        world = shaken(seed)
        world.run(30.0, lambda: False)
        found = world.run(150.0, world.is_at_work)
        assert found, (seed, world.roster.phase, world.roster.reason, world.history)
        assert not world.run(world.now_s + 20.0, world.is_over), seed


def test_a_bounded_job_always_ends_and_every_worker_is_gone() -> None:
    for seed in range(SEEDS):
        world = shaken(seed, work_s=world_work_s(seed))
        assert world.run(300.0, world.is_over), (seed, world.history)
        assert world.roster.phase == "stopped", (seed, world.roster.reason)
        world.run(world.now_s + 30.0, lambda: False)
        assert not [one for one in world.processes.values() if one.alive], seed


def world_work_s(seed: int) -> float:
    return 1.0 + seed % 7


def test_a_stop_at_any_moment_is_the_end() -> None:
    for seed in range(SEEDS):
        world = shaken(seed)
        drain = seed % 2 == 0
        at_s = world.random.uniform(0.0, 30.0)
        world.after(at_s, partial(world.decide, partial(world.roster.stop, drain)))
        world.run(at_s, lambda: False)
        assert world.run(300.0, world.is_over), (seed, world.history)
        assert world.roster.phase == "stopped", (seed, world.roster.reason)


def test_a_record_that_always_fails_ends_the_job_with_its_name_whatever_else_happens() -> None:
    for seed in range(SEEDS):
        world = shaken(seed)
        world.poisoned = (0, 1_000_000)
        assert world.run(300.0, world.is_over), (seed, world.history)
        assert world.roster.reason.startswith("operator 'step' failed on record 77; it has"), seed


def test_a_record_that_fails_once_or_twice_is_forgiven() -> None:
    for seed in range(SEEDS // 3):
        world = World(seed, 1 + seed % 4, ENOUGH, work_s=2.0)
        world.poisoned = (0, 1 + seed % 2)
        assert world.run(300.0, world.is_over), (seed, world.history)
        assert world.roster.phase == "stopped", (seed, world.roster.reason)
        assert world.roster.recovery.restarts.total >= 1


def test_with_a_small_budget_it_ends_running_or_failed_for_the_right_reason() -> None:
    for seed in range(SEEDS):
        world = shaken(seed)
        world.roster.recovery.restarts.budget = Budget(restarts=seed % 4)
        world.run(30.0, lambda: False)
        ends = world.run(200.0, world.is_over_or_at_work)
        assert ends, (seed, world.roster.phase, world.history)
        if world.roster.over:
            assert "restarts=" in world.roster.reason, (seed, world.roster.reason)


def test_a_worker_that_finds_the_last_epoch_damaged_ends_the_job_at_once() -> None:
    roster = running(2)
    roster.lost(1, 100.0, speaker=1)
    roster.hear(hello(1, life=1), speaker=2)
    told = Failed(1, "'data/7.bin' in 'here' is damaged", "a traceback", damaged=True)
    [(to, stop)] = roster.hear(told, speaker=2)
    assert to is ALL
    assert isinstance(stop, Stop)
    assert roster.phase == "failed"
    assert roster.reason.startswith("'data/7.bin' in 'here' is damaged. ")
    assert "Start the job again" in roster.reason
    assert roster.recovery.restarts.total == 1, "which the loss has cost"
