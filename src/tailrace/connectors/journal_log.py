"""The log of a journal: groups of records in numbered segments, on a disk or behind a URL.

A group is there, whole and lasting, when `append` returns. On a disk groups are appended to a file,
which is a segment until it is long enough; behind a URL every group is an object. Who opens a log
begins a new segment, so what a killed writer has left half done is at the end of one, and known as
such. In a segment stands for each group its length, a checksum, and its records.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tailrace.checkpoint.errors import DamagedError
from tailrace.checkpoint.folder import Folder, LocalFolder, told
from tailrace.graph.model import Record

SEGMENT_BYTES = 1 << 20
_HEAD = struct.Struct("<QI")


ALL = -1
"""As a number of records: all that a segment has."""


class Place(NamedTuple):
    """A place in the log: so many records of a segment are before it."""

    segment: int
    count: int  # type: ignore[assignment]  # tuples count, too


BEGINNING = Place(0, 0)
"""Before all segments, which are counted from 1."""


class Group(NamedTuple):
    """Records that were logged together, and the place before the first of them."""

    place: Place
    records: list[Record]
    emitted_ns: int | None = None

    @property
    def end(self) -> Place:
        """The place behind the last of them."""
        return Place(self.place.segment, self.place.count + len(self.records))


class JournalLog:
    """One log, below `under` in a folder. One thread writes; another may read what was written."""

    def __init__(self, folder: Folder, under: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._under = under
        self._segment_bytes = segment_bytes
        self.before = Place(max(self.segments(), default=0), ALL)
        """Behind all that others have logged."""
        self._end = Place(self.before.segment, 0)
        self._file = -1
        self._written = 0

    def segments(self) -> list[int]:
        """The numbers of those that there are, in order."""
        names = (name.rpartition("/")[2] for name in self._folder.names(self._under))
        return sorted(int(name[:-4]) for name in names if name.endswith(".log"))

    def _name(self, segment: int) -> str:
        return f"{self._under}/{segment:012}.log"

    def append(self, records: list[Record]) -> Place:
        """Log them. Returns the place before the first. If it raises, they are not logged."""
        try:
            payload = pickle.dumps(records, 5)
        except Exception as error:
            raise TypeError(
                f"a record cannot be kept in the journal, because it cannot be pickled: {error}"
            ) from error
        block = _HEAD.pack(len(payload), crc32(payload)) + payload
        if isinstance(self._folder, LocalFolder):
            place = self._append(self._folder.path, block)
        else:
            place = Place(self._end.segment + 1, 0)
            self._folder.write(self._name(place.segment), block)
        self._end = Place(place.segment, place.count + len(records))
        return place

    def _append(self, root: Path, block: bytes) -> Place:
        with told("write", str(root / self._under)):
            if self._file < 0:
                self._begin(root)
            try:
                left = memoryview(block)
                while left:
                    left = left[os.write(self._file, left) :]
                os.fdatasync(self._file)
            except BaseException:
                self.close()  # what is half written stays at the end of its segment
                raise
        place = self._end
        self._written += len(block)
        if self._written >= self._segment_bytes:
            self.close()
        return place

    def _begin(self, root: Path) -> None:
        path = root / self._name(self._end.segment + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self._end, self._written = Place(self._end.segment + 1, 0), 0
        above = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(above)
        finally:
            os.close(above)

    def groups(self, start: Place, end: Place) -> Iterator[Group]:
        """What was logged from a place on, up to another; a segment at a time."""
        segments = [one for one in self.segments() if start.segment <= one <= end.segment]
        if start.count and start.segment not in segments:
            raise DamagedError(
                f"the journal in {self._folder.url}/{self._under} has no segment {start.segment},"
                f" in which it is to go on; it has {segments[:3]}. Epochs older than the last few"
                " cannot be gone back to"
            )
        for segment in segments:
            skip = start.count if segment == start.segment else 0
            yield from self._read(segment, skip, end.count if segment == end.segment else ALL)

    def _read(self, segment: int, skip: int, most: int) -> Iterator[Group]:
        data = memoryview(self._folder.read(self._name(segment)))
        at = count = 0
        while at < len(data) and (most == ALL or count < most):
            begin = at + _HEAD.size
            length, checksum = _HEAD.unpack_from(data, at) if begin <= len(data) else (0, None)
            at = begin + length
            payload = data[begin:at]
            if checksum is None or at > len(data) or crc32(payload) != checksum:
                if at < len(data):
                    raise DamagedError(
                        f"{self._folder.url}/{self._name(segment)} is damaged after {count} records"
                    )
                break  # its writer died: these were never given to anybody
            records = pickle.loads(payload)
            place, count = Place(segment, count), count + len(records)
            if count > skip:
                cut = max(skip - place.count, 0)
                yield Group(Place(segment, place.count + cut), records[cut:])
        if count < max(skip, most):
            raise DamagedError(
                f"{self._folder.url}/{self._name(segment)} has {count} records; it had at least"
                f" {max(skip, most)} before"
            )

    def delete_before(self, segment: int) -> None:
        """Remove the segments with lower numbers."""
        for one in self.segments():
            if one < segment:
                self._folder.delete(self._name(one))

    def close(self) -> None:
        """Close the file; the next group begins another."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
