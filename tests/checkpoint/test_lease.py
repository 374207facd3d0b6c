"""Who may write: one driver at a time, in a local folder and behind a URL."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tailrace.checkpoint.arrow_folder import ArrowFolder
from tailrace.checkpoint.errors import CheckpointError, LeaseHeldError, LeaseLostError
from tailrace.checkpoint.file_lease import FileLease
from tailrace.checkpoint.folder import Folder, folder_at
from tailrace.checkpoint.lease import Holder, died_here, held_by, process_name, take_lease
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.store import Store

HOLDER = """
import sys
from pyarrow import fs
from tailrace.checkpoint.arrow_folder import ArrowFolder
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.lease import take_lease
where, kind = sys.argv[1:]
folder = folder_at(where)
if kind == "arrow":
    folder = ArrowFolder(fs.LocalFileSystem(), where, where)
lease = take_lease(folder, "the first")
print(lease.generation, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["local", "arrow"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    where = str(tmp_path / "state")
    if request.param == "local":
        return folder_at(where)
    return ArrowFolder(fs.LocalFileSystem(), where, where)


@pytest.fixture
def first(folder: Folder) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease."""
    kind = "arrow" if isinstance(folder, ArrowFolder) else "local"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder.url, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


def test_a_second_driver_is_refused_and_told_who_is_there(
    folder: Folder, first: subprocess.Popen[str]
) -> None:
    with pytest.raises(LeaseHeldError) as caught:
        take_lease(folder, "the second")
    said = str(caught.value)
    assert f"'{folder.url}' is in use by job 'the first' (process {first.pid} on host '" in said
    assert ", since 20" in said
    assert "\n" not in said


def test_after_kill_9_the_next_driver_takes_over_at_once(
    folder: Folder, first: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first.send_signal(signal.SIGKILL)
    first.wait()
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited"))
    with take_lease(folder, "the second") as lease:
        assert lease.generation == 2
        lease.check()
        lease.renew()
        lease.check()


def test_a_lease_that_was_given_back_can_be_taken_again(folder: Folder) -> None:
    one = take_lease(folder, "one")
    one.release()
    one.release()
    with pytest.raises(LeaseLostError, match="it was given back"):
        one.check()
    with take_lease(folder, "two") as two:
        assert (one.generation, two.generation) == (1, 2)


def test_generations_go_on_from_those_of_manifests(folder: Folder) -> None:
    Store(folder).commit(Manifest(4, 7, 0, "job", "name", 0.0))
    with take_lease(folder, "one") as lease:
        assert lease.generation == 8


def test_two_jobs_of_one_process_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        take_lease(folder_at(tmp_path), "one"),
        pytest.raises(LeaseHeldError, match=f"job 'one' \\(process {os.getpid()} on"),
    ):
        take_lease(folder_at(tmp_path), "two")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_the_driver_does_not_hold_the_lease(tmp_path: Path) -> None:
    """Else a worker forked by the driver would keep the next one out after its death."""
    lease = take_lease(folder_at(tmp_path), "one")
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(done[1])
        os.write(ready[1], b"x")
        os.read(done[0], 1)  # until the parent has taken it again
        os._exit(0)
    os.read(ready[0], 1)
    lease.release()
    try:
        with take_lease(folder_at(tmp_path), "two") as two:
            assert two.generation == 2
    finally:
        os.close(done[1])
        os.waitpid(child, 0)
        for descriptor in (*ready, done[0]):
            os.close(descriptor)


def test_a_lease_is_lost_with_the_folder(folder: Folder) -> None:
    lease = take_lease(folder, "one")
    shutil.rmtree(folder.url)
    with pytest.raises(LeaseLostError, match="has been deleted"):
        lease.check()
    with take_lease(folder, "two") as other:
        assert other.generation == 1
        with pytest.raises(LeaseLostError):
            lease.check()
    lease.release()


def test_half_a_word_in_the_lease_file_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "lease").write_bytes(b'{"job": "one", "ho')
    with take_lease(folder_at(tmp_path), "two") as lease:
        assert lease.generation == 1


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something")
    with pytest.raises(CheckpointError, match="it is a file and not a folder"):
        take_lease(folder_at(tmp_path / "file"), "one")


def holder_of(pid: int) -> Holder:
    return Holder("job", "here", pid, 0.0, 1, process_name(pid) or "")


def test_who_has_died_on_this_host_is_known() -> None:
    assert not died_here(holder_of(os.getpid()))
    assert not died_here(replace(holder_of(os.getpid()), process="another boot 1 1"))
    assert not died_here(replace(holder_of(os.getpid()), process=""))
    with subprocess.Popen(["sleep", "60"]) as process:
        holder = holder_of(process.pid)
        assert not died_here(holder)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert died_here(holder), "though nobody has asked for it yet"
        process.wait()
        assert died_here(holder)
    again = replace(holder_of(os.getpid()), process=f"{holder_of(os.getpid()).process}0")
    assert died_here(again), "another process has its number now"


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def remote(tmp_path: Path) -> ArrowFolder:
    return ArrowFolder(fs.LocalFileSystem(), str(tmp_path), "mock://here")


def far_away(folder: Folder, generation: int, job: str = "the first") -> Holder:
    """A holder on another host."""
    holder = Holder(job, "far", 77, 1_700_000_000.0, generation, "boot space 77 1", "ab")
    folder.write(f"leases/{generation}-ab-00000000.json", holder.to_json())
    return holder


def test_a_holder_on_another_host_is_dead_when_it_renews_no_more(remote: ArrowFolder) -> None:
    holder = far_away(remote, 3)
    remote.write("leases/3-ab-00000001.json", holder.to_json())
    remote.write("leases/.2-cd-00000004.json.0011aabb.tmp", b"half")
    clock = Clock()
    lease = FileLease.take(
        remote, "two", expires_s=5.0, keep=False, sleep=clock.sleep, clock_s=clock
    )
    assert lease.generation == 4
    assert 5.0 <= clock.now_s <= 6.0
    (left,) = remote.sizes("leases", hidden=True)
    assert left.startswith("leases/4-")


def test_a_holder_on_another_host_lives_as_long_as_it_renews(remote: ArrowFolder) -> None:
    holder = far_away(remote, 3)
    clock = Clock()

    def renew(seconds: float) -> None:
        clock.sleep(seconds)
        remote.write("leases/3-ab-00000001.json", holder.to_json())

    with pytest.raises(LeaseHeldError, match="job 'the first' \\(process 77 on host 'far', since"):
        FileLease.take(remote, "two", keep=False, sleep=renew, clock_s=clock)
    assert clock.now_s < 1.0


def test_who_was_taken_over_from_cannot_commit(remote: ArrowFolder) -> None:
    clock = Clock()

    def take(job: str) -> FileLease:
        return FileLease.take(remote, job, keep=False, sleep=clock.sleep, clock_s=clock)

    one = take("one")
    one._holder = far_away(remote, 1)  # so that it is not known to live here
    for name in remote.names("leases"):
        if "-ab-" not in name:
            remote.delete(name)
    Store(remote, one).commit(Manifest(1, 1, 0, "job", "name", 0.0))
    two = take("two")
    resumed = Store(remote, two).resume(Manifest.beginning("job", "name", 0.0))
    with pytest.raises(LeaseLostError, match=r"job 'two' \(process \d+ on .*has taken it over"):
        Store(remote, one).commit(Manifest(2, 1, 0, "job", "name", 0.0))
    with pytest.raises(LeaseLostError):
        one.renew()
    one.release()
    two.check()
    assert Store(remote).latest() == resumed


class Racing:
    """A folder in which somebody else is as quick: just before we list, they have written."""

    def __init__(self, folder: Folder, times: int) -> None:
        self._folder = folder
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def write(self, name: str, data: bytes) -> None:
        self._folder.write(name, data)
        if self.left:
            self.left -= 1
            generation = name.removeprefix("leases/").split("-")[0]
            self._folder.write(f"leases/{generation}-ff-00000000.json", b"{}")


def test_of_two_who_try_at_a_time_none_has_it_before_one_retreats(remote: ArrowFolder) -> None:
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        for name in remote.names("leases"):
            if "-ff-" in name:
                remote.delete(name)  # the other retreats as well

    racing: Any = Racing(remote, times=3)
    lease = FileLease.take(racing, "one", keep=False, sleep=sleep, clock_s=clock)
    assert not racing.left
    lease.check()
    assert len(remote.names("leases")) == 1


def test_many_takers_at_a_time_become_one_holder(remote: ArrowFolder) -> None:
    holders: list[FileLease] = []
    refused: list[LeaseHeldError] = []
    barrier = threading.Barrier(4)

    def compete(number: int) -> None:
        barrier.wait()
        try:
            holders.append(FileLease.take(remote, f"job {number}"))
        except LeaseHeldError as error:
            refused.append(error)

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(holders) == 1
    assert len(refused) == 3
    holders[0].check()
    holders[0].release()


def test_a_lease_that_is_given_back_while_it_is_looked_at_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of its descriptor stands for by then."""
    for reused in (False, True):
        lease = take_lease(folder_at(tmp_path), "one")
        fstat, opened = os.fstat, list[int]()

        def late(
            descriptor: int, lease: Any = lease, fstat: Any = fstat, opened: Any = opened
        ) -> Any:
            lease.release()
            if reused:  # noqa: B023
                opened.append(os.open(tmp_path, os.O_RDONLY))
                assert opened == [descriptor]
            return fstat(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", late)
            with pytest.raises(LeaseLostError, match="it was given back"):
                lease.check()
        for descriptor in opened:
            os.close(descriptor)


def test_who_gives_way_again_and_again_is_told_to_whom(remote: ArrowFolder) -> None:
    clock = Clock()

    class Quick(Racing):
        def write(self, name: str, data: bytes) -> None:
            self._folder.write(name, data)
            far_away(self._folder, int(name.removeprefix("leases/").split("-")[0]), "the quick")

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        for name in remote.names("leases"):
            remote.delete(name)

    quick: Any = Quick(remote, times=0)
    with pytest.raises(LeaseHeldError, match=r"in use by job 'the quick' \(process 77 on host 'fa"):
        FileLease.take(quick, "one", keep=False, sleep=sleep, clock_s=clock)


def test_who_holds_a_lease_can_be_asked_without_taking_it(
    folder: Folder, first: subprocess.Popen[str]
) -> None:
    for _ in range(2):
        assert held_by(folder).startswith(f"job 'the first' (process {first.pid} on host '")
    before = folder.names()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert held_by(folder) == ""
    assert folder.names() == before
    with take_lease(folder, "the second") as lease:
        lease.check()
        assert held_by(folder).startswith("job 'the second'")
    assert held_by(folder) == ""


def test_where_there_never_was_a_lease_nobody_holds_it(folder: Folder) -> None:
    assert held_by(folder) == ""
    assert not Path(folder.url).exists()


def test_who_asks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_lease(folder_at(tmp_path), "one").release()
    asking = os.open(tmp_path / "lease", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(asking, fcntl.LOCK_UN))
    with take_lease(folder_at(tmp_path), "two") as lease:
        assert lease.generation == 2
    os.close(asking)


def test_who_comes_while_another_looks_is_not_taken_over_from(remote: ArrowFolder) -> None:
    clock, written = Clock(), list[str]()

    class Looked(Racing):
        def names(self, under: str = "") -> list[str]:
            found: list[str] = self._folder.names(under)
            if self.left:
                self.left -= 1
                far_away(self._folder, 1)
            return found

        def write(self, name: str, data: bytes) -> None:
            written.append(name)
            self._folder.write(name, data)

    looked: Any = Looked(remote, times=1)
    FileLease.take(looked, "one", keep=False, sleep=clock.sleep, clock_s=clock)
    assert written[0].startswith("leases/1-"), "so both see each other"
