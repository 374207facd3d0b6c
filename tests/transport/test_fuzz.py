"""Random and mutated bytes against everything that reads from a socket.

Whatever comes, the end of it is one counted refusal, nothing is delivered that was not sent, and
the acceptor serves those who come after. `FUZZ_ROUNDS` makes it longer, `FUZZ_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.transport.auth import Handshake, HandshakeError, Role
from tailrace.transport.decoder import FrameDecoder
from tailrace.transport.frame import HEADER_BYTES, Frame, FrameError, frame_header
from tailrace.transport.identity import Identity, dialer_context
from tests.transport.world import ACCEPTOR_ID, DIALER_ID, World

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "150"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
SECRET = b"secret of the job"
CAP_BYTES = 1 << 16
IDENTITY = Identity.make()
REASONS = {
    "bad_magic",
    "bad_version",
    "bad_role",
    "bad_proof",
    "wrong_worker",
    "truncated",
    "oversized",
    "malformed",
    "deadline",
    "displaced",
    "tls",
}


def mutated(rng: random.Random, original: bytes) -> bytes:
    """The same bytes with some of them changed, left out, put in twice or cut off."""
    data = bytearray(original)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 40))
            case 2:
                del data[at : at + rng.randrange(1, 40)]
            case 3:
                data[at:at] = data[: rng.randrange(len(data) + 1)]
            case 4:
                del data[max(at, 1) :]
    return bytes(data)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.lists(st.binary(max_size=100), max_size=10), st.sampled_from(Role))
@settings(max_examples=300)
def test_a_handshake_refuses_whatever_is_none(chunks: list[bytes], role: Role) -> None:
    shake = Handshake(role, SECRET, 2, nonce=bytes(32), peer_id=1)
    for chunk in chunks:
        with suppress(HandshakeError):
            reply, _ = shake.feed(chunk)
            assert len(reply) < 200
    assert not shake.done


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
@settings(max_examples=300)
def test_a_decoder_delivers_or_refuses_and_holds_no_more_than_a_frame(
    chunks: list[bytes], data: st.DataObject
) -> None:
    decoder, frames = FrameDecoder(CAP_BYTES), list[Frame]()
    for chunk in chunks:
        try:
            if decoder.missing_bytes and data.draw(st.booleans()):
                room = decoder.missing()
                size = min(len(room), len(chunk))
                room[:size] = chunk[:size]
                decoder.filled(size, frames)
                chunk = chunk[size:]
            decoder.feed(chunk, frames)
        except FrameError as error:
            assert error.reason in REASONS
            with pytest.raises(FrameError):
                decoder.feed(b"more", frames)
            break
        assert decoder.partial_bytes <= CAP_BYTES + HEADER_BYTES
    delivered = sum(HEADER_BYTES + len(frame.payload) for frame in frames)
    assert delivered <= sum(map(len, chunks)) + CAP_BYTES


def test_mutated_frames_are_delivered_or_refused() -> None:
    rng = random.Random(SEED)
    for _ in range(ROUNDS * 10):
        sizes = [rng.choice([0, 1, 50, 5000, CAP_BYTES]) for _ in range(rng.randrange(1, 5))]
        stream = b"".join(frame_header(size, 1, 2) + rng.randbytes(size) for size in sizes)
        decoder, frames = FrameDecoder(CAP_BYTES), list[Frame]()
        with suppress(FrameError):
            for piece in pieces(rng, mutated(rng, stream)):
                decoder.feed(piece, frames)
        assert all(len(frame.payload) <= CAP_BYTES for frame in frames)


def _hello(rng: random.Random) -> bytes:
    shake = Handshake(Role.DIALER, SECRET, DIALER_ID, peer_id=ACCEPTOR_ID, nonce=rng.randbytes(32))
    return shake.opening


def _client_hello(rng: random.Random) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        dialer_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("tls", [False, True])
def test_an_acceptor_outlives_whatever_strangers_send(tls: bool) -> None:
    rng = random.Random(SEED)
    genuine: Callable[[random.Random], bytes] = _client_hello if tls else _hello
    with World(identity=IDENTITY if tls else None, max_frame_bytes=CAP_BYTES) as world:
        tracemalloc.start()
        for _ in range(ROUNDS):
            noise = rng.randbytes(rng.randrange(3000))
            data = noise if rng.random() < 0.3 else mutated(rng, genuine(rng) + noise[:200])
            before = len(world.accepted)
            stranger = world.stranger()
            for piece in pieces(rng, data):
                with suppress(OSError):  # it may have been refused by now
                    stranger.sendall(piece)
            with suppress(OSError):
                stranger.shutdown(socket.SHUT_WR)
            world.run(lambda before=before: len(world.accepted) > before)  # type: ignore[misc]
            last = world.accepted[-1]
            world.run(lambda last=last: last.closed)  # type: ignore[misc]
            assert world.received[last] == []
            stranger.close()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 32 << 20
        assert set(world.refusals.counts()) <= REASONS
        dialer = world.dial(pin=IDENTITY.pin if tls else None)
        world.run(lambda: dialer.authenticated and world.accepted[-1].authenticated)


@pytest.mark.parametrize("tls", [False, True])
def test_a_dialer_outlives_whatever_answers(tls: bool) -> None:
    rng = random.Random(SEED)
    with World() as world, socket.create_server(("127.0.0.1", 0)) as impostor:
        for _ in range(ROUNDS // 3):
            dialer = world.dial(address=impostor.getsockname(), pin=IDENTITY.pin if tls else None)
            dialer.send(1, 2, [b"a record"])
            answering, _ = impostor.accept()
            with answering:
                answer = mutated(rng, _client_hello(rng) if tls else _hello(rng) + bytes(32))
                answering.sendall(answer)
                answering.shutdown(socket.SHUT_WR)
                world.run(lambda dialer=dialer: dialer.closed)  # type: ignore[misc]
                assert not dialer.authenticated
                answering.settimeout(30)
                heard = b""
                with suppress(OSError):
                    while more := answering.recv(4096):
                        heard += more
                assert b"a record" not in heard


@pytest.mark.parametrize("tls", [False, True])
def test_an_authenticated_peer_that_goes_mad_loses_its_connection_only(tls: bool) -> None:
    """Beneath the frames: bytes changed on the way are noticed by TLS, or refused as frames."""
    rng = random.Random(SEED)
    with World(identity=IDENTITY if tls else None, max_frame_bytes=CAP_BYTES) as world:
        for _ in range(ROUNDS // 3):
            pin = IDENTITY.pin if tls else None
            dialer = world.dial(pin=pin)
            world.run(lambda d=dialer: d.authenticated and world.accepted[-1].authenticated)  # type: ignore[misc]
            acceptor = world.accepted[-1]
            good = frame_header(4, 1, 2) + b"good"
            with socket.socket(fileno=os.dup(dialer.fileno())) as raw:
                raw.sendall(mutated(rng, good * 3) + rng.randbytes(500))
                raw.shutdown(socket.SHUT_WR)
            world.run(lambda a=acceptor: a.closed)  # type: ignore[misc]
            dialer.close()
            for frame in world.received[acceptor] if tls else ():
                raise AssertionError(f"{frame} came past TLS")
        assert set(world.refusals.counts()) <= REASONS
