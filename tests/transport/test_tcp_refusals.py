"""TCP against strangers and broken peers: a counted refusal, and nothing else disturbed."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.transport.auth import HELLO_BYTES, PROOF_BYTES, Handshake, Role
from tailrace.transport.frame import HEADER_BYTES, frame_header
from tailrace.transport.listener import TcpListener
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection
from tests.transport.world import (
    ACCEPTOR_ID,
    DIALER_ID,
    Clock,
    World,
    authenticated_peer,
    descriptors,
)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


def test_a_wrong_secret_closes_both_ends(world: World) -> None:
    refusals = Refusals()
    dialer = world.dial(config={"secret": b"a guess of the secret"}, refusals=refusals)
    dialer.send(1, 2, [b"never seen"])
    world.run_until_refused("truncated")
    assert refusals.counts() == {"bad_proof": 1}
    assert "bad_proof" in (dialer.close_reason or "")
    assert world.accepted[0].closed
    assert world.received[world.accepted[0]] == []


def test_a_peer_with_another_protocol_is_refused_and_the_others_go_on(world: World) -> None:
    dialer, acceptor = world.pair()
    world.stranger(b"GET / HTTP/1.1\r\n")
    world.run_until_refused("bad_magic")
    assert "GET / HTT" in (world.accepted[1].close_reason or "")
    dialer.send(1, 2, [b"undisturbed"])
    dialer.flush()
    assert world.run_until_received(acceptor, 1) == [(1, 2, b"undisturbed")]


def test_a_dialer_of_another_worker_is_refused(world: World) -> None:
    dialer = world.dial(peer_id=9)
    world.run_until_refused("wrong_worker")
    world.run(lambda: dialer.closed)


def test_a_replayed_handshake_is_refused(world: World) -> None:
    _, said = authenticated_peer(world)
    world.stranger(said)
    world.run_until_refused("bad_proof")
    first, second = world.accepted
    assert second.closed
    assert not first.closed


def test_a_dialer_refuses_a_mirror() -> None:
    with World() as world, socket.create_server(("127.0.0.1", 0)) as mirror:
        refusals = Refusals()
        dialer = world.dial(address=mirror.getsockname(), refusals=refusals)
        reflected, _ = mirror.accept()
        with reflected:
            world.run(lambda: not dialer.pending_bytes)
            reflected.sendall(reflected.recv(HELLO_BYTES))
            world.run(lambda: dialer.closed)
        assert refusals.counts() == {"bad_role": 1}


def test_a_slow_handshake_ends_at_the_deadline_however_it_trickles(world: World) -> None:
    slow = world.stranger(b"T")
    world.run(lambda: len(world.accepted) == 1)
    for letter in b"AILRACE":
        world.wait(0.6)
        assert not world.accepted[0].closed
        slow.sendall(bytes([letter]))
        world.accepted[0].on_ready(select.EPOLLIN)
    world.wait(0.8)
    assert world.refusals.counts() == {"deadline": 1}
    assert world.accepted[0].close_reason == "deadline: not authenticated after 5000 ms"


def test_silent_strangers_end_at_the_deadline_and_nobody_else(world: World) -> None:
    dialer, acceptor = world.pair()
    world.stranger()
    world.run(lambda: len(world.accepted) == 2)
    world.wait(world.config.handshake_ms / 1000)
    dialer.check_deadline()
    assert world.refusals.counts() == {"deadline": 1}
    assert not dialer.closed
    assert not acceptor.closed


def test_who_did_not_look_blames_nobody_for_being_late(world: World) -> None:
    """A worker inside a slow operator: the dialer's answer has long been there."""
    dialer = world.dial()
    world.run(lambda: len(world.accepted) == 1)
    world.clock.now_ns += 3600 * 10**9
    world.listener.tend(world.epoll)
    assert not world.accepted[0].closed
    world.run(lambda: dialer.authenticated and world.accepted[0].authenticated)
    assert world.refusals.counts() == {}


def test_strangers_are_not_looked_after_at_every_look(world: World) -> None:
    world.stranger()
    world.run(lambda: len(world.accepted) == 1)
    for _ in range(1000):
        world.clock.now_ns += 90_000  # looks that follow each other closely add up, too
        world.listener.tend(world.epoll)
    assert not world.accepted[0].closed
    for _ in range(100_000):
        world.clock.now_ns += 90_000
        world.listener.tend(world.epoll)
    assert world.accepted[0].closed


def test_a_dialer_that_gets_no_answer_ends_at_the_deadline() -> None:
    with World() as world, socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = world.dial(address=silent.getsockname())
        world.run(lambda: not dialer.pending_bytes)
        world.clock.now_ns += world.config.dial_ms * 1_000_000
        dialer.check_deadline()
        assert dialer.closed


def test_nothing_but_the_hello_is_said_to_who_has_not_proven_himself() -> None:
    with World() as world, socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = world.dial(address=silent.getsockname())
        assert dialer.send(1, 2, [b"a record"])
        world.run(lambda: dialer.pending_bytes == HEADER_BYTES + len(b"a record"))
        dialer.flush()
        listening, _ = silent.accept()
        with listening:
            assert len(listening.recv(1000)) == HELLO_BYTES
            listening.setblocking(False)
            with pytest.raises(BlockingIOError):
                listening.recv(1000)


def test_an_oversized_frame_of_an_authenticated_peer_is_refused(world: World) -> None:
    dialer, acceptor = world.pair()
    too_long = world.config.max_frame_bytes + 1
    good = frame_header(4, 1, 2) + b"good"
    peer, _ = authenticated_peer(world)
    peer.sendall(good + frame_header(too_long, 1, 2))
    world.run_until_refused("oversized")
    assert f"frame of {too_long} bytes" in (world.accepted[-1].close_reason or "")
    assert world.received[world.accepted[-1]] == [(1, 2, b"good")]
    assert not dialer.closed
    assert not acceptor.closed


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_frame_cut_short_is_refused(world: World, size: int) -> None:
    peer, _ = authenticated_peer(world)
    peer.sendall(frame_header(size, 1, 2) + b"half")
    world.run(lambda: world.accepted[-1].partial_bytes == 16)
    peer.close()  # also where much is waited for: it is sure not to come
    world.run_until_refused("truncated")
    assert "after 16 B of a frame" in (world.accepted[-1].close_reason or "")


def test_a_peer_that_ends_between_frames_is_no_refusal(world: World) -> None:
    dialer, acceptor = world.pair()
    dialer.close()
    world.run(lambda: acceptor.closed)
    assert acceptor.close_reason == "closed by the peer"
    assert world.refusals.counts() == {}


def test_a_port_nobody_listens_at_shows_as_closed(world: World) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        dialer = world.dial(address=deaf.getsockname())
        world.run(lambda: dialer.closed)
    assert "cannot connect" in (dialer.close_reason or "")
    with pytest.raises(ConnectionError, match="cannot connect"):
        dialer.send(1, 2, [b"too late"])
    dialer.flush()
    assert dialer.on_ready(select.EPOLLIN) == []
    assert (dialer.events, dialer.fileno(), dialer.pending_bytes) == (0, -1, 0)


def test_refusals_are_counted_always_and_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    for _ in range(1000):
        refusals.note("oversized", "frame of 99 bytes")
    clock.now_ns += 1_000_000_000
    refusals.note("oversized", "frame of 98 bytes")
    assert refusals.counts() == {"oversized": 1001}
    assert [record.getMessage() for record in caplog.records] == [
        "refused, oversized: frame of 99 bytes (1 so far)",
        "refused, oversized: frame of 98 bytes (1001 so far)",
    ]


HELLO = Handshake(
    Role.DIALER, b"secret of the job", DIALER_ID, peer_id=ACCEPTOR_ID, nonce=bytes(32)
).opening
FRAMES = frame_header(5, 1, 2) + b"hello" + frame_header(0, 1, 2)


@st.composite
def mutated(draw: st.DrawFn, valid: bytes) -> bytes:
    """Bytes that are nearly right, so that the fuzz gets past the first check."""
    changed = bytearray(valid)
    for position in draw(st.lists(st.integers(0, len(valid) - 1), max_size=3)):
        changed[position] ^= 1 << draw(st.integers(0, 7))
    return bytes(changed[: draw(st.integers(0, len(valid)))] + draw(st.binary(max_size=40)))


hostile_bytes = st.binary(max_size=3000) | mutated(HELLO + bytes(PROOF_BYTES)) | mutated(FRAMES)


def test_no_bytes_of_strangers_or_peers_disturb_a_valid_connection() -> None:
    before = descriptors()
    with World(max_frame_bytes=1000, max_queued_bytes=2000) as world:
        dialer, acceptor = world.pair()

        @settings(max_examples=200)
        @example(as_peer=False, first=b"GET / HTTP/1.1", second=b"")
        @example(as_peer=True, first=frame_header(1001, 1, 2), second=b"")
        @example(as_peer=True, first=frame_header(9, 1, 2), second=b"short")
        @given(st.booleans(), hostile_bytes, st.binary(max_size=100))
        def check(as_peer: bool, first: bytes, second: bytes) -> None:
            del world.accepted[1:]
            hostile = authenticated_peer(world)[0] if as_peer else world.stranger()
            with hostile, contextlib.suppress(ConnectionError):  # it may be refused meanwhile
                hostile.sendall(first)
                hostile.sendall(second)
            dialer.send(1, 2, [first[:1000]])
            dialer.flush()
            assert world.run_until_received(acceptor, 1) == [(1, 2, first[:1000])]
            world.run(lambda: len(world.accepted) == 2 and world.accepted[1].closed)

        check()
        assert not dialer.closed
        assert not acceptor.closed
        reasons = set(world.refusals.counts())
        assert {"bad_magic", "oversized", "truncated"} <= reasons
    assert descriptors() == before


def test_no_descriptor_is_left_behind_however_connections_end() -> None:
    before = descriptors()
    for reason in ("bad_magic", "oversized"):
        with World(max_frame_bytes=1000) as world:
            world.pair()
            if reason == "bad_magic":
                world.stranger(b"nonsense")
            else:
                authenticated_peer(world)[0].sendall(b"\xff" * HEADER_BYTES)
            world.run_until_refused(reason)
    assert descriptors() == before
    with pytest.raises(ValueError, match="secret has 5 bytes"):
        TcpConnection.connect(TcpConfig(1, b"short"), ("127.0.0.1", 1), 2, Refusals())
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        TcpListener(TcpConfig(1, b"secret of the job"), taken.getsockname(), Refusals())
    assert descriptors() == before
