"""Folders for checkpoints: files that appear whole or not at all, on a disk or behind a URL."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from tailrace.checkpoint.errors import CheckpointError, MissingError

Buffer = bytes | bytearray | memoryview
_WRITE_BYTES = 1 << 20
_TEMPORARY = ".tmp"


class Folder(Protocol):
    """Names are relative, with slashes. All errors are CheckpointErrors of one line."""

    @property
    def url(self) -> str:
        """Where it is: `folder_at` of it is the same folder."""

    def write(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        """The file is there, whole and lasting, when this returns; in the place of an older one.

        If it raises, or the process dies, the name is as it was before. Folders are made as needed.
        """

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """A range of a file, shorter if the file ends there; raises MissingError without one."""

    def sizes(self, under: str = "", hidden: bool = False) -> dict[str, int]:
        """The files below a folder of that name, however deep, each with its size in bytes.

        Hidden are those that are being written, and what a killed writer has left.
        """

    def names(self, under: str = "") -> list[str]:
        """The files below a folder of that name, in order."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""


def folder_at(where: str | Path) -> Folder:
    """The folder at a path or URL; it need not be there yet.

    Paths and file:// are served by the system itself, all other URLs by pyarrow.fs.
    """
    text = str(where)
    if not text:
        raise ValueError("a checkpoint folder has an empty name; give a path or a URL")
    scheme = urlsplit(text).scheme if "://" in text else ""
    if not scheme:
        return LocalFolder(Path(text).absolute())
    if scheme == "file":
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{text!r} names the host {parts.netloc!r}; write file:///path")
        return LocalFolder(Path(unquote(parts.path)))
    from tailrace.checkpoint.arrow_folder import ArrowFolder

    return ArrowFolder.at(text)


def hidden_name(name: str) -> str:
    """Where a file is until it is whole; different each time."""
    folder, _, last = name.rpartition("/")
    hidden = f".{last}.{secrets.token_hex(4)}{_TEMPORARY}"
    return f"{folder}/{hidden}" if folder else hidden


def shown_name(hidden: str) -> str | None:
    """The name that a hidden file was to get; None: it is none of ours.

    >>> shown_name("data/.00000012-1.0-3.bin.1f00ba47.tmp")
    'data/00000012-1.0-3.bin'
    """
    folder, _, last = hidden.rpartition("/")
    if not is_hidden(hidden) or not last.endswith(_TEMPORARY):
        return None
    shown = last[1 : -len(_TEMPORARY)].rpartition(".")[0]
    return f"{folder}/{shown}" if folder else shown


def is_hidden(name: str) -> bool:
    """Whether a file is not to be seen yet."""
    return name.rpartition("/")[2].startswith(".")


def buffers_of(data: Buffer | Iterable[Buffer]) -> Iterable[Buffer]:
    """What is to be written, one after the other."""
    return (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data


@contextmanager
def told(doing: str, where: str) -> Iterator[None]:
    """Turn an OSError into one line that says what could not be done, where and why."""
    try:
        yield
    except OSError as error:
        if doing == "read" and isinstance(error, FileNotFoundError):
            raise MissingError(f"cannot read {where!r}: there is no such file") from None
        cause = error.strerror or str(error).partition("\n")[0]
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR) and error.filename:
            cause = f"{cause}: {error.filename!r}"
        raise CheckpointError(f"cannot {doing} {where!r}: {cause}") from error


@dataclass(frozen=True)
class LocalFolder:
    """A folder that this host sees as one: a disk, or what is mounted.

    After `write` a file and its name are on the disk, also if the machine fails.
    """

    path: Path

    @property
    def url(self) -> str:
        """Its path."""
        return str(self.path)

    def write(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        """See Folder."""
        path, hidden = self.path / name, self.path / hidden_name(name)
        with told("write", str(path)):
            _make(path.parent)
            file = hidden.open("xb", buffering=_WRITE_BYTES)
            try:
                file.writelines(buffers_of(data))
                file.flush()
                os.fsync(file.fileno())
                file.close()
                hidden.rename(path)
            except BaseException:
                with suppress(OSError):  # closing writes what is buffered, and the disk may be full
                    file.close()
                with suppress(OSError):
                    hidden.unlink()
                raise
            sync(path.parent)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Folder."""
        path = self.path / name
        with told("read", str(path)), path.open("rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size - offset
            left = max(left if length is None else min(left, length), 0)
            parts: list[bytes] = []
            file.seek(offset)
            while left > 0 and (part := file.read(left)):
                parts.append(part)
                left -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def sizes(self, under: str = "", hidden: bool = False) -> dict[str, int]:
        """See Folder."""
        root = self.path / under
        with told("list", str(root)):
            try:
                found = dict(_walk(str(root), f"{under}/" if under else ""))
            except FileNotFoundError:
                return {}
        return {name: size for name, size in found.items() if hidden or not is_hidden(name)}

    def names(self, under: str = "") -> list[str]:
        """See Folder."""
        return sorted(self.sizes(under))

    def delete(self, name: str) -> None:
        """See Folder."""
        path = self.path / name
        with told("delete", str(path)):
            path.unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        """See Folder."""
        path = self.path / name
        with told("look for", str(path)):
            return path.is_file()


def _walk(root: str, prefix: str) -> Iterator[tuple[str, int]]:
    with os.scandir(root) as entries:
        for entry in entries:
            # What others rename or delete meanwhile is no longer of that name.
            with suppress(FileNotFoundError):
                if entry.is_dir():
                    yield from _walk(entry.path, f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name, entry.stat().st_size


def _make(folder: Path) -> None:
    """Make a folder and those above it, lasting."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make(folder.parent)
    with suppress(FileExistsError):  # made by another worker; or a file, which opening will tell
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "this is a file and no folder", str(folder))
    sync(folder.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
