"""The byte stream beneath a connection: a non-blocking socket, bare or under TLS.

Both have the same face. `receive` puts what has arrived straight where it belongs; `transmit`
takes buffers from the front of a queue until the queue is empty or the socket takes no more.
Neither ever blocks; both raise OSError (`ssl.SSLError` included) when the connection is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol, TypeAlias, cast

from tailrace.transport.auth import HandshakeError
from tailrace.transport.decoder import Gathered
from tailrace.transport.frame import Buffer

Queued: TypeAlias = Buffer | Gathered
"""What waits to be sent."""

MAX_IOVECS = 512  # Linux takes 1024
RECORD_BYTES = 16 * 1024  # the largest TLS record
CIPHER_BATCH_BYTES = 256 * 1024
TOGETHER_BYTES = 128 * 1024
"""Of a large payload, so much is received at a time: waking a receiver costs the sender's core more
than it takes to copy some ten KB, and without this it is woken for every 64 of them."""
ROOM_BYTES = 1024 * 1024
"""If the socket may hold so much: else senders, too, wait for milliseconds each time."""
LOOK_BYTES = 4 * 1024 * 1024
"""Whether it may is looked up when so much has come: the system gives room where it is used."""


def _shows_full(release: str) -> bool:
    """Whether that kernel shows a socket that can hold no more, with less there than waited for.

    Some before Linux 5.12 do not where memory is short or packets are small.

    >>> [_shows_full(release) for release in ("6.18.0-3-amd64", "5.15.0-1061", "4.18.0-553.el8")]
    [True, True, False]
    """
    version = re.match(r"(\d+)\.(\d+)", release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 12)


MAY_WAIT = _shows_full(os.uname().release)


class Stream(Protocol):
    """What a connection needs of the bytes beneath it."""

    @property
    def established(self) -> bool:
        """Whether `transmit` can take anything yet."""
        ...

    @property
    def holds(self) -> bool:
        """Whether bytes may be here that the socket does not show any more."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes taken from the queue, or of the stream's own, that the socket has not taken."""
        ...

    def receive(self, views: Sequence[memoryview], socket_bytes: int) -> int | None:
        """Fill the views from the front, taking at most so many bytes from the socket.

        Returns how many bytes they got; None when nothing has arrived, 0 when the peer has closed.
        To take nothing from the socket (0) gives what the stream itself still holds.
        """
        ...

    def expect(self, size_bytes: int) -> None:
        """So many bytes are sure to come: until they have, there is no hurry to receive some.

        A hint, for `receive` gives what is there.
        """
        ...

    def transmit(self, queue: deque[Queued]) -> int:
        """Write from the front of the queue; return how many bytes were taken from it."""
        ...


class PlainStream:
    """The socket itself; many buffers go out in one system call."""

    established = True
    holds = False
    unsent_bytes = 0

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._together_bytes = 1
        self._received_bytes = 0
        self._look_bytes: float = LOOK_BYTES if MAY_WAIT else math.inf
        self._has_room = False

    def receive(self, views: Sequence[memoryview], socket_bytes: int) -> int | None:
        """One system call, without a copy of our own."""
        if not socket_bytes:
            return None
        try:
            if len(views) == 1:
                got_bytes = self._sock.recv_into(views[0], min(len(views[0]), socket_bytes))
            else:
                got_bytes = self._sock.recvmsg_into(views)[0]
        except BlockingIOError:
            return None
        self._received_bytes += got_bytes
        return got_bytes

    def expect(self, size_bytes: int) -> None:
        """The socket shows as readable when much of that is there, or when it can hold no more."""
        if not self._has_room:
            if self._received_bytes < self._look_bytes:
                return
            self._look_bytes = self._received_bytes + LOOK_BYTES
            room_bytes = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            self._has_room = room_bytes >= ROOM_BYTES
        together_bytes = min(size_bytes, TOGETHER_BYTES) or 1
        if self._has_room and together_bytes != self._together_bytes:
            self._together_bytes = together_bytes
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, together_bytes)

    def transmit(self, queue: deque[Queued]) -> int:
        """Write until the queue is empty or the socket is full."""
        taken_bytes = 0
        while queue:
            try:
                sent_bytes = self._sock.sendmsg(islice(queue, MAX_IOVECS))
            except BlockingIOError:
                break
            _discard(queue, sent_bytes)
            taken_bytes += sent_bytes
        return taken_bytes


class TlsStream:
    """TLS over the socket, as the context asks; at most one batch is held encrypted.

    The connection asks until nothing is left, so that nothing readable ever hides from epoll.
    A connection that ends without TLS's own farewell counts as ended, nothing worse: frames carry
    their length, so a cut inside one is noticed.
    """

    holds = True

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, pin: bytes | None = None
    ) -> None:
        """A dialer has a `pin`: the fingerprint of the only certificate that it accepts."""
        self._sock = sock
        self._pin = pin
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=pin is None)
        self._encrypted = memoryview(b"")
        self.established = False

    @property
    def unsent_bytes(self) -> int:
        """Encrypted bytes that the socket has not taken."""
        return len(self._encrypted) + self._outgoing.pending

    def receive(self, views: Sequence[memoryview], socket_bytes: int) -> int | None:
        """Decrypt into the first view: what is here, or else what the socket has."""
        view = views[0]
        while True:
            if self.established:
                try:
                    return cast(int, self._tls.read(len(view), view))
                except ssl.SSLWantReadError:
                    pass
            if not socket_bytes:
                return None
            try:
                encrypted = self._sock.recv(min(socket_bytes, CIPHER_BATCH_BYTES))
            except BlockingIOError:
                return None
            if not encrypted:
                return 0
            self._incoming.write(encrypted)
            self._shake_hands()
            socket_bytes = 0

    def expect(self, size_bytes: int) -> None:
        """Nothing: what comes is decrypted piece by piece anyway."""

    def transmit(self, queue: deque[Queued]) -> int:
        """Encrypt and write until the queue is empty or the socket is full."""
        taken_bytes = 0
        established = self._shake_hands()
        while self._push() and queue and established:
            while queue and self._outgoing.pending < CIPHER_BATCH_BYTES:
                encrypted_bytes = self._tls.write(_front(queue))
                _discard(queue, encrypted_bytes)
                taken_bytes += encrypted_bytes
        return taken_bytes

    def _shake_hands(self) -> bool:
        if not self.established:
            try:
                self._tls.do_handshake()
                self._check_pin()
                self.established = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._push()  # the alert that tells the peer why
                raise
        return self.established

    def _check_pin(self) -> None:
        if self._pin is None:
            return
        found = hashlib.sha256(self._tls.getpeercert(binary_form=True) or b"").digest()
        if found != self._pin:
            raise HandshakeError(
                "bad_pin",
                f"certificate {found.hex()[:16]}...; this job's is {self._pin.hex()[:16]}...",
            )

    def _push(self) -> bool:
        """Give the socket what is encrypted; return whether it took everything."""
        while True:
            if not self._encrypted:
                self._encrypted = memoryview(self._outgoing.read())
            if not self._encrypted:
                return True
            try:
                sent_bytes = self._sock.send(self._encrypted)
            except BlockingIOError:
                return False
            self._encrypted = self._encrypted[sent_bytes:]


def _front(queue: deque[Queued]) -> bytes | memoryview:
    """Return the queue's first bytes: a large buffer's batch, or one record of small ones."""
    if len(queue) == 1 or len(queue[0]) >= RECORD_BYTES:
        return memoryview(queue[0])[:CIPHER_BATCH_BYTES]
    pieces: list[memoryview] = []
    room_bytes = RECORD_BYTES
    for buffer in queue:
        pieces.append(memoryview(buffer)[:room_bytes])
        room_bytes -= len(pieces[-1])
        if room_bytes == 0:
            break
    return b"".join(pieces)


def _discard(queue: deque[Queued], taken_bytes: int) -> None:
    """Drop that many bytes from the front of the queue."""
    while taken_bytes:
        first = queue[0]
        if taken_bytes < len(first):
            queue[0] = memoryview(first)[taken_bytes:]
            return
        taken_bytes -= len(first)
        queue.popleft()
