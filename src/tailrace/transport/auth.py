"""Mutual authentication of two workers that share a job's secret. No I/O, no clock.

Three messages, each of a fixed length, so that nothing of variable length is ever parsed for a
stranger::

    dialer   -> acceptor    hello(dialer)
    acceptor -> dialer      hello(acceptor), proof(acceptor)
    dialer   -> acceptor    proof(dialer)

A hello names protocol, version, role, who speaks, who is meant, and a fresh nonce. A proof is
HMAC-SHA256 over the speaker's role and both hellos, so that it is worth nothing in another role
(reflection), towards another worker, or a second time (replay).

The challenge authenticates the two ends when the connection is made. It does not protect what
follows from somebody on the path: that is what TLS is for. Guests (Spark tasks that feed a source)
know a secret of their own, which is not enough to pass for a worker.
"""

from __future__ import annotations

import enum
import hmac
import struct
from typing import NoReturn

NONCE_BYTES = 32
PROOF_BYTES = 32
MIN_SECRET_BYTES = 16
MAX_WORKER_ID = 2**32 - 1

_MAGIC = b"TAILRACE"
_VERSION = 1
_PREFIX = _MAGIC + bytes([_VERSION])
# magic, version, role, zero, speaker's worker id, addressee's worker id, nonce
_HELLO = struct.Struct("<8sBBHII32s")
HELLO_BYTES = _HELLO.size


class Role(enum.IntEnum):
    """Which end of the connection one is."""

    DIALER = 1
    ACCEPTOR = 2


class HandshakeError(Exception):
    """The other side is refused. `reason` is a short word to count by."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Handshake:
    """One side of the challenge: bytes in, bytes out.

    Send `opening`, then give everything that arrives to `feed` and send what it returns, until
    `done`. Once done, `peer_id` is proven to be a worker that knows the secret and speaks to this
    one. Never reuse a handshake, nor a nonce.

    >>> secret = b"0123456789abcdef"
    >>> dialer = Handshake(Role.DIALER, secret, own_id=1, peer_id=2, nonce=b"d" * 32)
    >>> acceptor = Handshake(Role.ACCEPTOR, secret, own_id=2, nonce=b"a" * 32)
    >>> answer, _ = acceptor.feed(dialer.opening)
    >>> proof, _ = dialer.feed(answer)
    >>> acceptor.feed(proof), acceptor.done, acceptor.peer_id
    ((b'', b''), True, 1)
    """

    def __init__(
        self,
        role: Role,
        secret: bytes,
        own_id: int,
        *,
        nonce: bytes,
        peer_id: int | None = None,
        guest: tuple[int, bytes] | None = None,
    ) -> None:
        """The dialer says whom it wants (`peer_id`); the acceptor learns it, or insists on it.

        Who comes by the id of the `guest` has to know the guests' secret instead.
        """
        for known in (secret, guest[1] if guest else secret):
            if len(known) < MIN_SECRET_BYTES:
                raise ValueError(
                    f"the secret has {len(known)} bytes; it needs at least {MIN_SECRET_BYTES}"
                )
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"the nonce has {len(nonce)} bytes; it must have {NONCE_BYTES}")
        if role is Role.DIALER and peer_id is None:
            raise ValueError("a dialer must name the worker it wants to reach: peer_id is None")
        for worker_id in (own_id, peer_id or 0):
            if not 0 <= worker_id <= MAX_WORKER_ID:
                raise ValueError(f"worker id is {worker_id}; it must be 0 to {MAX_WORKER_ID}")
        self._role = role
        self._peer_role = Role.ACCEPTOR if role is Role.DIALER else Role.DIALER
        self._secret = secret
        self._guest = guest
        self._own_id = own_id
        self._peer_id = peer_id
        self._nonce = nonce
        self._own_hello = b""
        self._peer_hello = b""
        self._received = b""
        self._failure: tuple[str, str] | None = None
        self.done = False
        if role is Role.DIALER and peer_id is not None:
            self._own_hello = self._hello_to(peer_id)
        self.opening = self._own_hello

    @property
    def peer_id(self) -> int | None:
        """The other side's worker id, once it is proven; None before."""
        return self._peer_id if self.done else None

    def feed(self, chunk: bytes) -> tuple[bytes, bytes]:
        """Take arrived bytes; return what to send, and what lies beyond the handshake unread.

        Raises HandshakeError as soon as the other side is known to be a stranger, and for ever
        after. Holds at most one handshake message.
        """
        if self._failure is not None:
            raise HandshakeError(*self._failure)
        reply = b""
        while chunk and not self.done:
            expected_bytes = PROOF_BYTES if self._peer_hello else HELLO_BYTES
            missing_bytes = expected_bytes - len(self._received)
            self._received += chunk[:missing_bytes]
            chunk = chunk[missing_bytes:]
            if not self._peer_hello:
                self._check_prefix()
            if len(self._received) == expected_bytes:
                message, self._received = self._received, b""
                reply += (self._take_proof if self._peer_hello else self._take_hello)(message)
        return reply, chunk

    def _hello_to(self, peer_id: int) -> bytes:
        return _HELLO.pack(_MAGIC, _VERSION, self._role, 0, self._own_id, peer_id, self._nonce)

    def _proof_of(self, speaker: Role) -> bytes:
        hellos = self._own_hello, self._peer_hello
        dialer, acceptor = hellos if self._role is Role.DIALER else reversed(hellos)
        return hmac.digest(self._secret, bytes([speaker]) + dialer + acceptor, "sha256")

    def _check_prefix(self) -> None:
        """Turn away who speaks another protocol with its first bytes, not at the deadline."""
        start = self._received[: len(_PREFIX)]
        if _PREFIX.startswith(start):
            return
        if start.startswith(_MAGIC):
            self._refuse("bad_version", f"protocol version {start[-1]}; this side has {_VERSION}")
        self._refuse("bad_magic", f"first bytes {start!r}; expected {_PREFIX!r}")

    def _take_hello(self, hello: bytes) -> bytes:
        _, _, role, zero, speaker_id, addressee_id, _ = _HELLO.unpack(hello)
        if role != self._peer_role or zero != 0:
            self._refuse(
                "bad_role", f"role {role}, padding {zero}; expected {int(self._peer_role)}, 0"
            )
        if addressee_id != self._own_id:
            self._refuse(
                "wrong_worker", f"meant for worker {addressee_id}; this is worker {self._own_id}"
            )
        if self._peer_id is not None and speaker_id != self._peer_id:
            self._refuse(
                "wrong_worker", f"from worker {speaker_id}; expected worker {self._peer_id}"
            )
        self._peer_hello = hello
        if self._role is Role.DIALER:
            return b""
        self._peer_id = speaker_id
        if self._guest is not None and speaker_id == self._guest[0]:
            self._secret = self._guest[1]
        self._own_hello = self._hello_to(speaker_id)
        return self._own_hello + self._proof_of(self._role)

    def _take_proof(self, proof: bytes) -> bytes:
        if not hmac.compare_digest(proof, self._proof_of(self._peer_role)):
            self._refuse(
                "bad_proof", f"who says to be worker {self._peer_id} does not know the secret"
            )
        self.done = True
        return self._proof_of(self._role) if self._role is Role.DIALER else b""

    def _refuse(self, reason: str, message: str) -> NoReturn:
        self._failure = reason, message
        raise HandshakeError(reason, message)
