"""A roster whose workers come and go while the job runs, and that nothing gets stuck, by seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

import tailrace as tr
from tailrace.checkpoint.epochs import Epochs
from tailrace.control.changing import Changing, Prepare
from tailrace.control.joining import ScaleError
from tailrace.control.orders import ALL, Line
from tailrace.control.protocol import (
    BeginEpoch,
    Committed,
    Drained,
    Failed,
    Go,
    Hello,
    Joined,
    Leave,
    Members,
    Met,
    Moved,
    Open,
    Peers,
    Prepared,
    Progress,
    Reached,
    Ready,
    RollBack,
    Settled,
    Snapshotted,
    Stop,
    Suspects,
)
from tailrace.control.roster import Roster
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import Layout, changed, deploy
from tailrace.runtime.guard import Counts
from tests.control.test_recovery import ENOUGH, begun, hello, running, strike
from tests.control.world import World

SEEDS = 300


def plain(workers: int) -> Roster:
    """A running job that does not recover."""
    roster = Roster(workers)
    for rank in range(workers):
        roster.hear(hello(rank))
    begun(roster)
    assert roster.phase == "running"
    return roster


def newcomer(roster: Roster, rank: int, life: int = 0, supervised: bool = True) -> Hello:
    one = replace(hello(rank, life), stage=roster.joining.number, launch=roster.launch)
    return one if supervised else replace(one, supervisor=0)


def reached(roster: Roster, rank: int, speaker: int, trouble: str = "") -> Reached:
    return Reached(rank, roster.joining.round, {}, trouble, roster.attempt)


def join(roster: Roster, speaker: int = 50) -> None:
    """One more worker comes, and all goes well."""
    rank = roster.workers
    number = roster.joining.grow(1, 60.0)
    roster.hear(newcomer(roster, rank), speaker)
    for one in range(rank):
        told = Reached(one, roster.joining.round, {rank: "ring"}, "", roster.attempt)
        roster.hear(told, roster.speakers[one])
    roster.hear(reached(roster, rank, speaker), speaker)
    roster.hear(Ready(rank, {}, roster.attempt), speaker)
    assert roster.joining.outcome(number) == ""


def leave(roster: Roster) -> None:
    """The last worker leaves, and all goes well."""
    rank = roster.workers - 1
    speaker = roster.speakers[rank]
    number = roster.joining.shrink(1, 60.0)
    roster.joining.look()
    for one in range(rank):
        roster.hear(reached(roster, one, one), roster.speakers[one])
    roster.lost(rank, roster.now_s, speaker=speaker)
    assert roster.joining.outcome(number) == ""


def test_one_that_joins_meets_all_that_run_and_only_then_counts() -> None:
    roster = running(2)
    roster.epoch, roster.manifest = 7, "epochs/7"
    number = roster.joining.grow(1, 60.0)
    new = newcomer(roster, 2)
    peers = Peers((hello(0), hello(1), new), (0, 1, 2), attempt=0, epoch=7)
    assert roster.hear(new, speaker=9) == [
        (0, Joined(1, (new,))),
        (1, Joined(1, (new,))),
        (Line(9), peers),
        (Line(9), Joined(1, ())),
    ]
    assert roster.hear(Met(2), speaker=9) == []
    assert roster.hear(Reached(0, 1, {2: "ring"}), speaker=0) == []
    assert roster.hear(Reached(2, 1), speaker=9) == []
    assert roster.hear(Reached(1, 1, {2: "tcp"}), speaker=1) == [(Line(9), Open())]
    assert (roster.workers, roster.joining.outcome(number)) == (2, None)
    assert roster.hear(Ready(2, {0: "ring", 1: "tcp"}), speaker=9) == [
        *((rank, Members(1, 3)) for rank in range(3)),
        (2, Go()),
    ]
    assert (roster.workers, roster.joining.outcome(number)) == (3, "")
    assert roster.phase == "running"
    assert roster.ways == {0: {2: "ring"}, 1: {2: "tcp"}, 2: {0: "ring", 1: "tcp"}}
    assert (roster.seats, roster.recovery.restarts.total) == ((0, 1, 2), 0)


def test_a_worker_leaves_when_nobody_has_a_way_to_it_and_its_end_is_no_loss() -> None:
    for roster in (running(3), plain(3)):
        done = Progress(2, 1)
        done.operators["map"] = Counts()
        done.operators["map"].records_in = 5
        roster.hear(done, speaker=2)
        number = roster.joining.shrink(1, 60.0)
        assert roster.tick(1.0) == [(0, Members(1, 2)), (1, Members(1, 2))]
        assert roster.workers == 2
        assert roster.hear(Reached(0, 1), speaker=0) == []
        assert roster.hear(Reached(1, 1), speaker=1) == [(Line(2), Leave())]
        done.operators["map"].records_in = 7
        assert roster.hear(done, speaker=2) == []
        assert roster.joining.outcome(number) is None
        assert roster.lost(2, 1.1, speaker=2) == []
        assert (roster.joining.outcome(number), roster.phase) == ("", "running")
        assert sorted(roster.progress) == []
        assert roster.departed is not None
        assert roster.departed.operators["map"].records_in == 7
        assert roster.recovery.restarts.total == 0
        # Its supervisor may take it for lost, and start another: that one is sent home.
        again = hello(2, life=1)
        assert roster.hear(again, speaker=8) == [(Line(8), Stop(drain=False))]
        assert roster.lost(2, 1.2, speaker=8) == []


def test_an_epoch_in_progress_neither_waits_for_who_joins_nor_loses_who_leaves() -> None:
    roster = running(2)
    roster.epochs = Epochs(2, every_s=1.0)
    roster.epochs.go(0.0)
    parts = [Snapshotted(rank, 1, (), (), (), ended=False) for rank in range(3)]
    assert roster.tick(1.0) == [(0, BeginEpoch(1)), (1, BeginEpoch(1))]
    join(roster)
    assert roster.workers == 3
    roster.hear(parts[0], speaker=0)
    roster.hear(parts[1], speaker=1)
    [write] = roster.writes
    assert len(write.parts) == 2
    assert roster.written(1, "epochs/1", "here") == [(0, Committed(1)), (1, Committed(1))]
    roster.hear(Settled(0, 1), speaker=0)
    assert roster.tick(2.0) == []
    assert roster.hear(Settled(1, 1), speaker=1) == [(rank, BeginEpoch(2)) for rank in range(3)]
    number = roster.joining.shrink(1, 60.0)
    assert roster.tick(2.1) == []
    for rank, speaker in ((0, 0), (1, 1), (2, 50)):
        roster.hear(replace(parts[rank], epoch=2), speaker=speaker)
    assert len(roster.writes[1].parts) == 3
    assert roster.tick(2.2) == []
    assert roster.written(2, "epochs/2", "here") == [
        *((rank, Committed(2)) for rank in range(3)),
        *((rank, Members(2, 2)) for rank in range(2)),
    ]
    assert roster.joining.outcome(number) is None
    for rank in range(2):
        roster.hear(Settled(rank, 2), speaker=rank)
    assert roster.tick(3.2) == [(0, BeginEpoch(3)), (1, BeginEpoch(3))]


def test_a_job_that_has_begun_its_last_epoch_takes_nobody_in() -> None:
    roster = running(1)
    roster.epochs = Epochs(1, every_s=1.0)
    roster.epochs.go(0.0)
    number = roster.joining.grow(1, 60.0)
    roster.hear(newcomer(roster, 1), speaker=9)
    roster.hear(Reached(0, 1), speaker=0)
    roster.hear(Reached(1, 1), speaker=9)
    roster.hear(Drained(0), speaker=0)
    assert roster.hear(Ready(1, {}), speaker=9) == []
    roster.hear(Snapshotted(0, 1, (), (), (), ended=True), speaker=0)
    assert roster.written(1, "epochs/1", "here") == [(0, Committed(1, last=True))]
    assert roster.hear(Progress(0, 1, ended=True), speaker=0) == [(ALL, Stop(drain=False))]
    assert roster.phase == "stopped"
    roster.tick(9.0)
    assert roster.joining.outcome(number) == "the job has ended"


def test_the_end_of_all_others_is_the_end_when_who_had_not_said_so_leaves() -> None:
    roster = plain(2)
    roster.hear(Progress(0, 1, ended=True), speaker=0)
    roster.joining.shrink(1, 60.0)
    assert roster.tick(1.0) == [(0, Members(1, 1)), (ALL, Stop(drain=False))]
    assert roster.phase == "stopped"


def test_who_dies_before_it_has_joined_costs_nothing_but_that() -> None:
    roster = plain(2)
    number = roster.joining.grow(2, 60.0)
    roster.hear(newcomer(roster, 2, supervised=False), speaker=8)
    roster.hear(newcomer(roster, 3, supervised=False), speaker=9)
    assert roster.lost(3, 1.0, speaker=9) == [
        (0, Joined(2, ())),
        (1, Joined(2, ())),
        (Line(8), Stop(drain=False)),
    ]
    assert roster.lost(2, 1.1, speaker=8) == []
    assert "worker 3 (pid 1003 on 10.0.0.1) is gone" in str(roster.joining.outcome(number))
    assert (roster.phase, roster.workers) == ("running", 2)
    join(roster)
    assert roster.workers == 3


def test_who_dies_before_its_hello_costs_nothing_either() -> None:
    roster = plain(1)
    number = roster.joining.grow(1, 60.0)
    assert roster.lost(1, 1.0, speaker=9) == []
    assert roster.joining.outcome(number) is None
    roster.joining.stage_ended(number, 0, "Spark ended the workers: no python", "")
    assert roster.joining.outcome(number) == "Spark ended the workers: no python"
    assert roster.phase == "running"


def test_a_supervised_one_that_dies_while_it_joins_is_replaced_and_all_meet_anew() -> None:
    roster = running(1)
    roster.joining.grow(2, 60.0)
    roster.hear(newcomer(roster, 1), speaker=8)
    roster.hear(newcomer(roster, 2), speaker=9)
    roster.hear(Reached(0, 1), speaker=0)
    roster.hear(Reached(1, 1), speaker=8)
    assert roster.lost(2, 1.0, speaker=9) == [(Line(8), RollBack(0))]
    new = newcomer(roster, 2, life=1)
    orders = roster.hear(new, speaker=10)
    assert [(to, type(message)) for to, message in orders] == [
        (0, Joined),
        (Line(8), Peers),
        (Line(8), Joined),
        (Line(10), Peers),
        (Line(10), Joined),
    ]
    assert roster.hear(Reached(0, 1), speaker=0) == []  # of the round before
    roster.hear(Reached(0, 2), speaker=0)
    roster.hear(Reached(2, 2), speaker=10)
    assert roster.hear(Reached(1, 2), speaker=8) == [(Line(8), Open()), (Line(10), Open())]
    roster.hear(Ready(1, {}), speaker=8)
    roster.hear(Ready(2, {}), speaker=10)
    assert (roster.workers, roster.recovery.restarts.total) == (3, 0)


def test_those_that_join_wait_while_the_job_goes_back_to_an_epoch() -> None:
    roster = running(2)
    number = roster.joining.grow(1, 60.0)
    roster.hear(newcomer(roster, 2), speaker=9)
    roster.hear(Reached(0, 1), speaker=0)
    orders = roster.lost(1, 1.0, speaker=1)
    assert (Line(9), RollBack(1)) in orders
    assert (0, RollBack(1)) in orders
    orders = roster.hear(hello(1, life=1), speaker=4)
    assert {to for to, _ in orders} == {0, 1}
    for rank in (0, 1):
        roster.hear(Met(rank, 1), speaker=roster.speakers[rank])
    for rank in (0, 1):
        assert (roster.phase, roster.joining.outcome(number)) == ("recovering", None)
        roster.hear(Ready(rank, {}, 1), speaker=roster.speakers[rank])
    orders = roster.tick(2.0)
    [peers] = [message for to, message in orders if isinstance(message, Peers)]
    assert peers.attempt == 1
    assert peers.hellos[1] == hello(1, life=1)
    assert roster.hear(Reached(0, 2, attempt=0), speaker=0) == []
    for rank, speaker in ((0, 0), (1, 4), (2, 9)):
        roster.hear(Reached(rank, 2, attempt=1), speaker=speaker)
    roster.hear(Ready(2, {}, 1), speaker=9)
    assert (roster.workers, roster.joining.outcome(number)) == (3, "")


def test_who_has_joined_is_replaced_like_any_other() -> None:
    roster = running(1)
    join(roster)
    assert roster.lost(1, 1.0, speaker=50) == [(0, RollBack(1))]
    stranger = replace(hello(1, life=1), stage=99)
    assert roster.hear(stranger, speaker=60) == [(Line(60), Stop(drain=False))]
    orders = roster.hear(newcomer(roster, 1, life=1), speaker=51)
    assert [type(message) for _, message in orders] == [Peers, Peers]
    begun(roster)
    assert (roster.phase, roster.workers) == ("running", 2)


@pytest.mark.parametrize("first", [0, 1], ids=["the first stage", "the further one"])
def test_whichever_stage_spark_loses_one_launch_of_all_follows(first: int) -> None:
    roster = running(2)
    join(roster)
    stage = roster.joining.number
    if first == 0:
        assert roster.relaunch("lost", launch=0) == [(ALL, Stop(drain=False))]
        assert roster.joining.stage_ended(stage, 0, "lost", "") == []
    else:
        assert roster.joining.stage_ended(stage, 0, "lost", "") == [(ALL, Stop(drain=False))]
        assert roster.relaunch("lost", launch=0) == []
    assert (roster.launch, roster.recovery.restarts.total) == (1, 1)
    for rank, speaker in ((0, 0), (1, 1), (2, 50)):
        roster.lost(rank, 1.0, speaker=speaker)
    for rank in range(3):
        roster.hear(hello(rank, launch=1), speaker=70 + rank)
    begun(roster)
    assert (roster.phase, roster.workers) == ("running", 3)


def test_without_recovery_who_has_joined_is_as_dear_as_the_others() -> None:
    roster = plain(1)
    join(roster)
    roster.lost(1, 1.0, speaker=50)
    assert roster.phase == "failed"
    roster = plain(1)
    join(roster)
    roster.joining.stage_ended(roster.joining.number, 0, "Spark ended the workers: x", "trace")
    assert (roster.phase, roster.reason) == ("failed", "Spark ended the workers: x")


def test_a_stage_whose_workers_have_left_may_end() -> None:
    roster = plain(1)
    join(roster)
    stage = roster.joining.number
    leave(roster)
    assert roster.joining.stage_ended(stage, 0, "the workers ended", "") == []
    assert roster.phase == "running"


def test_what_takes_too_long_is_given_up_and_said_why() -> None:
    roster = running(1)
    number = roster.joining.grow(2, 5.0)
    roster.hear(newcomer(roster, 1), speaker=8)
    assert roster.tick(4.9) == []
    assert roster.tick(5.0) == [(Line(8), Stop(drain=False))]
    assert str(roster.joining.outcome(number)).startswith(
        "1 of 2 workers have not started within 5 s: other jobs may hold"
    )
    number = roster.joining.grow(1, 5.0)
    roster.hear(newcomer(roster, 1), speaker=9)
    roster.hear(reached(roster, 1, 9), speaker=9)
    assert (0, Joined(3, ())) in roster.tick(10.0)
    assert "workers [0] have not come so far within 5 s" in str(roster.joining.outcome(number))
    assert (roster.phase, roster.workers) == ("running", 1)


def test_who_cannot_be_reached_is_given_up_unless_it_is_known_what_became_of_it() -> None:
    roster = running(1)
    for trouble in (Reached(0, 1, trouble="refused"), Suspects(1, 0, "refused")):
        roster = running(1)
        number = roster.joining.grow(1, 60.0)
        roster.hear(newcomer(roster, 1), speaker=9)
        roster.hear(trouble, speaker=0 if isinstance(trouble, Reached) else 9)
        assert roster.joining.outcome(number) is None
        roster.tick(5.9)
        assert roster.joining.outcome(number) is None
        roster.tick(6.0)
        assert "cannot reach" in str(roster.joining.outcome(number))
        assert roster.phase == "running"


def test_who_fails_while_it_joins_or_has_another_version_does_not_join() -> None:
    roster = running(1)
    number = roster.joining.grow(1, 60.0)
    roster.hear(newcomer(roster, 1), speaker=9)
    roster.hear(Failed(1, "MemoryError()", "Trace"), speaker=9)
    assert roster.joining.outcome(number) == "worker 1 cannot join: MemoryError()"
    number = roster.joining.grow(1, 60.0)
    roster.hear(replace(newcomer(roster, 1), version="tailrace 0"), speaker=10)
    assert "runs tailrace 0; the driver runs" in str(roster.joining.outcome(number))
    assert roster.phase == "running"


def test_one_change_at_a_time_and_only_while_the_job_runs() -> None:
    roster = running(2)
    roster.joining.grow(1, 60.0)
    for change in (roster.joining.grow, roster.joining.shrink):
        with pytest.raises(ScaleError, match="is being changed already"):
            change(1, 60.0)
    roster.stop(drain=True)
    roster.tick(1.0)
    assert roster.joining.outcome(1) == "the job is ending"
    with pytest.raises(ScaleError, match="the job is draining"):
        roster.joining.grow(1, 60.0)
    with pytest.raises(ValueError, match="2 workers cannot leave: there are 2"):
        running(2).joining.shrink(2, 60.0)


def test_a_plan_for_several_nodes_keeps_its_places_when_workers_come_and_go() -> None:
    roster = Roster(2, wanted=(0, 1), recover=True, budget=ENOUGH)
    hosts = ["b", "a"]
    for rank in range(2):
        roster.hear(replace(hello(rank), host=hosts[rank]))
    begun(roster)
    seats: tuple[int, ...] = roster.seats
    assert seats == (0, 1)
    number = roster.joining.grow(2, 60.0)
    for rank, host in ((2, "a"), (3, "c")):
        roster.hear(replace(newcomer(roster, rank), host=host), speaker=50 + rank)
    for rank, speaker in ((0, 0), (1, 1), (2, 52), (3, 53)):
        roster.hear(reached(roster, rank, speaker), speaker=speaker)
    for rank in (2, 3):
        roster.hear(Ready(rank, {}), speaker=50 + rank)
    assert roster.joining.outcome(number) == ""
    assert (roster.seats, roster.wanted) == ((0, 1, 2, 3), (0, 1, 1, 2))
    roster.lost(0, 1.0, speaker=0)
    roster.hear(replace(hello(0, life=1), host="b"), speaker=60)
    begun(roster)
    assert roster.phase == "running"
    leave(roster)
    assert (roster.seats, roster.wanted) == ((0, 1, 2), (0, 1, 1))


# ---- by seeds ----


def shaken(seed: int, work_s: float | None = None) -> World:
    """A job of 1 to 3 workers that come and go for half a minute, in bad luck."""
    world = World(seed, 1 + seed % 3, ENOUGH, work_s)
    random = world.random
    for _ in range(random.randrange(1, 10)):
        at_s = random.uniform(0.6, 30.0)
        kind = random.choice(["worker", "worker", "worker", "task", "all", "fail", "silence"])
        world.after(at_s, partial(strike, world, kind))
    for _ in range(random.randrange(1, 12)):
        world.after(random.uniform(0.6, 30.0), partial(change, world))
    return world


def change(world: World) -> None:
    number = world.random.randrange(1, 3)
    within_s = world.random.choice([0.3, 5.0, 60.0])
    joining = world.roster.joining
    try:
        if world.random.random() < 0.6:
            world.history.append(f"{world.now_s:.3f} grow {number}")
            world.grow(number, within_s)
        else:
            world.history.append(f"{world.now_s:.3f} shrink {number}")
            joining.shrink(number, within_s)
    except (ScaleError, ValueError) as error:
        world.history.append(str(error))
    else:
        world.asked.append(joining.number)


def test_whatever_comes_and_goes_the_job_runs_again_and_every_change_has_an_outcome() -> None:
    joined = left = 0
    for seed in range(SEEDS):
        world = shaken(seed)
        world.run(30.0, lambda: False)
        found = world.run(200.0, world.is_settled)
        roster = world.roster
        assert found, (seed, roster.phase, roster.reason, world.history)
        outcomes = [roster.joining.outcome(number) for number in world.asked[-10:]]
        assert None not in outcomes, (seed, outcomes, world.history)
        assert not world.run(world.now_s + 30.0, world.is_over), seed
        # Nobody is left who has no place in the job.
        assert world.run(world.now_s + 30.0, world.is_settled), (seed, world.history)
        living = [one for one in world.processes.values() if one.alive]
        assert len(living) == roster.workers, (seed, living, world.history)
        joined += sum(told == "" for told in outcomes)
        left += roster.departed is not None
    assert joined > SEEDS / 2
    assert left > SEEDS / 20


def test_a_bounded_job_always_ends_and_nobody_stays_who_was_to_join_or_to_leave() -> None:
    for seed in range(SEEDS):
        world = shaken(seed, work_s=1.0 + seed % 7)
        assert world.run(300.0, world.is_over), (seed, world.history)
        assert world.roster.phase == "stopped", (seed, world.roster.reason)
        world.run(world.now_s + 30.0, lambda: False)
        assert not [one for one in world.processes.values() if one.alive], (seed, world.history)


def with_checkpoints() -> tuple[Roster, Layout]:
    """A job of two workers, all of it in the first, and a layout in which the other reads."""
    topology = tr.Topology()
    topology.source([1], name="in").shuffle().sink(print, name="out", parallelism=1)
    before = deploy(topology.graph, [0, 0])
    roster = running(2)
    roster.changing = Changing(before.layout)
    roster.epochs = Epochs(2, every_s=60.0)
    roster.epochs.go(0.0)
    return roster, changed(before, workers={InstanceId("in", 0): 1}).layout


def test_who_says_that_it_has_ended_while_it_is_asked_to_prepare_does_not_end_the_job() -> None:
    roster, after = with_checkpoints()
    number = roster.change(lambda _: after)
    assert [order[1] for order in roster.look_at_change()] == [Prepare(number, after, 1)] * 2
    roster.hear(Drained(1), speaker=1)
    roster.hear(Prepared(1, number, ""), speaker=1)
    roster.hear(Prepared(0, number, ""), speaker=0)
    for rank in range(2):
        roster.hear(Snapshotted(rank, 1, (), (), (), ended=False), speaker=rank)
    roster.hear(Moved(0, number, 0), speaker=0)
    roster.hear(Moved(1, number, 0), speaker=1)
    roster.written(1, "epochs/1", "here")
    roster.hear(Drained(0), speaker=0)
    for rank in range(2):
        roster.hear(Settled(rank, 1), speaker=rank)
    assert roster.epochs is not None
    assert roster.epochs.taking_part == 2
    assert not roster.epochs.ending, "worker 1 reads"


def test_who_has_ended_and_cannot_prepare_a_change_has_ended_all_the_same() -> None:
    roster, after = with_checkpoints()
    roster.hear(Drained(1), speaker=1)
    number = roster.change(lambda _: after)
    roster.look_at_change()
    roster.hear(Prepared(1, number, "no room"), speaker=1)
    assert roster.hear(Drained(0), speaker=0) == [
        (rank, BeginEpoch(1, last=True)) for rank in range(2)
    ]
