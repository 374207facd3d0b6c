"""TCP connections: what is sent arrives, nothing blocks, everything is bounded."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.transport.frame import HEADER_BYTES, frame_header
from tailrace.transport.listener import TcpListener
from tailrace.transport.stream import MAY_WAIT, PlainStream
from tailrace.transport.tcp import Refusals, TcpConfig
from tests.transport.world import (
    ACCEPTOR_ID,
    DIALER_ID,
    World,
    authenticated_peer,
)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


def test_frames_go_both_ways_in_order(world: World) -> None:
    dialer, acceptor = world.pair()
    for connection in (dialer, acceptor):
        for number in range(100):
            assert connection.send(number, 2, [b"part one, ", b"", bytes([number])])
        connection.flush()
    expected = [(number, 2, b"part one, " + bytes([number])) for number in range(100)]
    assert world.run_until_received(acceptor, 100) == expected
    assert world.run_until_received(dialer, 100) == expected
    assert (dialer.peer_id, acceptor.peer_id) == (ACCEPTOR_ID, DIALER_ID)


def test_frames_queued_before_the_connection_stands_arrive(world: World) -> None:
    dialer = world.dial()
    assert dialer.send(7, 2, [b"early"])
    dialer.flush()
    assert not dialer.authenticated
    world.run(lambda: bool(world.accepted))
    assert world.run_until_received(world.accepted[0], 1) == [(7, 2, b"early")]


def test_sending_only_queues_until_the_flush(world: World) -> None:
    dialer, acceptor = world.pair()
    dialer.send(1, 2, [b"abc"])
    assert dialer.pending_bytes == HEADER_BYTES + 3
    assert acceptor.on_ready(select.EPOLLIN) == []
    dialer.flush()
    assert dialer.pending_bytes == 0
    assert world.run_until_received(acceptor, 1) == [(1, 2, b"abc")]


def test_a_round_of_frames_is_one_system_call() -> None:
    calls: list[int] = []

    class CountingSocket(socket.socket):
        def sendmsg(self, buffers: Any, *rest: Any) -> int:
            calls.append(sum(map(len, buffers)))
            return calls[-1]

    with CountingSocket() as sock:
        queue: deque[Any] = deque([b"header", b"payload"] * 100)
        assert PlainStream(sock).transmit(queue) == 1300
    assert calls == [1300]
    assert not queue


def test_large_frames_survive_partial_writes(world: World) -> None:
    dialer, acceptor = world.pair()
    payloads = [bytes([number]) * 5_000_000 for number in range(3)]
    for payload in payloads:
        assert dialer.send(1, 2, [payload[:2_000_001], payload[2_000_001:]])
    dialer.flush()
    assert dialer.pending_bytes > 0
    assert dialer.events & select.EPOLLOUT
    assert [frame.payload for frame in world.run_until_received(acceptor, 3)] == payloads
    assert not dialer.events & select.EPOLLOUT


@pytest.mark.skipif(not MAY_WAIT, reason="by this kernel, it could wait for ever")
def test_who_waits_for_a_large_frame_is_woken_for_much_of_it_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.transport.stream.ROOM_BYTES", 0)
    peer, _ = authenticated_peer(world)
    acceptor, size = world.accepted[-1], 1_000_000
    for _ in range(5):  # from then on
        peer.sendall(frame_header(size, 1, 2) + bytes(size))
        world.run_until_received(acceptor, 1)
    peer.sendall(frame_header(size, 1, 2) + bytes(1000))
    world.run(lambda: acceptor.partial_bytes == HEADER_BYTES + 1000)
    peer.sendall(bytes(50_000))
    assert world.epoll.poll(0.05) == []
    peer.sendall(bytes(500_000))
    world.run(lambda: acceptor.partial_bytes > HEADER_BYTES + 1000)
    peer.sendall(bytes(size - 551_000 - 10))
    peer.sendall(bytes(10))  # its last bytes are worth it, however few; so is what is small
    assert [len(one.payload) for one in world.run_until_received(acceptor, 1)] == [size]
    peer.sendall(frame_header(5, 1, 2) + b"small")
    assert world.run_until_received(acceptor, 1) == [(1, 2, b"small")]


def test_frames_of_all_sizes_come_whole_behind_each_other(world: World) -> None:
    dialer, acceptor = world.pair()
    sizes = [0, 10, 32_767, 32_768, 40_000, 5, 131_072, 1, 4_096, 200_001, 33_000, 12, 1_048_577]
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)] * 2
    for payload in payloads:
        assert dialer.send(1, 2, [payload])
    dialer.flush()
    found = world.run_until_received(acceptor, len(payloads))
    assert [frame.payload for frame in found] == payloads


def test_a_full_send_queue_takes_nothing_and_recovers() -> None:
    with World(max_frame_bytes=1000, max_queued_bytes=2500) as world:
        dialer, acceptor = world.pair()
        assert dialer.send(1, 2, [bytes(1000)])
        assert dialer.send(2, 2, [bytes(1000)])
        pending_bytes = dialer.pending_bytes
        assert not dialer.send(3, 2, [bytes(1000)])
        assert dialer.pending_bytes == pending_bytes
        dialer.flush()
        assert dialer.send(4, 2, [bytes(1000)])
        dialer.flush()
        assert [frame.target for frame in world.run_until_received(acceptor, 3)] == [1, 2, 4]


def test_a_frame_above_the_cap_is_refused_at_send(world: World) -> None:
    dialer = world.dial()
    cap_bytes = world.config.max_frame_bytes
    with pytest.raises(
        ValueError, match=f"{cap_bytes + 1} bytes for target 5; the cap is {cap_bytes}"
    ):
        dialer.send(5, 2, [bytes(cap_bytes), b"x"])
    assert not dialer.closed


def test_a_receiver_that_does_not_read_holds_the_sender_back() -> None:
    with World(max_frame_bytes=1_000_000, max_queued_bytes=2_000_000) as world:
        dialer, acceptor = world.pair()
        sent = 0
        while dialer.send(sent, 2, [bytes(1_000_000)]):
            dialer.flush()
            sent += 1
        assert dialer.pending_bytes <= 2_000_000
        assert world.received[acceptor] == []
        frames = world.run_until_received(acceptor, sent)
        assert [frame.target for frame in frames] == list(range(sent))


def test_one_call_reads_a_bounded_number_of_bytes() -> None:
    with World(max_read_bytes=1000) as world:
        dialer, acceptor = world.pair()
        for number in range(100):
            dialer.send(number, 2, [bytes(100 - HEADER_BYTES)])
        dialer.flush()
        frames = acceptor.on_ready(select.EPOLLIN)
        assert len(frames) <= 10
        world.received[acceptor] += frames
        assert len(world.run_until_received(acceptor, 100)) == 100


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_frame_bytes": 0}, "max_frame_bytes is 0"),
        ({"max_frame_bytes": 2**32, "max_queued_bytes": 2**33}, "max_frame_bytes is 4294967296"),
        ({"max_frame_bytes": 100, "max_queued_bytes": 111}, "max_queued_bytes is 111"),
        ({"max_connections": 0}, "max_connections is 0"),
    ],
)
def test_limits_that_cannot_work_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TcpConfig(1, b"secret of the job", **limits)  # type: ignore[arg-type]


def test_the_secret_does_not_show_in_the_config() -> None:
    assert "secret of the job" not in repr(TcpConfig(1, b"secret of the job"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost", ""])
def test_a_listener_wants_one_numeric_address(host: str) -> None:
    with pytest.raises(ValueError, match=host or "''"):
        TcpListener(TcpConfig(1, b"secret of the job"), (host, 0), Refusals())


def test_a_newcomer_takes_the_place_of_the_oldest_stranger() -> None:
    with World(max_unauthenticated=2) as world:
        authenticated = world.pair()[1]
        for _ in range(3):
            world.stranger()
        world.run_until_refused("displaced")
        _, oldest, *younger = world.accepted
        assert oldest.closed
        world.run(lambda: len(world.accepted) == 4)
        assert not any(connection.closed for connection in [authenticated, *younger[:1]])
        world.pair()


def test_strangers_never_displace_authenticated_connections() -> None:
    with World(max_connections=2) as world:
        first, second = world.pair(), world.pair()
        world.stranger()
        world.run_until_refused("too_many")
        assert not any(connection.closed for connection in [*first, *second])
        first[0].close()
        world.run(lambda: first[1].closed)
        world.pair()


def test_a_listener_without_descriptors_pauses_until_the_next_check(world: World) -> None:
    resource = pytest.importorskip("resource")
    probe = socket.socket()
    lowest_free = probe.fileno()
    world.strangers.append(probe)
    probe.connect(world.listener.address)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 1, hard))
    try:
        assert world.listener.on_ready() == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert world.refusals.counts() == {"exhausted": 1}
    assert world.listener.events == 0
    world.listener.tend(world.epoll)
    assert world.epoll.poll(0) == []  # though somebody waits: the loop does not spin on him
    world.wait(0.1)
    assert world.listener.events == select.EPOLLIN
    world.run(lambda: len(world.accepted) == 1)
