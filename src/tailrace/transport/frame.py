"""Framing: messages as bytes of a stream; `decoder.pyx` is the way back. No I/O.

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
from typing import NamedTuple, TypeAlias

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
    payload: bytes


def frame_header(payload_bytes: int, target: int, kind: int) -> bytes:
    """Return the header to write before a payload of that many bytes.

    Raises ValueError when target or kind do not fit; the caller caps the length.
    """
    if not 0 <= target <= MAX_TARGET:
        raise ValueError(f"target is {target}; it must be 0 to {MAX_TARGET}")
    if not 0 <= kind <= MAX_KIND:
        raise ValueError(f"kind is {kind}; it must be 0 to {MAX_KIND}")
    return HEADER.pack(payload_bytes, target, kind, 0, 0)
