"""Files of epochs: hidden when an epoch is prepared, on disk before it counts, seen when it does.

Whatever dies when: after the job has gone on from its last epoch, the files that can be seen hold
the records of all epochs up to that one, and no others.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, NamedTuple
from urllib.parse import unquote, urlsplit
from zlib import crc32

from tailrace.runtime.sink import Writing

_LOG = logging.getLogger(__name__)
_BUFFER_BYTES = 1 << 16
_URL = re.compile(r"[A-Za-z][\w+.-]+:/")  # with one slash: what a Path makes of one


def local_directory(path: str) -> str:
    """Where a sink of files writes: a path, or a file:// of this host; raises for other URLs.

    >>> local_directory("file:///data/out")
    '/data/out'
    """
    if not _URL.match(path):
        return path
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    raise ValueError(
        f"a sink of files cannot write to {path!r}: it renames files in a directory that workers"
        " see as one. Give it a path, of a network file system if workers are on several hosts; or"
        " write to the store by sinks.call, or by Spark from the files"
    )


class Prepared(NamedTuple):
    """The files of one instance and epoch, whole under their hidden names."""

    directory: str
    files: tuple[tuple[str, str], ...]
    """Pairs of a hidden name, and the one under which it is to be seen."""


def epoch_name(writing: Writing, epoch: int, number: int, extension: str) -> str:
    """The name of a file, number 0 of the epoch or a further one, when it can be seen.

    >>> epoch_name(Writing("4f2a", "sink", 1, 2), 12, 0, "txt")
    'part-00001-4f2a-sink-00000012-000.txt'
    """
    operator = _plain(writing.operator)
    return f"part-{writing.index:05}-{writing.job}-{operator}-{epoch:08}-{number:03}.{extension}"


def _plain(operator: str) -> str:
    """An operator's name as part of a file's: without what separates, and another for each."""
    plain = re.sub(r"\W", "_", operator, flags=re.ASCII)[:80]
    return plain if plain == operator else f"{plain}_{crc32(operator.encode()):08x}"


def leftovers(writing: Writing, directory: Path) -> Iterator[Path]:
    """The files, hidden or seen, of later epochs than the one this instance goes on from.

    Those of this job and operator; of several instances each finds its own and its share of those
    that there are no more. Files that were seen are among them when a job had to go back further
    than to its last epoch.
    """
    assert writing.epoch is not None
    who = f"{re.escape(writing.job)}-{_plain(writing.operator)}"
    pattern = re.compile(rf"\.?part-(\d+)-{who}-(\d+)-\d+\.\w+(\.\w+\.tmp)?")
    for path in directory.iterdir():
        if found := pattern.fullmatch(path.name):
            index, epoch = int(found[1]), int(found[2])
            if epoch > writing.epoch and index % writing.parallelism == writing.index:
                yield path


class EpochFiles:
    """What one instance writes. A file is made when there is something to write into it."""

    def __init__(self, directory: Path, extension: str, writing: Writing) -> None:
        assert writing.epoch is not None, "without checkpoints there are no epochs"
        self._directory = directory
        self._extension = extension
        self._writing = writing
        self._epoch = writing.epoch
        # An instance that was taken for dead, and is not, must not come in the way of the next.
        self._token = token_hex(4)
        self._file: IO[bytes] | None = None
        self._names: list[str] = []  # of the files since the last epoch: hidden, this one too
        self._unsynced: set[Prepared] = set()  # here, so whose files nobody has seen or taken yet
        self._failure: BaseException | None = None
        directory.mkdir(parents=True, exist_ok=True)
        for path in list(leftovers(writing, directory)):
            path.unlink(missing_ok=True)

    @property
    def file(self) -> IO[bytes]:
        """The file to write into; a new one if there is none."""
        if self._file is None:
            shown = epoch_name(self._writing, self._epoch + 1, len(self._names), self._extension)
            name = f".{shown}.{self._token}.tmp"
            self._file = (self._directory / name).open("wb", buffering=_BUFFER_BYTES)
            self._names.append(name)
        return self._file

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around all that writes: if that fails, there is no epoch with what is left of it.

        For a job may be told to skip records that raise, and a disk that fails for a moment is not
        a record's fault. Only `discard` makes a new beginning.
        """
        try:
            yield
        except BaseException as error:
            self._failure = self._failure or error
            raise

    def complete(self) -> None:
        """End the file, if there is one; what comes next is written to another."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def prepare(self, epoch: int) -> Prepared | None:
        """The files since the last epoch belong to this one; None: there are none."""
        if self._failure is not None:
            raise OSError(
                f"epoch {epoch} cannot be prepared in {str(self._directory)!r}, because writing"
                f" has failed before: {self._failure!r}"
            ) from self._failure
        with self.writing():
            self.complete()
        names, self._names, self._epoch = self._names, [], epoch
        if not names:
            return None
        shown = (epoch_name(self._writing, epoch, i, self._extension) for i in range(len(names)))
        prepared = Prepared(str(self._directory), tuple(zip(names, shown, strict=True)))
        self._unsynced.add(prepared)
        return prepared

    def sync(self, prepared: Prepared) -> None:
        """Have the files on the disk under the names that they have, hidden or seen.

        Raises if one that was prepared here is gone before its epoch can count. Once that has been
        seen and synced, whoever reads it may take it away.
        """
        directory = Path(prepared.directory)
        for hidden, shown in prepared.files:
            try:
                _sync(directory / hidden)
            except FileNotFoundError:  # it can be seen, and was synced before; or it was aborted
                if prepared in self._unsynced and not (directory / shown).exists():
                    raise FileNotFoundError(
                        f"{str(directory / hidden)!r} was prepared for an epoch and is gone before"
                        " that counts. Does something clear away hidden files there?"
                    ) from None
        if directory.is_dir():
            _sync(directory)
        self._unsynced.discard(prepared)

    def aborted(self, prepared: Prepared) -> None:
        """Its files are about to be gone."""
        self._unsynced.discard(prepared)

    def discard(self) -> None:
        """Remove the files since the last epoch."""
        self._failure = None
        if self._file is not None:
            with suppress(OSError):  # closing writes what is buffered, and the disk may be full
                self._file.close()
            self._file = None
        for name in self._names:
            (self._directory / name).unlink(missing_ok=True)
        self._names = []

    def close(self) -> None:
        """Remove the files since the last epoch; those that can be seen stay so."""
        self.discard()
        if self._directory.is_dir():
            _sync(self._directory)


def commit(prepared: Prepared) -> None:
    """Let the files be seen; those that are already stay as they are. They last after a `sync`."""
    directory = Path(prepared.directory)
    for hidden, shown in prepared.files:
        try:
            (directory / hidden).replace(directory / shown)
        except FileNotFoundError:
            if not (directory / shown).exists():
                _LOG.warning(
                    "%s is not there, and was committed before or is lost: its hidden file %s is"
                    " gone, too. Did somebody move or delete files there?",
                    directory / shown,
                    hidden,
                )


def abort(prepared: Prepared) -> None:
    """Remove the files that cannot be seen yet."""
    for hidden, _ in prepared.files:
        (Path(prepared.directory) / hidden).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Of a directory, the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
