"""The coordinator's decisions, without a socket."""

from __future__ import annotations

from tailrace.control.coordinator import Roster
from tailrace.control.protocol import Failed, Go, Hello, Peers, Progress, Ready, Stop


def hello(rank: int) -> Hello:
    return Hello(rank, 1000 + rank, "10.0.0.1", "executor", f"ring {rank}", ("10.0.0.1", rank))


def running(workers: int) -> Roster:
    roster = Roster(workers)
    for rank in range(workers):
        roster.hear(hello(rank))
    for rank in range(workers):
        roster.hear(Ready(rank, {}))
    return roster


def test_workers_meet_when_all_are_there_and_start_when_all_are_ready() -> None:
    roster = Roster(2)
    assert roster.hear(hello(1)) == []
    assert roster.hear(hello(0)) == [Peers((hello(0), hello(1)))]
    assert roster.hear(Ready(0, {1: "ring"})) == []
    assert roster.phase == "starting"
    assert roster.hear(Ready(1, {0: "ring"})) == [Go()]
    assert roster.phase == "running"


def test_a_job_is_over_when_every_worker_has_ended() -> None:
    roster = running(2)
    assert roster.hear(Progress(0, 1, ended=True)) == []
    assert roster.hear(Progress(1, 1)) == []
    assert roster.hear(Progress(1, 2, ended=True)) == [Stop(drain=False)]
    assert roster.phase == "stopped"


def test_a_lost_worker_is_named_and_ends_the_job() -> None:
    roster = running(3)
    [stop] = roster.lost(2)
    assert isinstance(stop, Stop)
    assert "worker 2" in stop.error
    assert roster.phase == "failed"
    assert roster.reason == "worker 2 (pid 1002 on 10.0.0.1) is gone: killed, or its host is"


def test_the_first_reason_counts_and_losses_after_the_end_are_no_failure() -> None:
    roster = running(2)
    assert roster.hear(Failed(0, "first", "traceback")) == [
        Stop(drain=False, error="first\n\ntraceback")
    ]
    assert roster.hear(Failed(1, "second", "")) == []
    assert roster.lost(1) == []
    assert (roster.reason, roster.traceback) == ("first", "traceback")


def test_draining_lets_the_workers_end_by_themselves() -> None:
    roster = running(1)
    assert roster.stop(drain=True) == [Stop(drain=True)]
    assert roster.phase == "draining"
    assert roster.hear(Progress(0, 1, ended=True)) == [Stop(drain=False)]
    assert roster.phase == "stopped"


def test_a_job_that_has_not_started_has_nothing_to_drain() -> None:
    roster = Roster(2)
    roster.hear(hello(0))
    assert roster.stop(drain=True) == [Stop(drain=False)]
    assert roster.phase == "stopped"


def test_a_stop_at_once_needs_no_answer() -> None:
    roster = running(1)
    assert roster.stop(drain=False) == [Stop(drain=False)]
    assert roster.over
    assert roster.stop(drain=True) == []
