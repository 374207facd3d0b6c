"""Folders behind a URL (s3://, gs://, hdfs:// ...), by pyarrow.fs. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyarrow import ArrowException, fs

from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.folder import Buffer, buffers_of, hidden_name, is_hidden
from tailrace.checkpoint.folder import told as told_by_system

_OBJECT_STORES = {"s3", "gcs", "abfs"}
"""An object appears when its upload is complete; to move one is to copy it."""


@contextmanager
def told(doing: str, where: str) -> Iterator[None]:
    """Turn what pyarrow raises into one line."""
    with told_by_system(doing, where):
        try:
            yield
        except ArrowException as error:
            cause = str(error).partition("\n")[0]
            raise CheckpointError(f"cannot {doing} {where!r}: {cause}") from error


@dataclass(frozen=True)
class ArrowFolder:
    """A folder of a pyarrow FileSystem.

    In an object store a file appears when its upload is complete; elsewhere it is written under a
    hidden name and moved.
    """

    filesystem: Any
    path: str
    """Of the folder, in the filesystem."""
    url: str

    @classmethod
    def at(cls, url: str) -> ArrowFolder:
        """The folder at a URL that pyarrow knows."""
        try:
            filesystem, path = fs.FileSystem.from_uri(url)
        except (ArrowException, OSError, ValueError) as error:
            cause = str(error).partition("\n")[0]
            raise CheckpointError(f"cannot open the folder {url!r}: {cause}") from error
        return cls(filesystem, path.rstrip("/"), url)

    def write(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        """See Folder."""
        path = self._path(name)
        with told("write", self._shown(name)):
            # One call: pyarrow completes a file on closing, also after half of the calls failed.
            whole = b"".join(buffers_of(data))
            if self.filesystem.type_name in _OBJECT_STORES:
                with self.filesystem.open_output_stream(path) as stream:
                    stream.write(whole)
                return
            hidden = self._path(hidden_name(name))
            if above := path.rpartition("/")[0]:
                self.filesystem.create_dir(above, recursive=True)
            try:
                with self.filesystem.open_output_stream(hidden) as stream:
                    stream.write(whole)
                self._move(hidden, path)
            except BaseException:
                with suppress(OSError):
                    self.filesystem.delete_file(hidden)
                raise

    def _move(self, hidden: str, path: str) -> None:
        try:
            self.filesystem.move(hidden, path)
        except OSError:  # HDFS does not replace a file
            if self.filesystem.get_file_info(path).type != fs.FileType.File:
                raise
            self.filesystem.delete_file(path)
            self.filesystem.move(hidden, path)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Folder."""
        path = self._path(name)
        with told("read", self._shown(name)), self.filesystem.open_input_file(path) as file:
            left = max(file.size() - offset, 0)
            if length is not None:
                left = min(left, length)
            return bytes(file.read_at(left, offset)) if left else b""

    def sizes(self, under: str = "", hidden: bool = False) -> dict[str, int]:
        """See Folder."""
        root = self._path(under)
        with told("list", self._shown(under)):
            found = self.filesystem.get_file_info(
                fs.FileSelector(root, allow_not_found=True, recursive=True)
            )
        start = len(self.path) + 1 if self.path else 0
        sizes = {info.path[start:]: info.size for info in found if info.type == fs.FileType.File}
        return {name: size for name, size in sizes.items() if hidden or not is_hidden(name)}

    def names(self, under: str = "") -> list[str]:
        """See Folder."""
        return sorted(self.sizes(under))

    def delete(self, name: str) -> None:
        """See Folder."""
        with told("delete", self._shown(name)), suppress(FileNotFoundError):
            self.filesystem.delete_file(self._path(name))

    def exists(self, name: str) -> bool:
        """See Folder."""
        with told("look for", self._shown(name)):
            return bool(self.filesystem.get_file_info(self._path(name)).type == fs.FileType.File)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self.path, name) if part)

    def _shown(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}" if name else self.url
