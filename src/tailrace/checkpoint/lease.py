"""Who may write to a folder: one driver at a time, and none that another has taken over from.

In a local folder the lease is a lock of the kernel's (flock) on the file `lease`. It is gone with
the process that holds it, however that ends, so the next driver takes over at once. Behind a URL
it is a file that is renewed (`file_lease.py`).

Each holder has a generation, higher than those before. A commit is safe with a check before and
after it (`Store.commit`).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from tailrace.checkpoint.errors import CheckpointError, LeaseHeldError, LeaseLostError
from tailrace.checkpoint.folder import Folder, LocalFolder, told
from tailrace.checkpoint.manifest import parse_epoch_name

ANOTHER = "another driver"
_NAME = "lease"
_MOST_BYTES = 1 << 16
_ASKED_S = (0.01, 0.05)
"""Who only asks whether a lease is held has it for a moment: see `held_by`."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lease."""

    job: str
    host: str
    pid: int
    since_s: float
    """By the wall clock."""
    generation: int
    process: str = ""
    """What tells this process from all others there ever were, as far as this host knows."""
    token: str = ""
    released: bool = False
    renewals: int = 0

    @classmethod
    def here(cls, job: str, generation: int, token: str = "") -> Holder:
        """This process, from now on."""
        return cls(
            job,
            socket.gethostname(),
            os.getpid(),
            time.time(),
            generation,
            process_name(os.getpid()) or "",
            token,
        )

    def to_json(self) -> bytes:
        """For the lease's file."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Holder | None:
        """None: that is no holder, or half of one."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since_s))
        return f"job {self.job!r} (process {self.pid} on host {self.host!r}, since {since})"


class Lease(Protocol):
    """The right to write to a folder. All may be called from any thread."""

    @property
    def generation(self) -> int:
        """Higher than that of all who held it before."""

    def check(self) -> None:
        """Raise a LeaseLostError if somebody else has taken the folder over."""

    def renew(self) -> None:
        """Say that we live; raises as `check` does. Needed only where nobody renews it for us."""

    def release(self) -> None:
        """Give it back: the next one need not wait. Once is enough."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def take_lease(folder: Folder, job: str) -> Lease:
    """Become the only one who writes to a folder; raises a LeaseHeldError with who does already.

    In a local folder this takes no time. Behind a URL a holder is told from one that died by its
    renewals, which takes some seconds, up to 15; if it died on this very host, none.
    """
    if isinstance(folder, LocalFolder):
        return LocalLease(folder, job)
    from tailrace.checkpoint.file_lease import FileLease

    return FileLease.take(folder, job)


def held_by(folder: Folder) -> str:
    """Who writes to a folder now, in words; empty: nobody. Takes nothing.

    Behind a URL, where a holder may have died, this takes up to 15 seconds, as `take_lease` does.
    """
    if isinstance(folder, LocalFolder):
        return _locked_by(folder)
    from tailrace.checkpoint.file_lease import living

    return living(folder)


def last_generation(folder: Folder) -> int:
    """The highest generation that any manifest is of."""
    places = (parse_epoch_name(name) for name in folder.names("epochs"))
    return max((place[0] for place in places if place is not None), default=0)


def held(folder: Folder, by: Holder | str | None) -> LeaseHeldError:
    """The error for a folder that somebody else writes to."""
    return LeaseHeldError(
        f"the checkpoint folder {folder.url!r} is in use by {by or ANOTHER}; stop that job first,"
        " or give this one a folder of its own"
    )


def lost(folder: Folder, why: str) -> LeaseLostError:
    """The error for a lease that is ours no more."""
    return LeaseLostError(
        f"this driver has lost the checkpoint folder {folder.url!r}: {why}; nothing is committed"
        " any more"
    )


def process_name(pid: int) -> str | None:
    """A name that no other process of any host ever has; None: it cannot be seen from here.

    A process that has ended and that nobody has asked for yet has another name than before.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (not a path)
    except OSError:
        return None
    # The 22nd field; the 2nd is a name in parentheses that may have anything in it.
    fields = stat.rpartition(b")")[2].split()
    ended = " ended" if fields[0] in (b"Z", b"X") else ""
    return f"{boot} {space} {pid} {fields[19].decode()}{ended}"


def died_here(holder: Holder) -> bool:
    """Whether it is known to be dead: it ran on this host, and does no more."""
    mine = process_name(os.getpid())
    if mine is None or holder.process.split()[:2] != mine.split()[:2]:
        return False
    now = process_name(holder.pid)
    if now is not None:
        return now != holder.process
    try:
        os.kill(holder.pid, 0)  # some hosts show nobody the processes of others
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _locked_by(folder: LocalFolder) -> str:
    path = folder.path / _NAME
    with told("look at", str(path)):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        try:
            # Shared, and for a moment: who takes the lease just then tries again.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return str(Holder.from_json(os.pread(descriptor, _MOST_BYTES, 0)) or ANOTHER)
        finally:
            os.close(descriptor)
    return ""


class LocalLease:
    """A lock on the file `lease` of a local folder. The file stays, for it has the generation."""

    def __init__(self, folder: LocalFolder, job: str) -> None:
        self._folder = folder
        self._path = folder.path / _NAME
        self._file = -1
        with told("lock", str(self._path)):
            try:
                folder.path.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise CheckpointError(
                    f"cannot use {folder.url!r} for checkpoints: it is a file and not a folder"
                ) from None
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                holder = self._lock(descriptor, job)
            except BaseException:
                os.close(descriptor)
                raise
        self._file = descriptor
        self.generation = holder.generation
        _open.add(self)

    def _lock(self, descriptor: int, job: str) -> Holder:
        """Lock it, and leave word of who we are."""
        for pause_s in (*_ASKED_S, None):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if pause_s is None:
                    raise held(self._folder, self._word(descriptor)) from None
                time.sleep(pause_s)
        before = self._word(descriptor)
        last = max(before.generation if before else 0, last_generation(self._folder))
        holder = Holder.here(job, last + 1)
        data = holder.to_json()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
        return holder

    def _word(self, descriptor: int) -> Holder | None:
        return Holder.from_json(os.pread(descriptor, _MOST_BYTES, 0))

    def check(self) -> None:
        """See Lease. A lock is lost with its file: if somebody deletes or replaces the folder."""
        descriptor = self._file
        try:
            there, mine = self._path.stat(), os.fstat(descriptor)
            word = self._word(descriptor)
        except FileNotFoundError:
            self._check_kept()
            raise lost(self._folder, f"{str(self._path)!r} has been deleted") from None
        except OSError as error:
            self._check_kept()
            raise CheckpointError(
                f"cannot look at {str(self._path)!r}: {error.strerror}"
            ) from error
        self._check_kept()
        if not os.path.samestat(there, mine):
            raise lost(self._folder, f"{str(self._path)!r} has been replaced")
        if word is not None and word.generation > self.generation:
            raise lost(self._folder, f"{word} has it")  # a network file system gave up our lock

    def _check_kept(self) -> None:
        """To be called behind each use of the descriptor: it may have been another file's."""
        if self._file < 0:
            raise lost(self._folder, "it was given back")

    def renew(self) -> None:
        """See Lease. There is nothing to renew."""
        self.check()

    def release(self) -> None:
        """See Lease."""
        self._close()
        _open.discard(self)

    def _close(self) -> None:
        if self._file >= 0:
            descriptor, self._file = self._file, -1
            with suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_open: weakref.WeakSet[Any] = weakref.WeakSet()


def _close_in_child() -> None:
    # A child shares the lock as long as it has the descriptor, and would hold it after our death.
    for lease in list(_open):
        lease._close()
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)
