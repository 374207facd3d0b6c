"""Files that appear whole or not at all, and the sinks of lines made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tailrace.connectors import epoch_files
from tailrace.connectors.epoch_files import EpochFiles, Prepared, local_directory
from tailrace.connectors.framing import TEXT, Format
from tailrace.graph.model import Record
from tailrace.runtime.sink import Sink, Writing

_BUFFER_BYTES = 1 << 16


def hidden_name(name: str, writing: Writing, number: int = 0) -> str:
    """Where a file is until it is committed: the same whenever the same writer writes it.

    >>> hidden_name("part-00001.txt", Writing("4f2a", "to text", 1, 2))
    '.part-00001.txt.4f2a.to-text.1.0.tmp'
    """
    operator = re.sub(r"[^\w.-]", "-", writing.operator)[:80]
    return f".{name}.{writing.job}.{operator}.{writing.index}.{number}.tmp"


class Part:
    """A file under a hidden name until it is committed.

    After `commit` it is there, whole and on disk, also if the machine fails; after `discard`, or
    if the process dies first, nothing of that name is. A process that is killed leaves the hidden
    file behind, which readers of the directory pass over; its name follows from job, operator,
    instance and number, so who takes its place finds it, and begins it anew.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        writing: Writing,
        number: int = 0,
        overwrite: bool = False,
    ) -> None:
        self.path = directory / name
        self._overwrite = overwrite
        directory.mkdir(parents=True, exist_ok=True)
        self._check_absent()
        self._hidden = directory / hidden_name(name, writing, number)
        self._hidden.unlink(missing_ok=True)
        self.file = self._hidden.open("xb", buffering=_BUFFER_BYTES)
        self._committed = False

    def _check_absent(self) -> None:
        if not self._overwrite and self.path.exists():
            raise is_there(self.path)

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


def is_there(path: Path) -> FileExistsError:
    """The error for a file that is there and may not be replaced."""
    return FileExistsError(
        f"{str(path)!r} is there already; write to another directory, or say overwrite=True"
    )


def part_name(index: int, extension: str) -> str:
    """The name of an instance's file."""
    return f"part-{index:05}.{extension}"


@dataclass
class LineFiles(Sink):
    """Lines into a directory: instance i writes the file `part-0000i`.

    What was written can be seen after `every_s` at the latest, and stays, also if the job fails
    later; a worker that is killed may so leave the beginning of a line at the end. Without
    `every_s` each file appears, whole, when the input has ended: an instance that fails leaves
    nothing; others that had ended by then have their files.

    Under checkpoints every epoch with records is a file of its own, `part-0000i-<job>-<operator>-
    <epoch>-000`, which appears, whole, when the epoch is committed: every line exactly once,
    whatever fails. `every_s` and `overwrite` have no meaning then.
    """

    path: str
    format: Format = TEXT
    overwrite: bool = False
    """Replace files of the same names; others in the directory stay."""
    every_s: float | None = 1.0
    guarantee = "exactly once"
    tied = True
    _epochs: EpochFiles | None = field(default=None, init=False, repr=False)
    _part: Part | None = field(default=None, init=False, repr=False)
    _file: IO[bytes] | None = field(default=None, init=False, repr=False)
    _encode: Callable[[Record], bytes] = field(init=False, repr=False)
    _lines: list[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = local_directory(self.path)
        if self.every_s is not None and self.every_s <= 0:
            raise ValueError(f"every_s is {self.every_s}; it must be more than 0")

    def begin(self, writing: Writing) -> None:
        """Begin the file, hidden or not; under checkpoints, only the directory."""
        self._encode = self.format.encoder()
        self._lines = []
        directory = Path(self.path)
        if writing.epoch is not None:
            self.every_s = None
            self._epochs = EpochFiles(directory, self.format.extension, writing)
            return
        name = part_name(writing.index, self.format.extension)
        if self.every_s is None:
            self._part = Part(directory, name, writing, overwrite=self.overwrite)
            self._file = self._part.file
            return
        directory.mkdir(parents=True, exist_ok=True)
        try:
            mode = "wb" if self.overwrite else "xb"
            self._file = (directory / name).open(mode, buffering=_BUFFER_BYTES)
        except FileExistsError:
            raise is_there(directory / name) from None

    def write(self, records: Iterator[Record]) -> None:
        """Write a line for each."""
        # Lines before a record that raises stay in the list, for the next call.
        self._lines.extend(map(self._encode, records))
        if self._lines:
            self._lines.append(b"")
            block = b"\n".join(self._lines)
            self._lines.clear()
            if self._epochs is not None:
                with self._epochs.writing():
                    self._epochs.file.write(block)
            else:
                assert self._file is not None, "not open"
                self._file.write(block)

    def tick(self) -> None:
        """Let lines be seen."""
        self.write(iter(()))
        assert self._file is not None, "not open"
        self._file.flush()

    def finish(self) -> None:
        """Let all be seen, and get it onto the disk; under checkpoints, an epoch does that."""
        if self._epochs is not None:
            return
        self.tick()
        assert self._file is not None, "not open"
        if self._part is not None:
            self._part.commit()
        else:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Keep what can be seen, or was prepared; remove what cannot."""
        if self._epochs is not None:
            self._epochs.close()
        elif self._part is not None:
            self._part.discard()
        elif self._file is not None:
            self._file.close()

    def prepare(self, epoch: int) -> Prepared | None:
        """End the hidden file of the lines since the last epoch."""
        assert self._epochs is not None, "not under checkpoints"
        self.write(iter(()))
        return self._epochs.prepare(epoch)

    def sync(self, handle: Any) -> None:
        """Have a file on the disk."""
        assert self._epochs is not None, "not under checkpoints"
        self._epochs.sync(handle)

    def commit(self, handle: Any) -> None:
        """Let a file appear."""
        epoch_files.commit(handle)

    def abort(self, handle: Any) -> None:
        """Remove a file."""
        if self._epochs is not None:
            self._epochs.aborted(handle)
        epoch_files.abort(handle)

    def roll_back(self) -> None:
        """Remove the lines since the last epoch."""
        if self._epochs is not None:
            self._lines.clear()
            self._epochs.discard()
