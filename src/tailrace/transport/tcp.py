"""TCP between workers of different nodes: authenticated, framed, bounded, never blocking.

A connection is driven from one epoll loop that somebody else owns::

    connection = TcpConnection.connect(config, ("10.0.0.7", 4040), peer_id=3, refusals=refusals)
    epoll.register(connection.fileno(), connection.events)
    ...
    for frame in connection.on_ready(events): ...       # when epoll says so
    connection.send(target, kind, buffers)              # only queues; False when full
    connection.flush()                                  # once per round: one system call
    epoll.modify(connection.fileno(), connection.events)

Whatever is wrong with a peer ends in one counted refusal and that one connection closed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import ssl
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Self

from tailrace.transport.auth import NONCE_BYTES, Handshake, HandshakeError, Role
from tailrace.transport.decoder import FrameDecoder, Gathered
from tailrace.transport.frame import (
    HEADER_BYTES,
    Buffer,
    Frame,
    FrameError,
    frame_header,
)
from tailrace.transport.identity import dialer_context
from tailrace.transport.stream import PlainStream, Queued, Stream, TlsStream

Address = tuple[str, int]

_log = logging.getLogger("tailrace.transport")
_LOST = select.EPOLLHUP | select.EPOLLERR
_MAX_STRANGER_READ_BYTES = 4096
_GATHERED_BYTES = 4096
"""Payloads of at most this size are copied, to go out together."""
_SCRATCH_BYTES = 256 * 1024
_DIRECT_BYTES = 32 * 1024
"""Payloads of at least this size are received where they belong, without a copy, but for what comes
together with their header."""


class _Scratch(threading.local):
    """Where bytes arrive before it is known whose they are; one for all connections of a loop."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SCRATCH_BYTES))


_scratch = _Scratch()


@dataclass(frozen=True)
class TcpConfig:
    """What all TCP connections of one worker have in common: who it is, and the limits."""

    worker_id: int
    secret: bytes = field(repr=False)
    max_frame_bytes: int = 16 * 1024 * 1024
    max_queued_bytes: int = 32 * 1024 * 1024
    """Bound of one connection's send queue; at least one frame of the largest size."""
    max_read_bytes: int = 1024 * 1024
    """Bytes taken from one socket per `on_ready`, so that no peer starves the others."""
    handshake_ms: int = 5_000
    """Time that an acceptor gives those who dial it to prove who they are."""
    dial_ms: int = 60_000
    """Time to connect and authenticate for a dialer; it may have to be patient."""
    guest: tuple[int, bytes] | None = field(default=None, repr=False)
    """A worker id, and another secret that whoever comes by it proves to know."""
    max_connections: int = 1024
    max_unauthenticated: int = 64
    clock_ns: Callable[[], int] = time.monotonic_ns
    random_bytes: Callable[[int], bytes] = os.urandom

    def __post_init__(self) -> None:
        if not 1 <= self.max_frame_bytes < 2**32:
            raise ValueError(f"max_frame_bytes is {self.max_frame_bytes}; it must be 1 to 2**32-1")
        if self.max_queued_bytes < self.max_frame_bytes + HEADER_BYTES:
            raise ValueError(
                f"max_queued_bytes is {self.max_queued_bytes}; a frame of max_frame_bytes = "
                f"{self.max_frame_bytes} and its header of {HEADER_BYTES} must fit"
            )
        for name in (
            "max_read_bytes",
            "handshake_ms",
            "dial_ms",
            "max_connections",
            "max_unauthenticated",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


class Refusals:
    """Counts refusals by reason, and logs at most one per reason and second."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._counts: dict[str, int] = {}
        self._quiet_until_ns: dict[str, int] = {}

    def note(self, reason: str, detail: str) -> None:
        """Count one refusal; `reason` must come from a fixed set."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        now_ns = self._clock_ns()
        if now_ns >= self._quiet_until_ns.get(reason, now_ns):
            self._quiet_until_ns[reason] = now_ns + 1_000_000_000
            _log.warning("refused, %s: %s (%d so far)", reason, detail, self._counts[reason])

    def counts(self) -> dict[str, int]:
        """Return how often each reason occurred."""
        return dict(self._counts)


class TcpConnection:
    """One authenticated stream of frames with another worker; both sides may send.

    Guaranteed: no method blocks. No frame is delivered before the peer has proven that it knows
    the secret, and none is sent before either. Frames arrive whole and in the order sent. At most
    `max_queued_bytes` wait to be sent, at most one unfinished frame is held on receipt.

    Not guaranteed: that a queued frame arrives. When the connection ends, `closed` is True and
    `close_reason` says why; its descriptor has then left every epoll by itself.
    """

    def __init__(
        self,
        config: TcpConfig,
        sock: socket.socket,
        stream: Stream,
        handshake: Handshake,
        address: Address,
        refusals: Refusals,
        *,
        connecting: bool,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        """Use `connect`, or a listener, instead."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._config = config
        self._sock = sock
        self._stream = stream
        self._handshake = handshake
        self._refusals = refusals
        self._connecting = connecting
        self._clock_ns = clock_ns or config.clock_ns
        self._patience_ms = config.dial_ms if connecting else config.handshake_ms
        self._deadline_ns = self._clock_ns() + self._patience_ms * 1_000_000
        self._max_frame_bytes = config.max_frame_bytes
        self._max_queued_bytes = config.max_queued_bytes
        self._decoder = FrameDecoder(config.max_frame_bytes)
        self._wire: deque[Queued] = deque()  # may be written now
        self._frames: deque[Queued] = deque()  # becomes `_wire` once the peer is authenticated
        self._gathered: Gathered | None = None  # the last of them, while it may still grow
        self._queued_bytes = 0
        self.address = address
        self.close_reason: str | None = None
        if handshake.opening:
            self._queue_handshake(handshake.opening)

    @classmethod
    def connect(
        cls,
        config: TcpConfig,
        address: Address,
        peer_id: int,
        refusals: Refusals,
        *,
        pin: bytes | None = None,
    ) -> Self:
        """Start connecting to the worker `peer_id`, which listens at that numeric address.

        Returns at once; frames may be queued at once. A failure shows as `closed`. With a `pin`
        it goes by TLS, with nobody but who has the certificate of that fingerprint.
        """
        host, _ = address
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        nonce = config.random_bytes(NONCE_BYTES)
        handshake = Handshake(
            Role.DIALER, config.secret, config.worker_id, peer_id=peer_id, nonce=nonce
        )
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            stream = TlsStream(sock, dialer_context(), pin=pin) if pin else PlainStream(sock)
            connection = cls(config, sock, stream, handshake, address, refusals, connecting=True)
        except BaseException:
            sock.close()
            raise
        try:
            sock.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            connection.close(f"cannot connect to {address}: {error}")
        return connection

    @property
    def closed(self) -> bool:
        """Whether the connection has ended; `close_reason` says why."""
        return self.close_reason is not None

    @property
    def authenticated(self) -> bool:
        """Whether the peer has proven who it is."""
        return self._handshake.done

    @property
    def peer_id(self) -> int | None:
        """The peer's worker id, once it is authenticated."""
        return self._handshake.peer_id

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be sent."""
        if self.close_reason is not None:
            return 0
        return self._queued_bytes + self._stream.unsent_bytes

    @property
    def partial_bytes(self) -> int:
        """How much of a frame that has not arrived in full is here, its header included."""
        return self._decoder.partial_bytes

    @property
    def unanswered_bytes(self) -> int:
        """Bytes that the peer's host has not acknowledged, or that still wait here."""
        if self.closed:
            return 0
        with_the_kernel = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, bytes(4))
        return self.pending_bytes + int.from_bytes(with_the_kernel, sys.byteorder)

    @property
    def events(self) -> int:
        """The epoll mask to register: what this connection waits for now."""
        if self.closed:
            return 0
        if self._connecting:
            return select.EPOLLOUT
        mask = select.EPOLLIN
        if self._stream.unsent_bytes or (self._wire and self._stream.established):
            mask |= select.EPOLLOUT
        return mask

    def fileno(self) -> int:
        """The descriptor to register with epoll; -1 once closed."""
        return self._sock.fileno()

    def on_ready(self, events: int) -> list[Frame]:
        """Do what epoll says is possible; return the frames that are complete.

        Reads at most `max_read_bytes` from the socket. Frames that came before the connection
        was closed or refused are returned, so look at `closed` afterwards.
        """
        frames: list[Frame] = []
        if not self.closed:
            self._drive(events, frames)
        if not self.authenticated:
            self.check_deadline()  # after what has come: we may be the one that is late
        return frames

    def send(self, target: int, kind: int, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame; False, and nothing taken, when the queue has no room for it.

        Large buffers are not copied: they must not change until they have been written. Raises
        ValueError for a frame above `max_frame_bytes`, ConnectionError when closed.
        """
        gathered = self._gathered
        if gathered is not None and (added_bytes := gathered.add(target, kind, buffers)):
            self._queued_bytes += added_bytes
            return True
        if self.close_reason is not None:
            raise ConnectionError(f"connection to {self.address} is closed: {self.close_reason}")
        payload_bytes = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if payload_bytes > self._max_frame_bytes:
            raise ValueError(
                f"frame of {payload_bytes} bytes for target {target}; "
                f"the cap is {self._max_frame_bytes}"
            )
        frame_bytes = HEADER_BYTES + payload_bytes
        room_bytes = self._max_queued_bytes - self._queued_bytes - self._stream.unsent_bytes
        if frame_bytes > room_bytes:
            return False
        if payload_bytes > _GATHERED_BYTES:
            header = frame_header(payload_bytes, target, kind)
            self._gathered = None
            self._frames.append(header)
            self._frames.extend(buffer for buffer in buffers if len(buffer))
        else:
            most_bytes = min(_GATHERED_BYTES, self._max_frame_bytes)
            gathered = Gathered(room_bytes, most_bytes)  # until others are queued, or it is sent
            gathered.add(target, kind, buffers)
            self._gathered = gathered
            self._frames.append(gathered)
        self._queued_bytes += frame_bytes
        return True

    def flush(self) -> None:
        """Write what the socket takes now. The rest goes out by `on_ready`, see `events`."""
        if not self.closed and not self._connecting:
            self._drive(select.EPOLLOUT, [])

    def notice_silence(self, after_s: int) -> None:
        """End the connection when the peer's host has not answered for so long (at least 2 s).

        It is the host's kernel that answers: a peer that is busy and does not read is not silent,
        unless it leaves so much unread that nothing more can be sent to it.
        """
        if self.closed:
            return
        for option, value in (
            (socket.TCP_KEEPIDLE, 1),
            (socket.TCP_KEEPINTVL, 1),
            (socket.TCP_KEEPCNT, after_s - 1),
            (socket.TCP_USER_TIMEOUT, after_s * 1000),  # while something is under way
        ):
            self._sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def check_deadline(self) -> None:
        """Refuse the peer if it has not authenticated itself in time; call now and then."""
        if self.closed or self.authenticated:
            return
        if self._clock_ns() >= self._deadline_ns:
            self.refuse("deadline", f"not authenticated after {self._patience_ms} ms")

    def refuse(self, reason: str, detail: str) -> None:
        """Close because of something the peer did or is; counted and logged by reason."""
        self._refusals.note(reason, f"{self.address}: {detail}")
        self.close(f"{reason}: {detail}")

    def close(self, reason: str = "closed by this side") -> None:
        """End the connection at once and drop what is queued. The first reason stays."""
        if self.close_reason is None:
            self.close_reason = reason
            self._wire.clear()
            self._frames.clear()
            self._gathered = None
            self._queued_bytes = 0
            self._sock.close()

    def _drive(self, events: int, frames: list[Frame]) -> None:
        was_authenticated = self.authenticated
        try:
            if self._connecting:
                self._finish_connecting()
            elif events & (_LOST | select.EPOLLIN):
                self._read(frames)
            # The handshake's answers go out at once; frames wait for flush or for room.
            if not self.closed and (events & select.EPOLLOUT or not was_authenticated):
                self._gathered = None
                self._queued_bytes -= self._stream.transmit(self._wire)
        except (HandshakeError, FrameError) as error:
            self.refuse(error.reason, str(error))
        except ssl.SSLError as error:
            self.refuse("tls", str(error))
        except OSError as error:
            self._end(str(error))

    def _finish_connecting(self) -> None:
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.close(f"cannot connect to {self.address}: {os.strerror(error)}")
        self._connecting = False

    def _read(self, frames: list[Frame]) -> None:
        self._receive(frames)
        if not self.closed:
            large = self._decoder.body_bytes >= _DIRECT_BYTES
            self._stream.expect(self._decoder.missing_bytes if large else 0)

    def _receive(self, frames: list[Frame]) -> None:
        scratch, stream = _scratch.view, self._stream
        left_bytes = self._config.max_read_bytes
        if not self.authenticated:
            left_bytes = min(left_bytes, _MAX_STRANGER_READ_BYTES)
        while not self.closed:
            direct = self._decoder.body_bytes >= _DIRECT_BYTES
            if not direct:
                views = [scratch[:left_bytes] if left_bytes else scratch]
            elif 0 < left_bytes < self._decoder.missing_bytes:
                views = [self._decoder.missing()[:left_bytes]]
            else:  # straight to where it belongs, and what is small behind it in the same call
                views = [self._decoder.missing(), scratch[:_GATHERED_BYTES]]
            got_bytes = stream.receive(views, left_bytes)
            if got_bytes is None:
                return
            if not got_bytes:
                self._end("closed by the peer")
                return
            if not direct:
                self._take(scratch[:got_bytes], frames)
            else:
                into_bytes = min(got_bytes, len(views[0]))
                self._decoder.filled(into_bytes, frames)
                if got_bytes > into_bytes:
                    self._take(scratch[: got_bytes - into_bytes], frames)
            if not stream.holds and got_bytes < sum(map(len, views)):
                return  # that was all; to ask again would be a system call
            left_bytes = max(0, left_bytes - got_bytes)

    def _take(self, chunk: memoryview, frames: list[Frame]) -> None:
        """Bytes that came: of the handshake, or of frames."""
        if self.authenticated:
            self._decoder.feed(chunk, frames)
            return
        reply, rest = self._handshake.feed(bytes(chunk))
        self._queue_handshake(reply)
        if self._handshake.done:
            self._wire.extend(self._frames)
            self._frames = self._wire
        self._decoder.feed(rest, frames)

    def _queue_handshake(self, message: bytes) -> None:
        if message:
            self._wire.append(message)
            self._queued_bytes += len(message)

    def _end(self, detail: str) -> None:
        """The connection is lost: a refusal if it broke off inside something."""
        if not self.authenticated:
            self.refuse("truncated", f"{detail} before it was authenticated")
        elif self.partial_bytes:
            self.refuse("truncated", f"{detail} after {self.partial_bytes} B of a frame")
        else:
            self.close(detail)
