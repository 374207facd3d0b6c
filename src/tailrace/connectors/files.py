"""Files, directories and patterns of files as sources: read once, or followed as they grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from tailrace.connectors.framing import MOST_LINE_BYTES, TEXT, Format, LineError
from tailrace.connectors.linefile import LineFile, Place
from tailrace.graph.model import Record
from tailrace.runtime.source import Reader, Source, Split, shares

_MISSES_BEFORE_LEAVING = 2
"""A file that was renamed or deleted may still be written to for a moment."""


def paths_of(path: str) -> list[str]:
    """The files there are now, by name: one, those in a directory, or those that match a pattern.

    Names that begin with a dot or an underscore are passed over in a directory.
    """
    root = Path(path)
    if root.is_dir():
        names = (one for one in root.iterdir() if one.name[0] not in "._")
        return sorted(str(one) for one in names if one.is_file())
    if root.is_file():
        return [path]
    # Path.glob takes no absolute patterns.
    return sorted(one for one in glob(path, recursive=True) if Path(one).is_file())  # noqa: PTH207


def present(path: str) -> list[str]:
    """The same for who needs at least one: raises if there can be none."""
    found = paths_of(path)
    if not found and not Path(path).is_dir():
        raise FileNotFoundError(f"there is no file {path!r}, nor one that matches it")
    return found


@dataclass(frozen=True)
class Files(Source):
    """The lines of a file, of the files in a directory, or of those that match a pattern.

    Names that begin with a dot or an underscore are passed over in a directory. Read once, a file
    is a split; one that is larger than `split_bytes` is cut into byte ranges of at least that size,
    at most as many as there are instances. An instance reads its splits one after the other in the
    order of their names. Files must not change meanwhile.

    With `follow` the source has no end: it waits for more lines and for new files, and a line
    counts when its newline is there. It goes on with the new file when one is rotated (renamed or
    deleted, and made anew), after all lines of the old one, and from the start when it is cut. A
    file that is cut and outgrows its old length before the next look cannot be told from one that
    grew. Each file is a split. `from_end` leaves out what files hold at the start.

    Which instance reads which file follows from a hash of its path. A line longer than
    `most_line_bytes` fails the job. Of each open file at most a block of 64 KiB and a line are held
    in memory. What was left of a file that was rotated between a position and the rewind to it is
    not read.
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
    split_bytes: int = 1 << 20

    rewinds = True
    beginning = Place(inode=0)

    def __post_init__(self) -> None:
        for name in ("look_ms", "scan_ms", "most_line_bytes", "most_files", "split_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0")

    @property
    def open_at_once(self) -> int:  # type: ignore[override]
        """Read once, one after the other; followed, all of them."""
        return self.most_files if self.follow else 1

    @property
    def look_s(self) -> float | None:  # type: ignore[override]
        """New files are looked for while files are followed."""
        return self.scan_ms / 1000 if self.follow else None

    def splits(self, parallelism: int) -> Sequence[Split]:
        """The files there are now, in ranges if they are large and read once."""
        if self.follow:
            return [Split(path) for path in paths_of(self.path)]
        found: list[Split] = []
        for path in present(self.path):
            ranges = Path(path).stat().st_size // self.split_bytes
            found += shares(max(1, min(parallelism, ranges)), path)
        return found

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """A file or a range of it; a position is a `Place`."""
        if self.follow:
            return _Following(self, split.name, clock_ns, position)
        return _Once(self, split, position)


class _FileReader(Reader):
    """What both readers share: records of lines."""

    def __init__(self, source: Files, file: LineFile | None) -> None:
        self._source = source
        self._parse = source.format.parser()
        self._file = file

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
            raise LineError(
                f"{file.path}, after byte {file.offset}: {error}; most_line_bytes raises the limit"
            ) from error

    def position(self) -> Place:
        return self._source.beginning if self._file is None else self._file.place

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Once(_FileReader):
    def __init__(self, source: Files, split: Split, place: Place | None) -> None:
        place = place or _range(split)
        super().__init__(source, LineFile(split.name, place, source.most_line_bytes))

    def poll(self, most: int) -> list[Record] | None:
        file = self._file
        assert file is not None
        lines = self._take(file, most) or file.rest()
        return self._records(file, lines) if lines else None


def _range(split: Split) -> Place:
    """A line belongs to the range that its first byte is in."""
    status = Path(split.name).stat()
    begin = status.st_size * split.index // split.of
    end = status.st_size * (split.index + 1) // split.of
    # From one byte before: if that is a newline, a line begins exactly at the range.
    return Place(status.st_ino, max(0, begin - 1), end, mid_line=begin > 0)


class _Following(_FileReader):
    """One file until it is found no more under its name, and read to its end."""

    def __init__(
        self, source: Files, path: str, clock_ns: Callable[[], int], place: Place | None
    ) -> None:
        super().__init__(source, _open_followed(source, path, place))
        self._path = path
        self._clock_ns = clock_ns
        self._look_at_ns = 0
        self._check_at_ns = clock_ns() + round(source.scan_ms * 1e6)

    def due_ns(self) -> int:
        return self._look_at_ns

    def poll(self, most: int) -> list[Record] | None:
        file = self._file
        if file is None:
            return None  # it was deleted before we could open it
        now_ns = self._clock_ns()
        if now_ns < self._look_at_ns:
            return []
        if now_ns >= self._check_at_ns:
            self._check_at_ns = now_ns + round(self._source.scan_ms * 1e6)
            file.missed = 0 if _inode(self._path) == file.inode else file.missed + 1
        lines = self._take(file, most)
        if lines:
            self._look_at_ns = 0
            return self._records(file, lines)
        if file.missed >= _MISSES_BEFORE_LEAVING:
            return self._records(file, file.rest()) or None
        if file.was_cut:
            file.restart()
        self._look_at_ns = now_ns + round(self._source.look_ms * 1e6)
        return []


def _open_followed(source: Files, path: str, place: Place | None) -> LineFile | None:
    """From a place if it is still that file; at the start of all from its start, or its end."""
    try:
        status = Path(path).stat()
        if place is None and source.from_end and status.st_size:
            place = Place(status.st_ino, status.st_size - 1, mid_line=True)
        elif place is None or place.inode != status.st_ino:
            place = Place(status.st_ino)
        return LineFile(path, place, source.most_line_bytes)
    except FileNotFoundError:
        return None


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None
