"""Files that appear whole or not at all, and the sinks of lines made of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.connectors.framing import TEXT, Format
from tailrace.graph.model import Record
from tailrace.runtime.source import Sink

_BUFFER_BYTES = 1 << 16


class Part:
    """A file under a hidden name until it is committed.

    After `commit` it is there, whole and on disk, also if the machine fails; after `discard`, or
    if the process dies first, nothing of that name is. A process that is killed leaves the hidden
    file (`.name.*.tmp`) behind, which readers of the directory pass over.
    """

    def __init__(self, directory: Path, name: str, overwrite: bool = False) -> None:
        self.path = directory / name
        self._overwrite = overwrite
        directory.mkdir(parents=True, exist_ok=True)
        self._check_absent()
        self._hidden = directory / f".{name}.{secrets.token_hex(8)}.tmp"
        self.file = self._hidden.open("xb", buffering=_BUFFER_BYTES)
        self._committed = False

    def _check_absent(self) -> None:
        if not self._overwrite and self.path.exists():
            raise FileExistsError(
                f"{str(self.path)!r} is there already; "
                "write to another directory, or say overwrite=True"
            )

    def commit(self) -> None:
        """Let it appear under its name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self._check_absent()
        self._hidden.rename(self.path)
        self._committed = True
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # the name itself
        finally:
            os.close(directory)

    def discard(self) -> None:
        """Remove it, unless it is committed."""
        if self._committed:
            return
        with suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self.file.close()
        self._hidden.unlink(missing_ok=True)


def part_name(index: int, extension: str) -> str:
    """The name of an instance's file."""
    return f"part-{index:05}.{extension}"


@dataclass
class LineFiles(Sink):
    """Lines into a directory: instance i writes the file `part-0000i`.

    Each appears, whole, when the input has ended. An instance that fails leaves nothing; others
    that had ended by then have their files.
    """

    path: str
    format: Format = TEXT
    overwrite: bool = False
    """Replace files of the same names; others in the directory stay."""
    _part: Part | None = field(default=None, init=False, repr=False)
    _encode: Callable[[Record], bytes] = field(init=False, repr=False)
    _lines: list[bytes] = field(init=False, repr=False)

    def open(self, index: int, parallelism: int) -> None:
        """Begin the hidden file."""
        self._encode = self.format.encoder()
        self._lines = []
        name = part_name(index, self.format.extension)
        self._part = Part(Path(self.path), name, self.overwrite)

    def write(self, records: Iterator[Record]) -> None:
        """Write a line for each."""
        assert self._part is not None, "not open"
        # Lines before a record that raises stay in the list, for the next call.
        self._lines.extend(map(self._encode, records))
        if self._lines:
            self._lines.append(b"")
            self._part.file.write(b"\n".join(self._lines))
            self._lines.clear()

    def finish(self) -> None:
        """Let the file appear."""
        assert self._part is not None, "not open"
        self.write(iter(()))
        self._part.commit()

    def close(self) -> None:
        """Remove the file if the input has not ended."""
        if self._part is not None:
            self._part.discard()
