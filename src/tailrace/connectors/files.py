"""Files, directories and patterns of files as sources: read once, or followed as they grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from os import PathLike, fspath, stat_result
from pathlib import Path
from typing import Any
from zlib import crc32

from tailrace.connectors.framing import MOST_LINE_BYTES, TEXT, Format, LineError
from tailrace.connectors.linefile import LineFile, Place
from tailrace.graph.model import Record
from tailrace.runtime.source import Reader, Source

_MISSES_BEFORE_LEAVING = 2
"""A file that was renamed or deleted may still be written to for a moment."""


@dataclass(frozen=True)
class Files(Source):
    """The lines of a file, of the files in a directory, or of those that match a pattern.

    Names that begin with a dot or an underscore are passed over in a directory. Read once, files
    come in the order of their names, and instance i of n takes the i-th of n byte ranges of each;
    so they must not change meanwhile.

    With `follow` the source has no end: it waits for more lines and for new files, and a line
    counts when its newline is there. It goes on with the new file when one is rotated (renamed or
    deleted, and made anew), after all lines of the old one, and from the start when it is cut. A
    file that is cut and outgrows its old length before the next look cannot be told from one that
    grew. Each instance follows those files that a hash of the path gives it. `from_end` leaves out
    what files hold at the start.

    A position holds the offsets of all files begun. What was left of a file that was rotated
    between a position and the rewind to it is not read.
    """

    path: str
    format: Format = TEXT
    follow: bool = False
    from_end: bool = False
    look_ms: float = 10.0
    """How often to look for more lines."""
    scan_ms: float = 200.0
    """How often to look for new and rotated files."""
    most_line_bytes: int = MOST_LINE_BYTES
    most_files: int = 1024
    """To follow at the same time, in one instance: each is an open file."""

    def open(
        self, index: int, parallelism: int, clock_ns: Callable[[], int], position: Any = None
    ) -> Reader:
        """This instance's share."""
        places = dict(position or {})
        if self.follow:
            return _Following(self, index, parallelism, clock_ns, places, position is None)
        return _Once(self, index, parallelism, places)

    def paths(self) -> list[str]:
        """The files there are now, by name."""
        root = Path(self.path)
        if root.is_dir():
            return sorted(
                str(path) for path in root.iterdir() if path.name[0] not in "._" and path.is_file()
            )
        if root.is_file():
            return [self.path]
        # Path.glob takes no absolute patterns.
        found = glob(self.path, recursive=True)  # noqa: PTH207
        return sorted(path for path in found if Path(path).is_file())


def files(path: str | PathLike[str], **options: Any) -> Files:
    """`Files` of a path in any form."""
    return Files(fspath(path), **options)


class _FileReader(Reader):
    """What both readers share: records of lines, and the places of all files."""

    def __init__(self, source: Files, index: int, parallelism: int, places: dict[str, Place]):
        self._source = source
        self._index = index
        self._parallelism = parallelism
        self._places = places
        self._parse = source.format.parser()
        self._open: dict[str, LineFile] = {}

    def _records(self, file: LineFile, lines: list[bytes]) -> list[Record]:
        records: list[Record] = []
        try:
            records.extend(map(self._parse, lines))
        except ValueError as error:
            good, bad = lines[: len(records)], lines[len(records)]
            number = file.line_number(file.begin + sum(map(len, good)) + len(good))
            raise LineError(f"{file.path}:{number}: {error}; the line is {bad[:200]!r}") from error
        return records

    def _take(self, file: LineFile, most: int) -> list[bytes]:
        try:
            return file.take(most)
        except LineError as error:
            raise LineError(f"{file.path}, after byte {file.offset}: {error}") from error

    def position(self) -> dict[str, Place]:
        return self._places | {path: file.place for path, file in self._open.items()}

    def close(self) -> None:
        for file in self._open.values():
            file.close()


class _Once(_FileReader):
    def __init__(self, source: Files, index: int, parallelism: int, places: dict[str, Place]):
        super().__init__(source, index, parallelism, places)
        paths = source.paths()
        if not paths and not Path(source.path).is_dir():
            raise FileNotFoundError(f"there is no file {source.path!r}, nor one that matches it")
        self._ahead = iter(paths)
        self._file: LineFile | None = None

    def poll(self, most: int) -> list[Record] | None:
        while file := self._file or self._next_file():
            lines = self._take(file, most) or file.rest()
            if lines:
                return self._records(file, lines)
            self._places[file.path] = file.place
            file.close()
            self._open.clear()
            self._file = None
        return None

    def _next_file(self) -> LineFile | None:
        path = next(self._ahead, None)
        if path is None:
            return None
        self._file = self._open[path] = LineFile(
            path, self._places.get(path) or self._share(path), self._source.most_line_bytes
        )
        return self._file

    def _share(self, path: str) -> Place:
        """A line belongs to the range that its first byte is in."""
        status = Path(path).stat()
        begin = status.st_size * self._index // self._parallelism
        end = status.st_size * (self._index + 1) // self._parallelism
        # From one byte before: if that is a newline, a line begins exactly at the range.
        return Place(status.st_ino, max(0, begin - 1), end, mid_line=begin > 0)


class _Following(_FileReader):
    def __init__(
        self,
        source: Files,
        index: int,
        parallelism: int,
        clock_ns: Callable[[], int],
        places: dict[str, Place],
        is_start: bool,
    ):
        super().__init__(source, index, parallelism, places)
        self._clock_ns = clock_ns
        self._turns: deque[LineFile] = deque()
        self._look_at_ns = 0
        self._scan_at_ns = 0
        self._skip_present = is_start and source.from_end

    def due_ns(self) -> int:
        return self._look_at_ns

    def poll(self, most: int) -> list[Record] | None:
        now_ns = self._clock_ns()
        if now_ns < self._look_at_ns:
            return []
        if now_ns >= self._scan_at_ns:
            self._scan()
            self._scan_at_ns = now_ns + round(self._source.scan_ms * 1e6)
        for _ in range(len(self._turns)):
            file = self._turns[0]
            self._turns.rotate(-1)
            lines = self._take(file, most)
            leaves = not lines and file.missed >= _MISSES_BEFORE_LEAVING
            records = self._records(file, file.rest() if leaves else lines)
            if leaves:
                self._leave(file)
            elif not lines and file.was_cut:
                file.restart()
            if records:
                self._look_at_ns = 0
                return records
        self._look_at_ns = now_ns + round(self._source.look_ms * 1e6)
        return []

    def _scan(self) -> None:
        """Open new files, and count how often the open ones were missed under their names."""
        present: dict[str, stat_result] = {}
        for path in filter(self._is_mine, self._source.paths()):
            with suppress(FileNotFoundError):  # deleted since it was listed
                present[path] = Path(path).stat()
        for path, file in self._open.items():
            found = path in present and present[path].st_ino == file.inode
            file.missed = 0 if found else file.missed + 1
        new = present.keys() - self._open.keys()
        if len(new) + len(self._open) > self._source.most_files:
            raise ValueError(
                f"{self._source.path!r} has {len(new) + len(self._open)} files to follow; "
                f"at most {self._source.most_files} can be followed in one instance: "
                "raise most_files or the parallelism"
            )
        for path in sorted(new):
            with suppress(FileNotFoundError):
                self._begin(path, present[path])
        self._skip_present = False

    def _is_mine(self, path: str) -> bool:
        return crc32(path.encode("utf-8", "surrogateescape")) % self._parallelism == self._index

    def _begin(self, path: str, status: stat_result) -> None:
        place = self._places.get(path)
        if place is None or place.inode != status.st_ino:
            place = Place(status.st_ino)
            if self._skip_present and status.st_size:
                place = Place(status.st_ino, status.st_size - 1, mid_line=True)
        file = LineFile(path, place, self._source.most_line_bytes)
        self._places.pop(path, None)
        self._open[path] = file
        self._turns.append(file)

    def _leave(self, file: LineFile) -> None:
        file.close()
        del self._open[file.path]
        self._turns.remove(file)
        self._scan_at_ns = 0  # there may be a new file of that name
