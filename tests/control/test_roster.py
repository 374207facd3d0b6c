"""The coordinator's decisions, without a socket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.control.protocol import (
    VERSION,
    Failed,
    Go,
    Hello,
    Peers,
    Progress,
    Ready,
    Settings,
    Stop,
    Suspects,
    pack,
    unpack,
)
from tailrace.control.roster import ALL, Roster
from tailrace.control.seating import seat

GONE = "is gone: killed (kill -9, out of memory, a crash in native code), or its host is"


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
    peers = Peers((hello(0), hello(1)), seats=(0, 1))
    assert roster.hear(hello(0)) == [(0, peers), (1, peers)]
    assert roster.hear(Ready(0, {1: "ring"})) == []
    assert roster.phase == "starting"
    assert roster.hear(Ready(1, {0: "ring"})) == [(ALL, Go())]
    assert roster.phase == "running"


def test_a_job_is_over_when_every_worker_has_ended() -> None:
    roster = running(2)
    assert roster.hear(Progress(0, 1, ended=True)) == []
    assert roster.hear(Progress(1, 1)) == []
    assert roster.hear(Progress(1, 2, ended=True)) == [(ALL, Stop(drain=False))]
    assert roster.phase == "stopped"


def test_a_report_is_unpacked_when_somebody_looks() -> None:
    sent = Progress(3, 1, ended=True, cpu_s=2.5, sent={"a -> b": 7}, queued={"a": 5})
    came = unpack(pack(sent))
    assert isinstance(came, Progress)
    assert (came.rank, came.ended, came.cpu_s) == (3, True, 2.5)
    assert "queued" not in vars(came)
    assert unpack(pack(came)) == sent
    assert came.queued == {"a": 5}
    assert came == sent
    assert not hasattr(came, "no such thing")


def test_a_report_may_be_looked_at_by_many_threads_at_once() -> None:
    for _ in range(200):
        came = unpack(pack(Progress(3, 1, sent={"a -> b": 7}, queued={"a": 5})))
        with ThreadPoolExecutor(4) as threads:
            looks = [threads.submit(getattr, came, name) for name in ("sent", "queued") * 2]
        assert [look.result() for look in looks] == [{"a -> b": 7}, {"a": 5}] * 2


def test_many_workers_report_less_often() -> None:
    few, many = (Settings(workers, ("h", 1), b"", b"") for workers in (400, 3000))
    assert (few.report_s, many.report_s) == (0.5, 3.0)


def test_a_lost_worker_is_named_and_ends_the_job() -> None:
    roster = running(3)
    [(to, stop)] = roster.lost(2, now_s=100.0)
    assert to is ALL
    assert isinstance(stop, Stop)
    assert "worker 2" in stop.error
    assert roster.phase == "failed"
    assert roster.reason == f"worker 2 (pid 1002 on 10.0.0.1) {GONE}"


def test_the_first_reason_counts_and_losses_after_the_end_are_no_failure() -> None:
    roster = running(2)
    assert roster.hear(Failed(0, "first", "traceback")) == [
        (ALL, Stop(drain=False, error="first\n\ntraceback"))
    ]
    assert roster.hear(Failed(1, "second", "")) == []
    assert roster.lost(1, now_s=100.0) == []
    assert (roster.reason, roster.traceback) == ("first", "traceback")


def test_draining_lets_the_workers_end_by_themselves() -> None:
    roster = running(1)
    assert roster.stop(drain=True) == [(ALL, Stop(drain=True))]
    assert roster.phase == "draining"
    assert roster.hear(Progress(0, 1, ended=True)) == [(ALL, Stop(drain=False))]
    assert roster.phase == "stopped"


def test_a_job_that_has_not_started_has_nothing_to_drain() -> None:
    roster = Roster(2)
    roster.hear(hello(0))
    assert roster.stop(drain=True) == [(ALL, Stop(drain=False))]
    assert roster.phase == "stopped"


def test_a_stop_at_once_needs_no_answer() -> None:
    roster = running(1)
    assert roster.stop(drain=False) == [(ALL, Stop(drain=False))]
    assert roster.over
    assert roster.stop(drain=True) == []


def test_a_silent_host_is_named_at_once_also_while_the_job_starts() -> None:
    roster = Roster(2)
    roster.hear(hello(1))
    reason = "worker 1 (pid 1001 on 10.0.0.1) is silent: its host or the network to it is down"
    assert roster.lost(1, now_s=100.0, silent=True) == [(ALL, Stop(drain=False, error=reason))]
    assert roster.reason == reason


def test_a_worker_lost_at_the_start_leaves_spark_time_to_say_why() -> None:
    roster = Roster(2)
    roster.hear(hello(0))
    assert roster.lost(0, now_s=100.0) == []
    assert roster.tick(102.9) == []
    reason = (
        "Spark ended the workers: ImportError: no numpy; before that,"
        f" worker 0 (pid 1000 on 10.0.0.1) {GONE}"
    )
    assert roster.fail("Spark ended the workers: ImportError: no numpy") == [
        (ALL, Stop(drain=False, error=reason))
    ]
    assert roster.tick(103.0) == []
    assert roster.reason == reason


def test_a_worker_lost_at_the_start_is_the_reason_when_nobody_knows_better() -> None:
    roster = Roster(2)
    roster.hear(hello(0))
    assert roster.lost(0, now_s=100.0) == []
    assert roster.lost(1, now_s=102.0) == []
    assert roster.tick(102.9) == []
    reason = f"worker 0 (pid 1000 on 10.0.0.1) {GONE}"
    assert roster.tick(103.0) == [(ALL, Stop(drain=False, error=reason))]
    assert roster.reason == reason
    assert roster.tick(104.0) == []


def test_a_worker_that_says_nothing_is_not_lost() -> None:
    """It may be in a user's function; whether its host lives is seen by the connection."""
    roster = running(2)
    assert roster.tick(1e9) == []
    assert roster.phase == "running"


def test_a_copy_of_a_worker_hears_nothing_until_all_is_over() -> None:
    roster = Roster(1)
    assert [to for to, _ in roster.hear(hello(0), speaker=7)] == [0]
    assert roster.hear(replace(hello(0), pid=5), speaker=8) == []
    assert roster.hellos[0].pid == 1000
    assert roster.speakers == {0: 7}
    assert roster.hear(Failed(0, "a copy gave up", ""), speaker=8) == []
    assert roster.lost(0, now_s=1.0, speaker=8) == []
    assert roster.phase == "starting"
    assert roster.hear(Ready(0, {}), speaker=7) == [(ALL, Go())]


def test_before_all_have_met_a_lost_worker_is_replaced_by_its_copy_or_its_next_task() -> None:
    roster = Roster(2, replaced=True)
    roster.hear(hello(0), speaker=1)
    roster.hear(replace(hello(0), pid=5), speaker=2)
    assert roster.lost(0, now_s=1.0, speaker=1) == []
    assert (roster.hellos[0].pid, roster.speakers) == (5, {0: 2})
    assert roster.lost(0, now_s=2.0, silent=True, speaker=2) == []
    assert roster.hellos == {}
    roster.hear(hello(1), speaker=3)
    orders = roster.hear(replace(hello(0), pid=6), speaker=4)
    assert [to for to, _ in orders] == [0, 1]
    assert roster.tick(1e9) == []


def test_once_they_have_met_a_lost_worker_is_the_end_also_where_spark_tries_again() -> None:
    roster = Roster(1, replaced=True)
    roster.hear(hello(0), speaker=1)
    roster.hear(Ready(0, {}), speaker=1)
    roster.hear(hello(0), speaker=2)
    [(to, stop)] = roster.lost(0, now_s=1.0, speaker=1)
    assert to is ALL
    assert isinstance(stop, Stop)
    assert roster.phase == "failed"


def test_a_task_that_comes_when_all_is_over_is_sent_home() -> None:
    roster = Roster(2)
    roster.hear(hello(0), speaker=1)
    roster.fail("enough")
    assert roster.hear(hello(1), speaker=2) == [(1, Stop(drain=False, error="enough"))]


def test_who_has_lost_a_peer_waits_for_what_the_coordinator_finds() -> None:
    roster = running(3)
    roster.tick(100.0)
    assert roster.hear(Suspects(0, 2, "closed by the peer")) == []
    assert roster.hear(Suspects(1, 2, "closed by the peer")) == []
    assert roster.phase == "running"
    roster.lost(2, now_s=100.1)
    assert roster.reason == f"worker 2 (pid 1002 on 10.0.0.1) {GONE}"


def test_peers_that_lost_each_other_are_both_named_when_neither_is_gone() -> None:
    roster = running(2)
    roster.tick(100.0)
    roster.hear(Suspects(0, 1, "connection timed out"))
    assert roster.tick(105.9) == []
    roster.tick(106.0)
    assert roster.reason == (
        "worker 0 (pid 1000 on 10.0.0.1) has lost worker 1 (pid 1001 on 10.0.0.1), which still"
        " answers the driver: connection timed out. Can their hosts reach each other?"
    )


def test_another_version_is_refused_and_both_are_named() -> None:
    roster = Roster(2)
    other = "tailrace 0.0.1 (protocol 1, Python 3.9)"
    [(to, _)] = roster.hear(replace(hello(1), version=other))
    assert to is ALL
    assert roster.reason.startswith(
        f"worker 1 (pid 1001 on 10.0.0.1) runs {other}; the driver runs {VERSION}. Install"
    )


def met(wanted: tuple[int, ...], hosts: str, node: str = "memory") -> Roster:
    """All workers have come, worker i from the host (and executor) of letter i."""
    roster = Roster(len(hosts), wanted, node)
    for rank, host in enumerate(hosts):
        roster.hear(replace(hello(rank), host=host, executor=f"{host} {rank % 2}"))
    return roster


def test_places_of_a_plan_go_to_workers_of_one_host() -> None:
    roster = met((0, 0, 1, 1), "abab")
    assert roster.seats == (0, 2, 1, 3)
    assert roster.seated((0, 1, 2, 3, 3)) == (0, 2, 1, 3, 3)


def test_workers_are_told_their_seats() -> None:
    roster = Roster(2, wanted=(1, 0))
    assert roster.seated((0, 1, 1)) == (0, 1, 1)  # nobody knows yet
    roster.hear(replace(hello(0), host="a"))
    [(_, peers), _] = roster.hear(replace(hello(1), host="b"))
    assert isinstance(peers, Peers)
    assert peers.seats == (0, 1)


def test_hosts_with_different_numbers_of_workers_get_the_places_that_fit() -> None:
    assert met((0, 0, 0, 1), "abbb").seats == (1, 2, 3, 0)


def test_on_one_node_and_without_a_plan_place_and_rank_are_the_same() -> None:
    assert met((0, 0, 0), "aaa").seats == (0, 1, 2)
    assert met((), "aba").seats == (0, 1, 2)


@pytest.mark.parametrize(
    ("node", "gave"),
    [
        ("memory", "2 nodes with 5 and 3 workers"),
        ("executor", "4 nodes with 3, 2, 2 and 1 workers"),
        ("worker", "8 nodes with 1 worker each"),
    ],
)
def test_workers_that_stand_otherwise_fail_the_job_at_once(node: str, gave: str) -> None:
    roster = met((0, 0, 0, 0, 1, 1, 1, 1), "aaaaabbb", node)
    assert roster.phase == "failed"
    assert roster.reason == f"the plan wants 2 nodes with 4 workers each; Spark gave {gave}"


def test_what_counts_as_a_node_is_the_jobs_to_say() -> None:
    assert met((0, 0, 1, 1), "aaaa", "executor").seats == (0, 2, 1, 3)
    assert met((0, 1), "aa", "worker").seats == (0, 1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.randoms())
def test_everybody_sits_once_and_who_shares_a_node_does(wanted: list[int], random: object) -> None:
    homes = [f"host {node}" for node in wanted]
    random.shuffle(homes)  # type: ignore[attr-defined]
    seats = seat(wanted, homes)
    assert sorted(seats) == list(range(len(wanted)))
    for one, first in enumerate(wanted):
        for other, second in enumerate(wanted):
            assert (first == second) == (homes[seats[one]] == homes[seats[other]])
