"""Framing: messages as bytes of a stream, and back. No I/O.

A frame is a fixed header and a payload. All integers are little-endian:

======  =====  ==============================================
offset  type   field
======  =====  ==============================================
0       u32    payload length in bytes
4       u32    target: the receiving instance
8       u8     kind: how the payload is encoded
9       u8     flags, none defined yet: must be zero
10      u16    reserved: must be zero
======  =====  ==============================================
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NoReturn, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes: one dimension and one byte per item, so that ``len`` is the size."""

HEADER = struct.Struct("<IIBBH")
HEADER_BYTES = HEADER.size
MAX_TARGET = 2**32 - 1
MAX_KIND = 15


class FrameError(ValueError):
    """Bytes that no sender of ours writes. `reason` is a short word to count by."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Frame(NamedTuple):
    """One received message. The payload is owned by the frame and never overwritten."""

    target: int
    kind: int
    payload: bytes | memoryview


def frame_header(payload_bytes: int, target: int, kind: int) -> bytes:
    """Return the header to write before a payload of that many bytes.

    Raises ValueError when target or kind do not fit; the caller caps the length.
    """
    if not 0 <= target <= MAX_TARGET:
        raise ValueError(f"target is {target}; it must be 0 to {MAX_TARGET}")
    if not 0 <= kind <= MAX_KIND:
        raise ValueError(f"kind is {kind}; it must be 0 to {MAX_KIND}")
    return HEADER.pack(payload_bytes, target, kind, 0, 0)


class FrameDecoder:
    """Cuts a stream of chunks into frames, however the stream was chopped.

    Every byte is copied at most twice. Memory held between chunks is at most one header and one
    payload of `max_frame_bytes`. Frames that precede a malformed one are delivered; after it the
    decoder refuses to go on and raises the same error for ever.

    >>> decoder, frames = FrameDecoder(max_frame_bytes=100), []
    >>> stream = frame_header(2, target=7, kind=2) + b"hi"
    >>> decoder.feed(stream[:5], frames), frames
    (None, [])
    >>> decoder.feed(stream[5:], frames), frames
    (None, [Frame(target=7, kind=2, payload=b'hi')])
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._head = b""  # a header that has not arrived in full
        self._body: bytearray | None = None  # the payload of the frame that is under way
        self._body_bytes = 0  # how much of it has arrived
        self._target = 0
        self._kind = 0
        self._failure: tuple[str, str] | None = None

    @property
    def partial_bytes(self) -> int:
        """Bytes of an unfinished frame; not zero at the end of a stream means it was truncated."""
        if self._body is None:
            return len(self._head)
        return HEADER_BYTES + self._body_bytes

    def feed(self, chunk: bytes, frames: list[Frame]) -> None:
        """Append to `frames` those that this chunk completes.

        Raises FrameError at the first malformed or oversized header; the frames before it have
        been appended by then.
        """
        if self._failure is not None:
            raise FrameError(*self._failure)
        position = 0
        if self._body is not None:
            position = self._resume_body(self._body, chunk, frames)
        elif self._head:
            chunk = self._head + chunk
            self._head = b""
        end = len(chunk)
        while end - position >= HEADER_BYTES:
            payload_bytes, target, kind = self._parse_header(chunk, position)
            position += HEADER_BYTES
            if end - position < payload_bytes:
                self._target, self._kind = target, kind
                self._body = bytearray(payload_bytes)
                self._body_bytes = end - position
                self._body[: self._body_bytes] = memoryview(chunk)[position:]
                return
            frames.append(Frame(target, kind, chunk[position : position + payload_bytes]))
            position += payload_bytes
        self._head = chunk[position:]

    def _resume_body(self, body: bytearray, chunk: bytes, frames: list[Frame]) -> int:
        """Continue the payload that is under way; return how many bytes of the chunk it took."""
        start = self._body_bytes
        taken = min(len(body) - start, len(chunk))
        body[start : start + taken] = memoryview(chunk)[:taken]
        self._body_bytes = start + taken
        if self._body_bytes == len(body):
            frames.append(Frame(self._target, self._kind, memoryview(body).toreadonly()))
            self._body = None
        return taken

    def _parse_header(self, chunk: bytes, position: int) -> tuple[int, int, int]:
        payload_bytes, target, kind, flags, reserved = HEADER.unpack_from(chunk, position)
        if payload_bytes > self._max_frame_bytes:
            self._fail(
                "oversized",
                f"frame of {payload_bytes} bytes for target {target}; "
                f"the cap is {self._max_frame_bytes}",
            )
        if kind > MAX_KIND or flags or reserved:
            self._fail(
                "malformed",
                f"frame header with kind {kind}, flags {flags}, reserved {reserved}; "
                f"kind must be at most {MAX_KIND} and the rest 0",
            )
        return payload_bytes, target, kind

    def _fail(self, reason: str, message: str) -> NoReturn:
        self._failure = reason, message
        raise FrameError(reason, message)
