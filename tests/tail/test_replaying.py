"""One source's runs: what is sent again, what is not, and why."""

from typing import Any

import pytest

import tailrace as tr
from tailrace.connectors.generate import Generate
from tailrace.runtime.board import SLOT_BYTES, Boards, is_copy
from tailrace.runtime.core import Core
from tailrace.runtime.deployment import deploy
from tailrace.runtime.limits import Limits
from tailrace.runtime.replayable import stretch_workers, why_not
from tailrace.testing import VirtualClock
from tests.runtime.posts import Kept

MS = 1_000_000


class After:
    """What is older than 5 ms is late, and sent again."""

    most_records = 64

    def __init__(self) -> None:
        self.saved: list[int] = []
        self.took: list[int] = []

    def begun(self) -> bool:
        return False

    def note(self, took_ns: int) -> None:
        self.took.append(took_ns)

    def tried(self, saved_ns: int) -> None:
        self.saved.append(saved_ns)

    def timeout_ns(self, now_ns: int) -> int | None:
        return 5 * MS

    def allow(self, busy: float) -> bool:
        return True


def topology(sinks: int = 2) -> tr.Topology:
    made = tr.Topology()
    stream = made.source(tr.sources.rate(1, count=3)).shuffle()
    stream.map(abs, name="map", parallelism=2).shuffle().sink(print, parallelism=sinks)
    return made


class Job:
    """The source in worker 0, maps in 1 and 2, sinks in 3 and 4; only worker 0 runs by itself."""

    def __init__(self, **options: Any) -> None:
        self.memory = [bytearray(8 * SLOT_BYTES) for _ in range(5)]
        self.clock = VirtualClock()
        self.deployment = deploy(topology().graph, [0, 1, 2, 3, 4])
        self.posts = [Kept() for _ in range(5)]
        self.cores = [
            Core(
                rank,
                self.deployment,
                self.clock,
                self.posts[rank],
                limits=Limits(poll_records=1),
                boards=Boards(rank, self.memory.__getitem__),
                **options,
            )
            for rank in range(5)
        ]
        self.policy = After()
        self.cores[0].set_replay(self.policy)

    def round(self, rank: int = 0) -> None:
        while self.cores[rank].round():
            pass

    def sent(self, rank: int) -> list[tuple[int, int, int, list[Any]]]:
        """What has been sent since this was last asked: from, gate, origin, records."""
        messages = self.posts[rank].messages
        found = [
            (rank, gate, item[1], item[2])
            for parcels in messages
            for gate, items in parcels
            for item in items
            if isinstance(item, tuple)
        ]
        messages.clear()
        return found

    def to(self, rank: int, one: tuple[int, int, int, list[Any]]) -> None:
        """Have a worker process what another has sent."""
        sender, gate, origin, records = one
        self.cores[rank].deliver(sender, [(gate, [(0, origin, list(records))])], self.clock())
        self.round(rank)

    def worker_of(self, gate: int) -> int:
        return next(
            one.worker
            for gates in self.deployment.gates.values()
            for one in gates
            if one.number == gate
        )


def test_what_is_late_is_sent_once_more_to_another_worker() -> None:
    job = Job()
    job.round()
    [first] = job.sent(0)
    assert not is_copy(first[2])
    job.clock.now_ns = job.cores[0].next_due_ns() or 0
    assert job.clock.now_ns == 5 * MS
    job.round()
    [again] = job.sent(0)
    assert is_copy(again[2]) and again[3] == first[3]
    assert job.worker_of(again[1]) != job.worker_of(first[1])
    job.clock.now_ns = 100 * MS
    job.round()
    assert not job.sent(0), "once is enough"


def test_of_the_two_copies_the_first_at_any_sink_counts_and_the_other_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = Job()
    job.round()
    [first] = job.sent(0)
    job.clock.now_ns = 5 * MS
    job.round()
    [again] = job.sent(0)
    for one in (again, first):  # the copy overtakes
        worker = job.worker_of(one[1])
        job.to(worker, one)
        [result] = job.sent(worker)
        job.clock.now_ns += MS
        job.to(job.worker_of(result[1]), result)
    assert capsys.readouterr().out == "0\n"
    job.round()
    assert job.policy.took == [7 * MS], "what the original took"
    assert job.policy.saved == [MS]


def test_what_was_emitted_before_a_cut_is_not_sent_again_behind_it() -> None:
    job = Job(epoch=0)
    job.round()
    assert len(job.sent(0)) == 1
    job.cores[0].begin_epoch(1)
    job.clock.now_ns = 5 * MS
    job.round()
    assert not job.sent(0)


def test_what_is_over_is_not_sent_again() -> None:
    job = Job()
    job.round()
    [first] = job.sent(0)
    job.to(job.worker_of(first[1]), first)
    [result] = job.sent(job.worker_of(first[1]))
    job.clock.now_ns = 2 * MS
    job.to(job.worker_of(result[1]), result)
    job.clock.now_ns = 5 * MS
    job.round()
    assert not job.sent(0)
    assert job.policy.took == [2 * MS]


def test_who_was_itself_held_up_waits_a_little_before_it_blames_others() -> None:
    job = Job()
    job.round()
    job.sent(0)
    job.clock.now_ns = 50 * MS
    job.round()
    assert not job.sent(0)
    job.clock.now_ns = job.cores[0].next_due_ns() or 0
    assert 50 * MS < job.clock.now_ns < 55 * MS
    job.round()
    assert len(job.sent(0)) == 1


def test_more_runs_than_the_board_has_slots_for_are_not_tracked() -> None:
    made = tr.Topology()
    stream = made.source(Generate(None, None, 100)).shuffle()
    stream.map(abs, parallelism=2).sink(print, parallelism=2)
    post, memory = Kept(), bytearray(8 * SLOT_BYTES)
    core = Core(
        0,
        deploy(made.graph, [0, 1, 2]),
        VirtualClock(),
        post,
        limits=Limits(poll_records=1),
        boards=Boards(0, lambda rank: memory),
    )
    core.set_replay(After())
    while not core.ended:
        core.round()
    runs = [item for item in post.items if isinstance(item, tuple)]
    assert sum(len(run[2]) for run in runs) == 100
    assert len({run[1] for run in runs if run[1]}) == 8


def test_why_a_source_is_not_replayed_is_said() -> None:
    def why(make: Any, placement: list[int]) -> str:
        made = tr.Topology()
        make(made.source(range(3), name="source"))
        return why_not(deploy(made.graph, placement), "source")

    def wide(stream: Any) -> None:
        stream.shuffle().map(abs, parallelism=2).shuffle().sink(print, parallelism=2)

    def keyed(stream: Any) -> None:
        stream.key_by(abs).scan(lambda state, n: n, parallelism=2).sink(print)

    def letters(stream: Any) -> None:
        made = stream.shuffle().map(abs, name="m", parallelism=2, on_error="dead letter")
        made.dead_letters().sink(print, name="dead", parallelism=1)
        made.shuffle().sink(print, parallelism=2)

    assert why(wide, [0, 1, 2, 0, 1]) == ""
    assert "one worker only" in why(wide, [0, 1, 1, 0, 1])
    assert "goes by key" in why(keyed, [0, 1, 2])
    assert "'m' has dead letters" in why(letters, [0, 1, 2, 0, 1, 2])


def test_all_workers_that_a_run_may_reach_must_share_memory() -> None:
    deployment = deploy(topology().graph, [0, 1, 2, 3, 4])
    assert stretch_workers(deployment, "source") == {1, 2, 3, 4}
    assert why_not(deployment, "source") == ""
    job = Job(shares_memory=lambda rank: rank != 4)
    job.round()
    [first] = job.sent(0)
    assert first[2] == 0, "it is not tracked"
