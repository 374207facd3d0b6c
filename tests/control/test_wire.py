"""What workers and coordinator send over sockets, and what strangers there can do."""

from __future__ import annotations

import pickle
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import tailrace as tr
from tailrace.control.coordinator import Coordinator
from tailrace.control.feed import KIND_FEED
from tailrace.control.protocol import (
    GUEST_ID,
    KIND,
    Failed,
    Settings,
    Stop,
    pack,
    shortened,
    unpack,
)
from tailrace.control.waiting import Rest, Sleep
from tailrace.control.worker import Worker
from tailrace.runtime.core import DEFAULT_LIMITS
from tailrace.runtime.source import FedReader, Reply
from tailrace.transport.frame import Frame
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

PATIENCE_S = 60.0
WORD = "a word that everybody on the path can read"


class Pair:
    """Two workers that share no memory, each in a thread."""

    def __init__(
        self,
        topology: tr.Topology,
        tls: bool = False,
        *,
        policies: Sequence[Watched] = (),
        placement: tuple[int, ...] = (0, 1),
        **options: Any,
    ) -> None:
        self.over = threading.Event()
        self.coordinator = Coordinator(2, "127.0.0.1", self.over.set, tls=tls, **options)
        self._job = topology.graph, placement, DEFAULT_LIMITS
        self._policies = policies
        self.settings = Settings(
            2,
            self.coordinator.address,
            self.coordinator.secret,
            b"",
            node="worker",
            progress_s=0.05,
            **options,
        )
        self.workers: list[Worker] = []
        self._threads = [threading.Thread(target=self._run, args=(rank,)) for rank in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self, rank: int) -> None:
        policy = self._policies[rank] if self._policies else None
        worker = Worker(self.settings, rank, "here", self._job, policy)
        if policy is not None:
            policy.worker = worker
        self.workers.append(worker)
        worker.run()

    def join(self) -> str:
        """Wait for its end; why it failed."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self.coordinator.join(PATIENCE_S)
        return self.coordinator.roster.reason

    def await_running(self) -> None:
        assert self.coordinator.started.wait(PATIENCE_S)
        assert self.coordinator.roster.phase == "running"

    def address(self, rank: int) -> tuple[str, int]:
        return self.coordinator.roster.hellos[rank].address

    def refusals(self, rank: int) -> dict[str, int]:
        """As the worker last reported; nothing before its first report."""
        report = self.coordinator.roster.progress.get(rank)
        return report.refusals if report else {}


def words(seen: list[str]) -> tr.Topology:
    topology = tr.Topology()
    topology.source([WORD] * 100).shuffle().sink(seen.append)
    return topology


def endless() -> tr.Topology:
    topology = tr.Topology()
    topology.source(tr.sources.rate(1000)).shuffle().sink(lambda _: None)
    return topology


@pytest.fixture
def overheard(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bytes]:
    """All that this process hands to its sockets from now on."""
    heard: list[bytes] = []
    send, sendmsg = socket.socket.send, socket.socket.sendmsg

    def tapped_send(self: socket.socket, data: Any, *rest: Any) -> int:
        sent = send(self, data, *rest)
        heard.append(bytes(data[:sent]))
        return sent

    def tapped_sendmsg(self: socket.socket, buffers: Any, *rest: Any) -> int:
        kept = list(buffers)
        sent = sendmsg(self, kept, *rest)
        heard.append(b"".join(kept)[:sent])
        return sent

    monkeypatch.setattr(socket.socket, "send", tapped_send)
    monkeypatch.setattr(socket.socket, "sendmsg", tapped_sendmsg)
    return lambda: b"".join(heard)


@pytest.mark.parametrize("tls", [False, True])
def test_listeners_learn_no_secret_and_with_tls_no_record(
    tls: bool, overheard: Callable[[], bytes]
) -> None:
    seen: list[str] = []
    pair = Pair(words(seen), tls)
    assert pair.join() == ""
    assert seen == [WORD] * 100
    heard = overheard()
    assert len(heard) > 1000
    assert (WORD.encode() in heard) is not tls
    welcome = pair.workers[0]._welcome
    assert welcome is not None
    assert (welcome.identity is not None) is tls
    for secret in (welcome.secret, pair.settings.secret, pair.settings.secret[:32]):
        assert secret not in heard
    assert b"tailrace.control.protocol" not in heard  # no control message, pickled, in clear


def test_what_a_task_carries_is_not_enough_to_pass_for_a_worker() -> None:
    """Somebody read the secret off Spark's wire: he may feed, as tasks do, and nothing else."""
    pair = Pair(endless())
    pair.await_running()
    secret = pair.settings.secret
    refusals = Refusals()
    as_worker = TcpConnection.connect(TcpConfig(0, secret), pair.address(1), 1, refusals)
    _drive(as_worker, lambda: as_worker.closed)
    assert refusals.counts() == {"bad_proof": 1}
    as_guest = TcpConnection.connect(TcpConfig(GUEST_ID, secret), pair.address(1), 1, Refusals())
    as_guest.send(0, KIND, [pickle.dumps("code to run")])
    _drive(as_guest, lambda: as_guest.closed)
    _until(lambda: pair.refusals(1).get("not_a_worker") == 1)
    pair.coordinator.stop(drain=True)
    assert pair.join() == ""


class Fed(FedReader):
    """Takes its word for what comes, and chokes on all else."""

    def receive(self, payload: bytes | memoryview, reply: Reply) -> None:
        reply(str(int(bytes(payload))).encode())

    def poll(self, most: int) -> list[Any]:
        return []

    def due_ns(self) -> int | None:
        return None


class FedSource(tr.Source):
    def open(self, *_: Any, **__: Any) -> Fed:
        return Fed()


def test_a_guest_that_sends_nonsense_loses_its_connection_and_the_job_goes_on() -> None:
    topology = tr.Topology()
    topology.source(FedSource()).shuffle().sink(lambda _: None)
    pair = Pair(topology)
    pair.await_running()
    config = TcpConfig(GUEST_ID, pair.settings.secret)
    mad, sane = (TcpConnection.connect(config, pair.address(0), 0, Refusals()) for _ in range(2))
    mad.send(0, KIND_FEED, [b"nonsense"])
    _drive(mad, lambda: mad.closed)
    _until(lambda: pair.refusals(0) == {"bad_feed": 1})
    sane.send(0, KIND_FEED, [b"42"])
    assert [frame.payload for frame in _drive_until_heard(sane)] == [b"42"]
    sane.close()
    pair.coordinator.stop(drain=False)
    assert pair.join() == ""


def test_silent_strangers_are_dropped_and_show_in_progress() -> None:
    pair = Pair(endless(), tls=True)
    pair.await_running()
    strangers = [socket.create_connection(pair.address(1)) for _ in range(20)]
    strangers += [socket.create_connection(pair.coordinator.address) for _ in range(20)]
    for stranger in strangers:
        stranger.settimeout(PATIENCE_S)
        assert stranger.recv(1) == b""  # hung up on, by a worker that has much else to do
        stranger.close()
    _until(lambda: pair.refusals(1).get("deadline") == 20)
    _until(lambda: pair.coordinator.roster.refusals.get("deadline") == 20)
    pair.coordinator.stop(drain=True)
    assert pair.join() == ""


def test_all_listen_within_the_range_of_ports() -> None:
    ports = _free_range(3)
    seen: list[str] = []
    pair = Pair(words(seen), ports=ports)
    pair.join()
    hellos = pair.coordinator.roster.hellos.values()
    used = [pair.coordinator.address[1], *(hello.address[1] for hello in hellos)]
    assert sorted(used) == list(range(ports[0], ports[1] + 1))
    assert len(seen) == 100


def test_a_range_that_is_too_small_fails_the_job_and_is_named() -> None:
    first, _ = _free_range(2)
    pair = Pair(words([]), ports=(first, first + 1))
    reason = pair.join()
    assert f"none of the 2 ports from {first} to {first + 1} is free at 127.0.0.1" in reason


def test_who_cannot_reach_a_peer_says_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = TcpConnection.connect
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        closed = nobody.getsockname()

    def behind_a_firewall(config: Any, address: Any, peer_id: int, *rest: Any, **ways: Any) -> Any:
        return connect(config, closed if peer_id == 1 else address, peer_id, *rest, **ways)

    monkeypatch.setattr(TcpConnection, "connect", behind_a_firewall)
    reason = Pair(words([])).join()
    assert "worker 0 cannot reach worker 1 at ('127.0.0.1'" in reason
    assert "Connection refused" in reason
    assert "ports=" in reason


def test_the_reason_of_a_failure_arrives_however_long_it_is() -> None:
    def fail(record: str) -> None:
        raise ValueError("the beginning" + "x" * 40_000_000 + "the end")

    topology = tr.Topology()
    topology.source([WORD]).shuffle().sink(fail)
    pair = Pair(topology)
    reason = pair.join()
    roster = pair.coordinator.roster
    assert roster.phase == "failed"
    assert "failed on" in reason
    assert "the beginning" in roster.traceback
    assert "the end" in roster.traceback
    assert "characters left out" in roster.traceback
    assert all("the end" in worker.error for worker in pair.workers)


def test_texts_of_failures_are_cut_and_others_are_not() -> None:
    long = "a" * 10_000_000
    assert len(pack(Failed(0, long, long))) < 1_000_000
    assert len(pack(Stop(False, long))) < 1_000_000
    assert unpack(pack(Failed(0, "why", "where"))) == Failed(0, "why", "where")
    assert shortened("short") == "short"


def _drive(connection: TcpConnection, done: Callable[[], bool]) -> None:
    with select.epoll() as epoll:
        epoll.register(connection.fileno(), connection.events)
        while not done():
            for _, events in epoll.poll(0.05):
                connection.on_ready(events)
            if not connection.closed:
                epoll.modify(connection.fileno(), connection.events)


def _drive_until_heard(connection: TcpConnection) -> list[Frame]:
    with select.epoll() as epoll:
        epoll.register(connection.fileno(), connection.events)
        while True:
            for _, events in epoll.poll(0.05):
                if frames := connection.on_ready(events):
                    return frames
            assert not connection.closed, connection.close_reason
            epoll.modify(connection.fileno(), connection.events)


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.02)


def _free_range(count: int) -> tuple[int, int]:
    """Ports in a row that nobody has."""
    for first in range(41_000, 60_000, 50):
        with suppress(OSError), ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first, first + count - 1
    raise AssertionError("no free ports")


class Watched(Sleep):
    """Sleeps until woken, and notes when it would with something left to do."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.slept_on: list[str] = []

    def decide(self, now_ns: int, due_ns: int | None, crowded: bool) -> Rest:
        core = self.worker.core if self.worker is not None else None
        if core is not None and core.backlog:
            self.slept_on.append(f"worker {core.rank}")
            return Rest()
        return super().decide(now_ns, due_ns, crowded)


def test_nobody_sleeps_on_what_sockets_have_brought_since_the_last_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes by a ring rings a bell; what a look at the sockets has taken does not again."""
    monkeypatch.setattr("tailrace.control.sockets.LOOK_AT_OTHERS_NS", 0)
    topology = tr.Topology()
    stream = topology.source(range(100_000), name="numbers").shuffle().map(abs, name="there")
    back = stream.shuffle().map(abs, name="back")
    back.shuffle().sink(lambda _: None)
    policies = [Watched(), Watched()]
    pair = Pair(topology, policies=policies, placement=(0, 1, 0, 1))
    assert pair.join() == ""
    assert all(policy.worker is not None for policy in policies)
    assert [one for policy in policies for one in policy.slept_on] == []
