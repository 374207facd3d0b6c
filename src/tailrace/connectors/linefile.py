"""One file, read line by line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tailrace.connectors.framing import LineBuffer

_BLOCK_BYTES = 1 << 16


class Place(NamedTuple):
    """Where to read a file, or to go on with it."""

    inode: int
    """Of the file that this place is in: another file of the same name starts anew."""
    offset: int = 0
    end: int | None = None
    """Lines that begin here or later are not wanted."""
    mid_line: bool = False
    """`offset` may be inside of a line, which is not wanted."""


class LineFile:
    """An open file and how far its lines have been taken; see `follow` in `Files`."""

    def __init__(self, path: str, place: Place, most_line_bytes: int) -> None:
        self.path = path
        self.begin = place.offset
        """Of the first of the lines last taken."""
        self.offset = place.offset
        """Behind the last line taken."""
        self.missed = 0
        """How many looks at the directory have not found this file under its name."""
        self._end = place.end
        self._mid_line = place.mid_line
        self._read_to = place.offset
        self._lines: list[bytes] = []
        self._next = 0
        self._complete = False  # all lines before the end are in `_lines`
        self._most_line_bytes = most_line_bytes
        self._buffer = LineBuffer(most_line_bytes)
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115
        self.inode = os.fstat(self._file.fileno()).st_ino

    def take(self, most: int) -> list[bytes]:
        """Up to `most` lines that are complete now."""
        if self._next == len(self._lines):
            self._lines, self._next = self._read(), 0
        lines = self._lines[self._next : self._next + most]
        self._next += len(lines)
        self.begin = self.offset
        self.offset += sum(map(len, lines)) + len(lines)
        return lines

    def rest(self) -> list[bytes]:
        """The last line if it has no newline; for a file that will not grow any more."""
        if self._complete or self._mid_line:
            return []
        lines = self._buffer.rest()
        self.begin = self.offset
        self.offset += sum(map(len, lines))
        return lines

    def restart(self) -> None:
        """Begin again: the file has been cut."""
        self.offset = self._read_to = 0
        self._mid_line = False
        self._buffer = LineBuffer(self._most_line_bytes)

    @property
    def was_cut(self) -> bool:
        """Whether the file is shorter than what has been read of it."""
        return os.fstat(self._file.fileno()).st_size < self._read_to

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.inode, self.offset, self._end, self._mid_line)

    def line_number(self, offset: int) -> int:
        """The number of the line at an offset, found by reading all before it."""
        number, at = 1, 0
        while block := os.pread(self._file.fileno(), min(_BLOCK_BYTES, offset - at), at):
            number += block.count(b"\n")
            at += len(block)
        return number

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> list[bytes]:
        while not self._complete:
            block = os.pread(self._file.fileno(), _BLOCK_BYTES, self._read_to)
            if not block:
                break
            self._read_to += len(block)
            lines = self._buffer.feed(block)
            if lines and self._mid_line:
                self._mid_line = False
                self.offset += len(lines.pop(0)) + 1
            if self._end is not None and self._read_to >= self._end:
                lines = self._before_end(lines, self._end)
            if lines:
                return lines
        return []

    def _before_end(self, lines: list[bytes], end: int) -> list[bytes]:
        begins = self.offset
        for wanted, line in enumerate(lines):
            if begins >= end:
                self._complete = True
                return lines[:wanted]
            begins += len(line) + 1
        self._complete = begins >= end and not self._mid_line
        return lines
