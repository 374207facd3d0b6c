"""Folders: files that are whole or not there, and errors of one line."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tailrace.checkpoint.arrow_folder import ArrowFolder
from tailrace.checkpoint.errors import CheckpointError, MissingError
from tailrace.checkpoint.folder import Folder, LocalFolder, folder_at, hidden_name, shown_name


def subtree(path: Path) -> ArrowFolder:
    path.mkdir()
    filesystem = fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())
    return ArrowFolder(filesystem, "", "mock://root")


@pytest.fixture(params=["local", "arrow", "subtree", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    where = tmp_path / "a" / "folder"
    if request.param == "local":
        return folder_at(where)
    if request.param == "arrow":
        return ArrowFolder(fs.LocalFileSystem(), str(where), f"mock://{where}")
    return subtree(tmp_path / "sub") if request.param == "subtree" else folder_at("mock:///a/b")


def test_a_file_is_read_as_it_was_written(folder: Folder) -> None:
    folder.write("data/one.bin", b"0123456789")
    folder.write("data/two.bin", [b"01", memoryview(b"234"), bytearray(b"56"), b""])
    folder.write("top", b"")
    assert folder.read("data/one.bin") == b"0123456789"
    assert folder.read("data/one.bin", 3, 4) == b"3456"
    assert folder.read("data/one.bin", 8, 10) == b"89"
    assert folder.read("data/one.bin", 20, 10) == b""
    assert folder.read("data/one.bin", 4) == b"456789"
    assert folder.read("data/two.bin") == b"0123456"
    assert folder.sizes("data") == {"data/one.bin": 10, "data/two.bin": 7}
    assert folder.names() == ["data/one.bin", "data/two.bin", "top"]


def test_a_file_is_replaced(folder: Folder) -> None:
    folder.write("data/one.bin", b"before")
    folder.write("data/one.bin", b"after")
    assert folder.read("data/one.bin") == b"after"
    assert folder.sizes("", hidden=True) == {"data/one.bin": 5}


def test_what_is_not_there(folder: Folder) -> None:
    assert folder.names() == []
    assert folder.names("data") == []
    assert not folder.exists("data/one.bin")
    folder.delete("data/one.bin")
    with pytest.raises(MissingError, match=r"cannot read '.*data/one\.bin': there is no such file"):
        folder.read("data/one.bin")
    folder.write("data/one.bin", b"")
    assert folder.exists("data/one.bin")
    assert not folder.exists("data")
    folder.delete("data/one.bin")
    assert not folder.exists("data/one.bin")


def test_a_folder_can_be_sent_to_another_process(folder: Folder) -> None:
    if folder.url == "mock:///a/b":
        pytest.skip("what is in memory stays there")
    folder.write("one", b"1")
    assert pickle.loads(pickle.dumps(folder)).read("one") == b"1"


def test_hidden_files_are_not_seen_unless_asked_for(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("data/one", b"1")
    hidden = hidden_name("data/two")
    (tmp_path / hidden).write_bytes(b"half")
    assert folder.sizes("data") == {"data/one": 1}
    assert folder.sizes("data", hidden=True) == {"data/one": 1, hidden: 4}
    assert shown_name(hidden) == "data/two"
    assert shown_name("data/.other") is None


@pytest.mark.parametrize("where", ["file://{}/x%20y", "file://localhost{}/x%20y", "{}/x y"])
def test_paths_and_file_urls_are_local_folders(tmp_path: Path, where: str) -> None:
    assert folder_at(where.format(tmp_path)) == LocalFolder(tmp_path / "x y")


def test_a_relative_path_means_the_same_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_at("state") == LocalFolder(tmp_path / "state")


def test_what_is_no_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="empty name"):
        folder_at("")
    with pytest.raises(ValueError, match="names the host 'far'; write file:///path"):
        folder_at("file://far/path")
    with pytest.raises(CheckpointError, match="cannot open the folder 'nosuch://x': Unrec"):
        folder_at("nosuch://x")


def test_local_folders_do_without_pyarrow() -> None:
    program = (
        "import sys\n"
        "from tailrace.checkpoint import folder, lease, manifest, reading, sections, store\n"
        "folder.folder_at('/tmp')\n"
        "assert 'pyarrow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@contextmanager
def limited(file_bytes: int) -> Iterator[None]:
    """Let files of this process grow no larger; writing on fails with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    action = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, action)


def test_a_write_that_fails_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    folder.write("data/one", b"before")
    with limited(10_000), pytest.raises(CheckpointError) as caught:
        folder.write("data/one", [bytes(7_000), bytes(7_000)])
    assert str(caught.value) == f"cannot write '{tmp_path}/data/one': File too large"
    assert folder.read("data/one") == b"before"
    assert folder.sizes("", hidden=True) == {"data/one": 6}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(where)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_is_told_and_what_was_there_stays(small_disk: Path) -> None:
    folder = folder_at(small_disk)
    folder.write("data/one", b"before")
    with pytest.raises(CheckpointError) as caught:
        folder.write("data/two", bytes(100_000))
    assert str(caught.value) == f"cannot write '{small_disk}/data/two': No space left on device"
    assert folder.sizes("", hidden=True) == {"data/one": 6}


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_write_that_fails_at_its_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    folder = folder_at(tmp_path)
    folder.write("data/one", b"before")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync" if failing == "fsync" else "pathlib.Path.rename", fail)
        with pytest.raises(CheckpointError, match="No space left on device"):
            folder.write("data/one", b"after")
    assert folder.read("data/one") == b"before"
    assert folder.sizes("", hidden=True) == {"data/one": 6}


AS_NOBODY = """
import os, sys
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.lease import take_lease
os.setgroups([]); os.setgid(65534); os.setuid(65534)
folder = folder_at(sys.argv[1])
for act in (
    lambda: folder.write("data/one", b"1"),
    lambda: folder.read("secret"),
    lambda: folder.names(),
    lambda: folder.delete("secret"),
    lambda: take_lease(folder, "job"),
):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_no_permission_is_told(tmp_path: Path) -> None:
    for above in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        above.chmod(above.stat().st_mode | 0o055)
    folder = folder_at(tmp_path / "state")
    folder.write("secret", b"1")
    (tmp_path / "state").chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, folder.url],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = done.stdout.splitlines()
    assert len(said) == 5, done
    where = {
        "write": f"{folder.url}/data/one",
        "read": f"{folder.url}/secret",
        "list": folder.url,
        "delete": f"{folder.url}/secret",
        "lock": f"{folder.url}/lease",
    }
    for line, (doing, path) in zip(said, where.items(), strict=True):
        assert line == f"CheckpointError cannot {doing} '{path}': Permission denied"


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    folder = folder_at(tmp_path / "state")
    with pytest.raises(CheckpointError) as caught:
        folder.write("data/one", b"1")
    assert str(caught.value) == (
        f"cannot write '{tmp_path}/state/data/one':"
        f" this is a file and no folder: '{tmp_path}/state'"
    )
    with pytest.raises(CheckpointError, match="Not a directory"):
        folder.names("data")
    with pytest.raises(CheckpointError, match="Not a directory"):
        folder.read("data/one")


class ObjectStore:
    """A file system that says it is S3, and cannot move anything."""

    type_name = "s3"

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        assert name not in ("move", "create_dir")
        return getattr(self._filesystem, name)


def test_an_object_is_uploaded_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folder = ArrowFolder(ObjectStore(fs.LocalFileSystem()), str(tmp_path), "s3://bucket")
    folder.write("data/one", [b"1", b"2"])
    folder.write("data/one", [b"1", b"2", b"3"])
    assert folder.sizes(hidden=True) == {"data/one": 3}


class NeverReplacing:
    """As HDFS does it: a file is not moved to where another is."""

    type_name = "hdfs"

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def move(self, source: str, target: str) -> None:
        if Path(target).exists():
            raise OSError(f"{target} is there")
        self._filesystem.move(source, target)


def test_a_file_is_replaced_also_where_moving_does_not(tmp_path: Path) -> None:
    folder = ArrowFolder(NeverReplacing(fs.LocalFileSystem()), str(tmp_path), "hdfs://host")
    folder.write("data/one", b"before")
    folder.write("data/one", b"after")
    assert folder.read("data/one") == b"after"
    assert folder.sizes(hidden=True) == {"data/one": 5}


def test_what_pyarrow_says_comes_in_one_line(tmp_path: Path) -> None:
    folder = ArrowFolder(fs.LocalFileSystem(), str(tmp_path / "file"), "mock://x")
    (tmp_path / "file").write_text("a file")
    for act in (lambda: folder.write("data/one", b"1"), lambda: folder.read("data/one")):
        with pytest.raises(CheckpointError, match=r"cannot (write|read) 'mock://x") as e:
            act()
        assert "\n" not in str(e.value)
