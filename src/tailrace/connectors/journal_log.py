"""The log of a journal: groups of records in numbered segments, on a disk or behind a URL.

A group is there, whole and lasting, when `append` returns. On a disk groups are appended to a file,
which is a segment until it is long enough; behind a URL every group is an object.

Who opens a log begins a segment at once, with a name of its own, whose header says up to where it
has taken over what is there. All who read the log go by that: what a writer that was replaced adds
later is not in it, and what is missing before it is found out. A replaced writer must not open it.
"""

from __future__ import annotations

import os
import pickle
import secrets
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tailrace.checkpoint.errors import CheckpointError, DamagedError
from tailrace.checkpoint.folder import Folder, LocalFolder, sync, told
from tailrace.connectors.journal_format import (
    BEGINNING,
    HEADER_BYTES,
    Ended,
    Place,
    Segment,
    TornError,
    block_of,
    blocks,
    header_of,
    read_header,
    segment_of,
    turn_of,
)
from tailrace.graph.model import Record

__all__ = ["BEGINNING", "Group", "JournalLog", "Place"]

SEGMENT_BYTES = 1 << 20


class Group(NamedTuple):
    """Records that were logged together, and the place before the first of them."""

    place: Place
    records: list[Record]
    emitted_ns: int | None = None

    @property
    def end(self) -> Place:
        """The place behind the last of them."""
        return self.place._replace(count=self.place.count + len(self.records))


class JournalLog:
    """One log, below `under` in a folder. One thread writes; another may read what was written."""

    def __init__(
        self,
        folder: Folder,
        under: str,
        start: Place = BEGINNING,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Nothing before `start` will be asked for."""
        self._folder = folder
        self._under = under
        self._segment_bytes = segment_bytes
        self._file = -1
        there = self._there()
        self._past, ended = self._take_over(there, start)
        turn = max((turn_of(one.writer) for one in there), default=0) + 1
        self._writer = f"{turn:06}-{secrets.token_hex(4)}"
        self._first = max((one.number for one in there), default=0) + 1
        self._last = self._begin(self._first, ended)
        self.before = self.end
        """Behind all that others have logged."""
        self._be_alone(turn)

    @property
    def end(self) -> Place:
        """Behind all that was logged."""
        return self._last.place

    def segments(self) -> list[int]:
        """The numbers of those that there are, in order."""
        return sorted(one.number for one in self._there())

    def _there(self) -> dict[Segment, int]:
        """What is there, and how long it is."""
        found = (
            (segment_of(name.rpartition("/")[2]), size)
            for name, size in self._folder.sizes(self._under).items()
        )
        return {segment: size for segment, size in found if segment is not None}

    def _path(self, segment: Segment) -> str:
        return f"{self._under}/{segment.name}"

    def _where(self, segment: Segment) -> str:
        return f"{self._folder.url}/{self._path(segment)}"

    # ---- what others have left ----

    def _take_over(
        self, there: dict[Segment, int], start: Place
    ) -> tuple[list[Segment], Ended | None]:
        """The segments from a place on, and how the last of them ended.

        Those of the newest writer, of those that it has taken over, and so on; unless the place is
        not among them: then it was written by one who had been replaced, and does not count.
        """
        sizes: dict[str, int] = defaultdict(int)
        for segment, size in there.items():
            sizes[segment.writer] += size
        # Of two that began at the same time, one has given up and written no more.
        by_age = sorted(sizes, key=lambda writer: (turn_of(writer), sizes[writer]), reverse=True)
        newest: Ended | None = None
        for writer in by_age:
            if turn_of(writer) < turn_of(start.writer):
                break
            ended = self._end_of(writer, there)
            if ended is not None:
                newest = newest or ended
                past = self._back_to(start, ended, there)
                if past is not None:
                    self._make_last(past[-1])
                    return past, ended
        if newest is None and start == BEGINNING:
            return [], None
        raise DamagedError(
            f"the journal in {self._folder.url}/{self._under} is to go on behind record"
            f" {start.count} of segment {start.segment}, and has only"
            + (f" {newest.records} of {newest.segment}" if newest else " what others have logged")
        )

    def _end_of(self, writer: str, there: dict[Segment, int]) -> Ended | None:
        """How the last segment of a writer ended that nobody has taken over; None: it has none."""
        for segment in sorted((one for one in there if one.writer == writer), reverse=True):
            name = self._where(segment)
            data = memoryview(self._folder.read(self._path(segment)))
            ended = Ended(segment.number, writer, 0, 0, crc32(b""))
            with suppress(TornError):
                for number, payload in enumerate(blocks(data, name)):
                    records = len(pickle.loads(payload)) if number else 0
                    ended = ended.longer(block_of(bytes(payload)), records)
            if ended.size_bytes:
                return ended
        return None

    def _back_to(
        self, start: Place, ended: Ended | None, there: dict[Segment, int]
    ) -> list[Segment] | None:
        """The segments from a place to another's end; None if the place is not before it."""
        past: list[Segment] = []
        while ended is not None:
            writer = ended.writer
            found = start.writer == writer
            if found and (start.segment, start.count) > (ended.segment, ended.records):
                return None
            numbers = [one.number for one in there if one.writer == writer]
            first = start.segment if found else min([ended.segment, *numbers])
            some = [Segment(number, writer) for number in range(first, ended.segment + 1)]
            for segment in some:
                if segment not in there:
                    raise self._missing(segment)
            past[:0] = some
            if found:
                return past
            header = self._folder.read(self._path(some[0]), 0, HEADER_BYTES)
            ended = self._header(some[0], header)
            if ended is not None and ended.writer == writer:
                raise self._missing(Segment(first - 1, writer))
        return past if start == BEGINNING else None

    def _missing(self, segment: Segment) -> DamagedError:
        return DamagedError(
            f"{self._where(segment)} is not there any more, and the journal is to go on in it or"
            " before it. Epochs older than the last few cannot be gone back to"
        )

    def _header(self, segment: Segment, data: bytes | memoryview) -> Ended | None:
        try:
            return read_header(data, self._where(segment))
        except (TornError, StopIteration):
            raise DamagedError(f"{self._where(segment)} has lost its beginning") from None

    def _make_last(self, segment: Segment) -> None:
        """Have it on the disk: its writer may have been killed before it was."""
        if isinstance(self._folder, LocalFolder):
            path = self._folder.path / self._path(segment)
            with told("write", str(path)):
                sync(path)

    def _be_alone(self, turn: int) -> None:
        """Give up if somebody else has opened it at the same time; they may be the newer one."""
        others = [one.writer for one in self._there() if one.writer != self._writer]
        if any(turn_of(writer) >= turn for writer in others):
            self.close()
            self._folder.delete(self._path(Segment(self._first, self._writer)))
            raise CheckpointError(
                f"somebody else has begun to write the journal in {self._folder.url}/{self._under}"
            )

    # ---- writing ----

    def append(self, records: list[Record]) -> Place:
        """Log them. Returns the place before the first. If it raises, they are not logged."""
        try:
            payload = pickle.dumps(records, 5)
        except Exception as error:
            raise TypeError(
                f"a record cannot be kept in the journal, because it cannot be pickled: {error}"
            ) from error
        block = block_of(payload)
        if not isinstance(self._folder, LocalFolder):
            self._last = self._begin(self._last.segment + 1, self._last, block, len(records))
        else:
            if self._file < 0:
                self._last = self._begin(self._last.segment + 1, self._last)
            with told("write", str(self._folder.path / self._under)):
                self._write(block)
            self._last = self._last.longer(block, len(records))
            if self._last.size_bytes >= self._segment_bytes:
                self.close()
        return self.end._replace(count=self._last.records - len(records))

    def _begin(
        self, number: int, before: Ended | None, block: bytes = b"", records: int = 0
    ) -> Ended:
        segment = Segment(number, self._writer)
        header = header_of(before)
        if isinstance(self._folder, LocalFolder):
            self._create(self._folder.path / self._path(segment), header)
        else:
            self._folder.write(self._path(segment), header + block)
        ended = Ended(number, self._writer, 0, 0, crc32(b"")).longer(header, 0)
        return ended.longer(block, records) if block else ended

    def _create(self, path: Path, header: bytes) -> None:
        with told("write", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND
            self._file = os.open(path, flags, 0o600)
            self._write(header)
            try:
                sync(path.parent)
            except BaseException:
                self.close()
                raise

    def _write(self, block: bytes) -> None:
        try:
            left = memoryview(block)
            while left:
                left = left[os.write(self._file, left) :]
            os.fdatasync(self._file)
        except BaseException:
            self.close()  # what is half written stays at the end of its segment
            raise

    # ---- reading ----

    def groups(self, start: Place, end: Place) -> Iterator[Group]:
        """What was logged from a place on, up to one behind what others have logged."""
        segments = self._from(start, end)
        data = memoryview(self._folder.read(self._path(segments[0])))
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            then, most = data, end.count
            if following is not None:
                then = memoryview(self._folder.read(self._path(following)))
                ended = self._header(following, then)
                data, most = self._whole(segment, data, ended), ended.records if ended else 0
            skip = start.count if segment.number == start.segment else 0
            yield from self._groups(segment, data, skip, most)
            data = then

    def _from(self, start: Place, end: Place) -> list[Segment]:
        own = (Segment(number, self._writer) for number in range(self._first, end.segment + 1))
        segments = [one for one in (*self._past, *own) if one.number >= start.segment]
        if start != BEGINNING and segments[0] != (start.segment, start.writer):
            raise self._missing(Segment(start.segment, start.writer))
        return segments

    def _whole(self, segment: Segment, data: memoryview, ended: Ended | None) -> memoryview:
        """So much of a segment as the one behind it says that there was."""
        if ended is None or ended[:2] != segment:
            raise self._missing(segment)
        if len(data) < ended.size_bytes:
            raise DamagedError(
                f"{self._where(segment)} has {len(data)} bytes; it had {ended.size_bytes} before"
            )
        data = data[: ended.size_bytes]
        if crc32(data) != ended.checksum:
            raise DamagedError(f"{self._where(segment)} is damaged: its checksum is another one")
        return data

    def _groups(self, segment: Segment, data: memoryview, skip: int, most: int) -> Iterator[Group]:
        count = 0
        with suppress(TornError):
            for number, payload in enumerate(blocks(data, self._where(segment))):
                if count >= most:
                    break
                if number:
                    records = pickle.loads(payload)
                    at, count = count, count + len(records)
                    if count > skip:
                        cut = max(skip - at, 0)
                        yield Group(Place(segment.number, at + cut, segment.writer), records[cut:])
        if count < max(skip, most):
            raise DamagedError(
                f"{self._where(segment)} has {count} records; it had at least"
                f" {max(skip, most)} before"
            )

    # ---- removing ----

    def delete_before(self, segment: int) -> None:
        """Remove the segments with lower numbers."""
        self._past = [one for one in self._past if one.number >= segment]
        for one in self._there():
            if one.number < segment:
                self._folder.delete(self._path(one))

    def close(self) -> None:
        """Close the file; the next group begins another."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
