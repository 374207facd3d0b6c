"""The process of a Spark task as a supervisor: it forks the worker, and another if that is lost.

To Spark the task just runs. A worker that is killed is there again after some milliseconds, for
all that it needs has been imported here before. The worker ends with its supervisor, however that
ends, and holds nothing that belongs to it: what Spark is told of a lost task stays true.

Only a process of one thread may be forked with a good conscience. So the user's job is loaded here
only when a worker has found that loading it starts no thread and opens nothing.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from tailrace.control.cores import usable_cores
from tailrace.control.mains import load_job
from tailrace.control.meeting import WorkerJob
from tailrace.control.protocol import Settings
from tailrace.control.worker import Supervised, Worker

_PR_SET_PDEATHSIG = 1
_AGAIN = 3
"""The exit status of a worker that says itself that another should take its place."""
_SAID_HELLO, _LOADS_QUIETLY = b"h", b"q"
_MOST_IN_VAIN = 5
"""So many workers in a row may end before they have reached the driver."""
_PAUSE_S = 0.1

_libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """What a task does: have a worker of its rank until the job is over."""

    def __init__(self, settings: Settings, rank: int, executor: str) -> None:
        self._settings = settings
        self._rank = rank
        self._executor = executor
        self._job: WorkerJob | None = None
        self._lives = 0

    def run(self) -> None:
        """Fork workers, one after the other; raises if none can live at all."""
        usable_cores()  # read once, here
        gc.collect()
        gc.freeze()  # so that the workers' collections leave shared memory alone
        in_vain = 0
        try:
            while True:
                status, said_hello = self._live()
                if status == 0:  # the job has ended, or the driver
                    return
                self._lives += 1
                in_vain = 0 if said_hello else in_vain + 1
                if in_vain == _MOST_IN_VAIN:
                    raise RuntimeError(
                        f"{in_vain} processes of worker {self._rank} in a row have ended before"
                        f" they reached the driver, the last by {_in_words(status)}; the"
                        " executor's stderr may say why"
                    )
                if in_vain > 1:
                    time.sleep(_PAUSE_S * in_vain)
        finally:
            gc.unfreeze()

    def _live(self) -> tuple[int, bool]:
        """Fork a worker and wait for its end: how it ended, and whether it had reached the driver.

        Its end is not that of the pipe, which may have gone on to processes of the user's.
        """
        supervisor = os.getpid()
        hears, tells = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                supervised = Supervised(supervisor, self._lives, partial(_tell, tells, _SAID_HELLO))
                _be_worker(self._settings, self._rank, self._executor, self._job, supervised, tells)
            said_hello = self._watch(pid, hears)
            _, status = os.waitpid(pid, 0)
            return status, said_hello or _SAID_HELLO in _told(hears)
        finally:
            os.close(hears)
            os.close(tells)

    def _watch(self, pid: int, hears: int) -> bool:
        """Load the job as soon as that is known to be safe; returns when the worker has ended."""
        try:
            process = os.pidfd_open(pid)
        except OSError:  # not known to this kernel, or not allowed
            return False
        said_hello = False
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            poll.register(hears, select.POLLIN)
            while True:
                ready = [descriptor for descriptor, _ in poll.poll()]
                told = _told(hears)
                said_hello |= _SAID_HELLO in told
                if process in ready:
                    return said_hello
                if _LOADS_QUIETLY in told and self._job is None:
                    self._job = _loaded(self._settings.job)
                    gc.freeze()
        finally:
            os.close(process)


def _in_words(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit status {os.waitstatus_to_exitcode(status)}"


def _tell(descriptor: int, what: bytes) -> None:
    os.write(descriptor, what)


def _told(descriptor: int) -> bytes:
    with suppress(BlockingIOError):
        return os.read(descriptor, 64)
    return b""


def _loaded(pickled: bytes) -> WorkerJob | None:
    try:
        job: WorkerJob = load_job(pickled)
    except Exception:  # the worker that needs it will say what is wrong
        return None
    return job


# ---- in the worker's process ----


def _be_worker(
    settings: Settings,
    rank: int,
    executor: str,
    job: WorkerJob | None,
    supervised: Supervised,
    tells: int,
) -> NoReturn:
    status = _AGAIN
    try:
        _die_with(supervised.by)
        _own_signals()
        _own_descriptors(keep=tells)
        if job is None:
            before = _threads_and_descriptors()
            job = _loaded(settings.job)
            if job is not None and _threads_and_descriptors() == before:
                _tell(tells, _LOADS_QUIETLY)
        worker = Worker(settings, rank, executor, job, supervised=supervised)
        worker.run()
        status = _AGAIN if worker.again else 0
    except BaseException:
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)  # not by the way of Spark's worker, which all this was called from


def _die_with(supervisor: int) -> None:
    """Be killed when the supervisor ends; it may have ended already."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the worker cannot be tied to its supervisor")
    if os.getppid() != supervisor:
        os._exit(0)


def _own_signals() -> None:
    """What handlers of the task's process would do is none of the worker's business."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    faulthandler.cancel_dump_traceback_later()
    with suppress(Exception):  # stderr may be no file
        faulthandler.enable()


def _own_descriptors(keep: int) -> None:
    """Let go of all that was inherited, but for stdin, stdout, stderr.

    Above all of the sockets to Spark: it would not see the end of a task that is killed. Their
    numbers stay taken, by what is nothing, so that an object of the task's process that closes one
    of them at some time closes nothing of ours.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor > 2 and descriptor not in (keep, nothing):
            with suppress(OSError):  # the listing's own
                os.fstat(descriptor)
                os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _threads_and_descriptors() -> tuple[int, set[str]]:
    threads, descriptors = (list(Path("/proc/self", kind).iterdir()) for kind in ("task", "fd"))
    return len(threads), {path.name for path in descriptors}
