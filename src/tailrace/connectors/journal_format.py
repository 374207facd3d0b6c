"""What stands in the segments of a journal, and how to tell what is whole from what is not.

A segment is a file, or an object behind a URL. It begins with a header that says how the one before
it ended, and then has groups of records. Only what is behind all headers may be torn: its writer
died while it wrote, and nobody was told that it is logged.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from tailrace.checkpoint.errors import DamagedError, VersionError

FORMAT = 2
"""Segments of format 1 had no headers, and their names no writer."""
HEADER_BYTES = 4096
"""No header is longer."""
_BLOCK = struct.Struct("<QII")  # length, checksum, and the checksum of these two
_LENGTHS = struct.Struct("<QI")
_NAME = re.compile(r"(\d{12})-(\d{6,}-[0-9a-f]+)\.log")
_OLD_NAME = re.compile(r"\d{12}\.log")


class Place(NamedTuple):
    """A place in the log: so many records of a segment are before it."""

    segment: int
    count: int  # type: ignore[assignment]  # tuples count, too
    writer: str = ""


BEGINNING = Place(0, 0)
"""Before all segments, which are counted from 1."""


class Segment(NamedTuple):
    """Which one: no two writers use the same names, so nobody replaces what another has logged."""

    number: int
    writer: str

    @property
    def name(self) -> str:
        """That of its file."""
        return f"{self.number:012}-{self.writer}.log"


def segment_of(name: str) -> Segment | None:
    """The segment whose file it is; None: it is none.

    >>> segment_of("000000000007-000002-1f00ba47.log")
    Segment(number=7, writer='000002-1f00ba47')
    """
    if _OLD_NAME.fullmatch(name):
        raise VersionError(
            f"the journal has {name!r}, in a format that an older version of Tailrace wrote: let"
            " that one process it to its end, and then remove it"
        )
    found = _NAME.fullmatch(name)
    return Segment(int(found[1]), found[2]) if found else None


def turn_of(writer: str) -> int:
    """The how-manieth to open the log a writer was; 0: none.

    >>> turn_of("000002-1f00ba47"), turn_of("")
    (2, 0)
    """
    return int(writer.partition("-")[0] or 0)


class Ended(NamedTuple):
    """How much of a segment counts, whatever stands behind that."""

    segment: int
    writer: str
    records: int
    size_bytes: int
    checksum: int

    @property
    def place(self) -> Place:
        """Behind its last record."""
        return Place(self.segment, self.records, self.writer)

    def longer(self, block: bytes, records: int) -> Ended:
        """With a block behind it."""
        size_bytes, checksum = self.size_bytes + len(block), crc32(block, self.checksum)
        return self._replace(
            records=self.records + records, size_bytes=size_bytes, checksum=checksum
        )


def block_of(payload: bytes) -> bytes:
    """What says how long it is, and whether it is as it was, before the payload."""
    lengths = _LENGTHS.pack(len(payload), crc32(payload))
    return lengths + crc32(lengths).to_bytes(4, "little") + payload


def header_of(before: Ended | None) -> bytes:
    """What a segment begins with, behind another one or as the first of all."""
    return block_of(json.dumps({"format": FORMAT, "before": before}).encode())


def read_header(data: bytes | memoryview, name: str) -> Ended | None:
    """What a header says of the segment before."""
    payload = next(blocks(memoryview(data), name))
    try:
        header = json.loads(bytes(payload))
        version, before = header["format"], header["before"]
    except (ValueError, TypeError, KeyError):
        raise DamagedError(f"{name} does not begin as a segment of a journal does") from None
    if version != FORMAT:
        raise VersionError(
            f"{name} has format {version} of journals; this version of Tailrace knows {FORMAT}"
        )
    return None if before is None else Ended(*before)


class TornError(Exception):
    """What follows was not written to its end."""


def blocks(data: memoryview, name: str) -> Iterator[memoryview]:
    """The payloads; raises TornError behind the last whole one if more stands there."""
    at = 0
    while at < len(data):
        payload_at = at + _BLOCK.size
        if payload_at > len(data):
            raise TornError
        length, checksum, over_both = _BLOCK.unpack_from(data, at)
        if crc32(data[at : at + _LENGTHS.size]) != over_both:
            if data[-1] != 0 or any(data[payload_at:]):
                raise _damaged(name, at)
            raise TornError  # there was room for it on the disk, and not the time to write it
        payload = data[payload_at : payload_at + length]
        at = payload_at + length
        if at > len(data):
            raise TornError
        if crc32(payload) != checksum:
            # Pickles and headers do not end with a 0: nothing was written there yet.
            if payload[-1] == 0 and not any(data[at:]):
                raise TornError
            raise _damaged(name, payload_at)
        yield payload


def _damaged(name: str, at: int) -> DamagedError:
    return DamagedError(f"{name} is damaged at byte {at}")
