"""The byte stream beneath a connection: a non-blocking socket, bare or under TLS.

Both have the same face. `receive` takes one bounded read from the socket; `transmit` takes buffers
from the front of a queue until the queue is empty or the socket takes no more. Neither ever
blocks; both raise OSError (`ssl.SSLError` included) when the connection is lost.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from itertools import islice
from typing import Protocol

from tailrace.transport.frame import Buffer

MAX_IOVECS = 512  # Linux takes 1024
RECORD_BYTES = 16 * 1024  # the largest TLS record
CIPHER_BATCH_BYTES = 256 * 1024


class Stream(Protocol):
    """What a connection needs of the bytes beneath it."""

    @property
    def established(self) -> bool:
        """Whether `transmit` can take anything yet."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes taken from the queue, or of the stream's own, that the socket has not taken."""
        ...

    def receive(self, max_bytes: int) -> bytes | None:
        """Return what has arrived; None when nothing has, b"" when the peer has closed."""
        ...

    def transmit(self, queue: deque[Buffer]) -> int:
        """Write from the front of the queue; return how many bytes were taken from it."""
        ...


class PlainStream:
    """The socket itself; many buffers go out in one system call."""

    established = True
    unsent_bytes = 0

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self, max_bytes: int) -> bytes | None:
        """Return at most `max_bytes`."""
        try:
            return self._sock.recv(max_bytes)
        except BlockingIOError:
            return None

    def transmit(self, queue: deque[Buffer]) -> int:
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

    Everything that arrived is decrypted at once, so that nothing readable ever hides from epoll.
    A connection that ends without TLS's own farewell counts as ended, nothing worse: frames carry
    their length, so a cut inside one is noticed.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ) -> None:
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_name,
        )
        self._encrypted = memoryview(b"")
        self.established = False

    @property
    def unsent_bytes(self) -> int:
        """Encrypted bytes that the socket has not taken."""
        return len(self._encrypted) + self._outgoing.pending

    def receive(self, max_bytes: int) -> bytes | None:
        """Return what at most `max_bytes` from the socket decrypt to."""
        try:
            encrypted = self._sock.recv(max_bytes)
        except BlockingIOError:
            return None
        if not encrypted:
            return b""
        self._incoming.write(encrypted)
        if not self._shake_hands():
            return None
        pieces = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self._tls.read(RECORD_BYTES):
                pieces.append(piece)
            if not pieces:
                return b""
        return b"".join(pieces) or None

    def transmit(self, queue: deque[Buffer]) -> int:
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
                self.established = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._push()  # the alert that tells the peer why
                raise
        return self.established

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


def _front(queue: deque[Buffer]) -> Buffer:
    """Return the queue's first bytes: a large buffer's batch, or one record of small ones."""
    if len(queue) == 1 or len(queue[0]) >= RECORD_BYTES:
        return memoryview(queue[0])[:CIPHER_BATCH_BYTES]
    pieces: list[Buffer] = []
    room_bytes = RECORD_BYTES
    for buffer in queue:
        pieces.append(memoryview(buffer)[:room_bytes])
        room_bytes -= len(pieces[-1])
        if room_bytes == 0:
            break
    return b"".join(pieces)


def _discard(queue: deque[Buffer], taken_bytes: int) -> None:
    """Drop that many bytes from the front of the queue."""
    while taken_bytes:
        first = queue[0]
        if taken_bytes < len(first):
            queue[0] = memoryview(first)[taken_bytes:]
            return
        taken_bytes -= len(first)
        queue.popleft()
