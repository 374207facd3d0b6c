"""State as bytes: blocks of entries, sections of blocks, and the file of a worker for an epoch.

A data file is one section after the other. A section is its kind of format (4 bytes), then blocks:
length, crc, pickle. Of a keyed section a block is a list of (key, value) pairs; a shared section is
one block with one value. Lengths have 8 bytes, crcs 4, both little-endian.

Pickle runs code: read only folders whose writers you trust.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal
from zlib import crc32

from tailrace.checkpoint.folder import Buffer, Folder
from tailrace.runtime.state import FORGOTTEN as FORGOTTEN
from tailrace.runtime.state import Encoded as Encoded

Kind = Literal["full", "delta", "part", "rest", "shared"]
"""All keys, those that have changed, a part of all others and the last such part; no keys."""
Pair = tuple[Hashable, Any]

SECTION_VERSION = 1
MAGIC = b"TRS" + bytes([SECTION_VERSION])
"""What a section begins with; the last byte is the version of the format."""
_JOINED_BYTES = 1 << 17
BLOCK = struct.Struct("<QI")
"""What a block begins with: bytes of its pickle, and their crc."""


@dataclass(frozen=True)
class Section:
    """Where some state lies, and whose it is."""

    file: str
    offset: int
    length: int
    crc: int
    operator: str
    index: int
    """Of the instance that wrote it."""
    kind: Kind
    entries: int
    """Entries in it, forgotten keys included."""
    keys: int | None = None
    """Keys that the instance had when it wrote this, if it said so."""
    state_version: int = 0
    """Of the operator that wrote it."""


def framed(pickled: bytes, crc: int | None = None) -> tuple[bytes, bytes]:
    """A pickle as a block: what it begins with, and itself. Its crc may be known already."""
    return BLOCK.pack(len(pickled), crc32(pickled) if crc is None else crc), pickled


def encode_block(pairs: Sequence[Pair]) -> bytes:
    """Some entries as a block. A value may be FORGOTTEN or Encoded."""
    return b"".join(framed(pickle.dumps(pairs, 5)))


def encode_shared(value: Any) -> bytes:
    """The shared state of a step as a block; it may be Encoded."""
    return b"".join(framed(pickle.dumps(value, 5)))


class EpochFile:
    """What a worker writes for an epoch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts: list[tuple[Section, Sequence[Buffer]]] = []

    def add(
        self,
        operator: str,
        index: int,
        kind: Kind,
        blocks: Sequence[Buffer],
        entries: int,
        *,
        keys: int | None = None,
        state_version: int = 0,
    ) -> None:
        """A section of blocks that `encode_block` made. Without `keys`, a full one has `entries`.

        An empty full section says that an instance has no keys, an empty delta says nothing.
        """
        if kind == "full" and keys is None:
            keys = entries
        section = Section(self.name, 0, 0, 0, operator, index, kind, entries, keys, state_version)
        self._parts.append((section, (MAGIC, *blocks)))

    def add_shared(
        self, operator: str, index: int, block: bytes, *, state_version: int = 0
    ) -> None:
        """The shared state of an instance, as `encode_shared` made it."""
        self.add(operator, index, "shared", (block,), 1, state_version=state_version)

    def write(self, folder: Folder) -> tuple[Section, ...]:
        """Write it, if there is anything; the sections are there when this returns."""
        sections = tuple(self._sealed())
        if sections:
            # Joined anew while they are written: of a large state there is one copy at a time.
            folder.write(self.name, chain.from_iterable(_joined(part) for _, part in self._parts))
        return sections

    def _sealed(self) -> Iterator[Section]:
        """The sections, with where they will lie, and their crcs."""
        offset = 0
        for section, buffers in self._parts:
            length = crc = 0
            for buffer in _joined(buffers):
                length += len(buffer)
                crc = crc32(buffer, crc)
            yield replace(section, offset=offset, length=length, crc=crc)
            offset += length


def _joined(blocks: Iterable[Buffer]) -> Iterator[Buffer]:
    """The same bytes in few buffers, which cost less per byte.

    Each of thousands would also be a moment in which this thread has the interpreter, and could be
    made to wait for its core while the worker's loop waits for the interpreter.
    """
    gathered: list[Buffer] = []
    size = 0
    for block in blocks:
        if gathered and size + len(block) > _JOINED_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(block)
        size += len(block)
    yield b"".join(gathered)


def chains(sections: Iterable[Section]) -> dict[tuple[str, int], list[Section]]:
    """Sections by operator and instance, in their order."""
    found: dict[tuple[str, int], list[Section]] = {}
    for section in sections:
        found.setdefault((section.operator, section.index), []).append(section)
    return found
