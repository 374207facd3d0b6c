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
    [stop] = roster.lost(2, now_s=100.0)
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
    assert roster.lost(1, now_s=100.0) == []
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


def test_a_silent_host_is_named_at_once_also_while_the_job_starts() -> None:
    roster = Roster(2)
    roster.hear(hello(1))
    reason = "worker 1 (pid 1001 on 10.0.0.1) is silent: its host or the network to it is down"
    assert roster.lost(1, now_s=100.0, silent=True) == [Stop(drain=False, error=reason)]
    assert roster.reason == reason


def test_a_worker_lost_at_the_start_leaves_spark_time_to_say_why() -> None:
    roster = Roster(2)
    roster.hear(hello(0))
    assert roster.lost(0, now_s=100.0) == []
    assert roster.tick(102.9) == []
    reason = (
        "Spark ended the workers: ImportError: no numpy; before that,"
        " worker 0 (pid 1000 on 10.0.0.1) is gone: killed, or its host is"
    )
    assert roster.fail("Spark ended the workers: ImportError: no numpy") == [
        Stop(drain=False, error=reason)
    ]
    assert roster.tick(103.0) == []
    assert roster.reason == reason


def test_a_worker_lost_at_the_start_is_the_reason_when_nobody_knows_better() -> None:
    roster = Roster(2)
    roster.hear(hello(0))
    assert roster.lost(0, now_s=100.0) == []
    assert roster.lost(1, now_s=102.0) == []
    assert roster.tick(102.9) == []
    reason = "worker 0 (pid 1000 on 10.0.0.1) is gone: killed, or its host is"
    assert roster.tick(103.0) == [Stop(drain=False, error=reason)]
    assert roster.reason == reason
    assert roster.tick(104.0) == []


def test_a_worker_that_says_nothing_is_not_lost() -> None:
    """It may be in a user's function; whether its host lives is seen by the connection."""
    roster = running(2)
    assert roster.tick(1e9) == []
    assert roster.phase == "running"
