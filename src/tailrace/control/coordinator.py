"""The part in the driver: gathers the workers, watches them, and ends the job.

What it decides is in `control/roster.py`, without I/O; here is the thread with the sockets.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tailrace.checkpoint.committing import Committer, Written
from tailrace.checkpoint.epochs import Epochs
from tailrace.checkpoint.manifest import Manifest
from tailrace.control.budget import STANDARD, Budget
from tailrace.control.changing import Changing, Wanted
from tailrace.control.clocks import AskClock, Reference
from tailrace.control.joining import ScaleError
from tailrace.control.orders import ALL, Decision, Line, Order
from tailrace.control.protocol import (
    COORDINATOR_ID,
    KIND,
    SILENCE_S,
    Go,
    Message,
    SetReplay,
    Welcome,
    pack,
    unpack,
)
from tailrace.control.roster import STARTING, Roster
from tailrace.runtime.deployment import Layout
from tailrace.tail.modes import Tail
from tailrace.transport.identity import Identity, new_secret
from tailrace.transport.listener import Ports, TcpListener
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

_LOG = logging.getLogger(__name__)
_NOTE_S = 0.5
_LOOK_S = 0.2
_STRANGERS = 64
"""So many more than there are workers may be connected."""


@dataclass(frozen=True)
class LastCheckpoint:
    """An epoch that counts."""

    epoch: int
    at_s: float
    """When it was committed, by the wall clock."""
    took_ms: float
    """From its beginning on."""
    new_bytes: int
    """Written for it."""


class Coordinator:
    """The thread that runs a roster. Its methods may be called from any thread."""

    def __init__(
        self,
        workers: int,
        host: str,
        on_over: Callable[[], None],
        wanted: tuple[int, ...] = (),
        node: str = "memory",
        *,
        replaced: bool = False,
        on_reports: Callable[[], None] | None = None,
        tls: bool = False,
        ports: Ports | None = None,
        recover: bool = False,
        budget: Budget = STANDARD,
        layout: Layout | None = None,
    ) -> None:
        """Listen at `host`, at one of the `ports`. With `tls` records are encrypted, too.

        With `recover` the job goes on without workers that are lost, within the `budget`.
        With a `layout`, by places, the deployment may change while the job runs.
        `on_over` is called when all is over, `on_reports` when workers have reported: about twice
        a second, and more rarely if it takes long.
        """
        identity = Identity.make()
        self.secret = new_secret(identity)
        """For workers to get in, and for those who feed sources."""
        self.tls = tls
        self._welcome = Welcome(new_secret(identity), identity if tls else None)
        self.roster = Roster(workers, wanted, node, replaced, recover=recover, budget=budget)
        if layout is not None:
            self.roster.changing = Changing(layout)
        self._told_events = 0
        self._committer: Committer | None = None
        self.last_checkpoint: LastCheckpoint | None = None
        """The newest epoch that counts, if one was made."""
        self.resumed_epoch = 0
        """The epoch that the job goes on from; 0: the beginning."""
        self._on_over = on_over
        self._on_reports = on_reports
        self._noted_reports = 0
        self._next_note_s = 0.0
        self._replay: SetReplay | None = None
        self.clock = Reference()
        """The job's clock."""
        self.started = threading.Event()
        """Set when the workers run, or when it is clear that they never will."""
        self._refusals = Refusals()
        config = TcpConfig(
            worker_id=COORDINATOR_ID,
            secret=self.secret,
            max_connections=(2 if recover else 1) * workers + _STRANGERS,
            max_unauthenticated=workers + _STRANGERS,
        )
        self._listener = TcpListener(
            config, (host, 0), self._refusals, identity=identity, ports=ports
        )
        self.address = self._listener.address
        self._connections: dict[int, TcpConnection] = {}
        self._numbers: dict[int, int] = {}  # of each, by descriptor; never given out again
        self._next_number = 0
        self._asked: list[list[Order]] = []
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._closed = False
        self._over_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="tailrace-coordinator", daemon=True)
        self._thread.start()

    def stop(self, drain: bool) -> None:
        """Ask the workers to end."""
        self._ask(lambda: self.roster.stop(drain))

    def checkpoint(
        self, committer: Committer, epochs: Epochs, going_on: Manifest, kept_in: str
    ) -> None:
        """Make checkpoints; to be called before there are workers."""
        self._committer = committer
        self.roster.epochs = epochs
        self.go_on(going_on, kept_in)

    def go_on(self, going_on: Manifest, kept_in: str) -> None:
        """Go on from an epoch in a folder; to be called before there are workers."""
        self.roster.epoch = self.resumed_epoch = going_on.epoch
        if going_on.epoch:
            self.roster.manifest, self.roster.kept_in = going_on.file, kept_in

    def set_tail(self, modes: Mapping[int, Tail]) -> None:
        """Have the records of these streams dealt in other ways."""
        self._ask(lambda: self.roster.set_tail(modes))

    def set_replay(self, replay: str) -> None:
        """Have all workers send again what that says, by name."""
        self._replay = SetReplay(replay)
        self._ask(lambda: [(ALL, SetReplay(replay))])

    def ask_epoch(self) -> Callable[[], bool]:
        """Begin an epoch as soon as possible; what says whether one counts that did so since.

        Or the last of all, with which every record is.
        """
        epochs = self.roster.epochs
        assert epochs is not None
        begun = [epochs.begun]

        def decide() -> list[Order]:
            begun[:] = [epochs.begun]
            return self.roster.ask_epoch()

        self._ask(decide)
        return lambda: epochs.counted > begun[0] or epochs.over

    def fail(self, reason: str, traceback: str = "") -> None:
        """Something outside of the workers went wrong."""
        self._ask(lambda: self.roster.fail(reason, traceback))

    def relaunch(
        self, reason: str, traceback: str = "", launch: int | None = None, lost: bool = False
    ) -> int | None:
        """Spark has ended the workers: the number of the launch to follow; None: it is over.

        If a further stage of that `launch` ended first, it is known which one follows.
        """
        following: list[int] = []

        def decide() -> list[Order]:
            self.roster.now_s = time.monotonic()
            orders = self.roster.relaunch(reason, traceback, launch, lost)
            if not self.roster.over:
                following.append(self.roster.launch)
            return orders

        self._ask(decide)
        return following[0] if following else None

    def change(self, wanted: Wanted) -> int:
        """Have another deployment, by places; the number of the change. Raises if not now.

        `wanted` makes it out of the one in force, also later and in another thread: when a job that
        recovers has gone back to one.
        """
        return self._change(lambda: self.roster.change(wanted))

    def grow(self, more: int, within_s: float) -> int:
        """Expect so many more workers: the number of the stage that they are to be of.

        What becomes of that is known some time: see `outcome`. Raises if it cannot be now.
        """
        number = self._change(lambda: self.roster.joining.grow(more, within_s))
        workers = self.roster.workers + more
        connections = (2 if self.roster.recover else 1) * workers + _STRANGERS
        self._listener.expect(connections, workers + _STRANGERS)
        return number

    def shrink(self, fewer: int, within_s: float) -> int:
        """Let the last workers go, in which nothing must run; a number to ask `outcome` for.

        Raises if it cannot be now.
        """
        return self._change(lambda: self.roster.joining.shrink(fewer, within_s))

    def outcome(self, number: int) -> str | None:
        """What became of that change: empty, it is done; else why it is not; None: not known."""
        with self._lock:
            told = self.roster.joining.outcome(number)
        return "the job has ended" if told is None and self.roster.over else told

    def give_up(self, number: int, reason: str) -> None:
        """Whoever was to join will not, if it has not by now."""

        def decide() -> list[Order]:
            growth = self.roster.joining.growth
            mine = growth is not None and growth.number == number
            return self.roster.joining.give_up(reason) if mine else []

        self._ask(decide)

    def stage_ended(self, stage: int, launch: int, reason: str, traceback: str = "") -> None:
        """Spark has ended the tasks of a further stage."""

        def decide() -> list[Order]:
            self.roster.now_s = time.monotonic()
            return self.roster.joining.stage_ended(stage, launch, reason, traceback)

        self._ask(decide)

    def _change(self, change: Callable[[], int]) -> int:
        numbers: list[int] = []

        def decide() -> list[Order]:
            self.roster.now_s = time.monotonic()
            numbers.append(change())
            return [*self.roster.joining.look(), *self.roster.look_at_change()]

        self._ask(decide)
        if not numbers:
            raise ScaleError("the job has ended")
        return numbers[0]

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the workers have been told that it is over, and have gone; False: not yet."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _ask(self, decide: Decision) -> None:
        with self._lock:
            if self._closed:
                return  # and the descriptor may be somebody else's by now
            self._asked.append(decide())
            with contextlib.suppress(BlockingIOError):  # full: it looks anyway
                os.write(self._wake_w, b"!")

    def _run(self) -> None:
        epoll = select.epoll()
        epoll.register(self._listener.fileno(), select.EPOLLIN)
        epoll.register(self._wake_r, select.EPOLLIN)
        try:
            while not self._done():
                for fd, events in epoll.poll(self._patience_s()):
                    if fd == self._listener.fileno():
                        for connection in self._listener.on_ready():
                            connection.notice_silence(SILENCE_S)
                            self._connections[connection.fileno()] = connection
                            self._numbers[connection.fileno()] = self._next_number
                            self._next_number += 1
                            epoll.register(connection.fileno(), connection.events)
                    elif fd == self._wake_r:
                        os.read(self._wake_r, 4096)
                    elif fd in self._connections:
                        self._serve(fd, events)
                self._note(time.monotonic())
                self._listener.tend(epoll)
                self.roster.refusals = self._refusals.counts()
                self._decide(partial(self.roster.tick, time.monotonic()))
                with self._lock:
                    asked, self._asked = self._asked, []
                for orders in asked:
                    self._carry_out(orders)
                if self.roster.over:
                    self.started.set()
                for fd, connection in list(self._connections.items()):
                    if connection.closed:
                        self._lose(fd, connection)
                    else:
                        epoll.modify(fd, connection.events)
        except BaseException as error:
            self.roster.fail(f"the coordinator failed: {error!r}")
            raise
        finally:
            for connection in self._connections.values():
                connection.close()
            self._listener.close()
            epoll.close()
            with self._lock:
                self._closed = True
                os.close(self._wake_r)
                os.close(self._wake_w)
            self.started.set()
            self._on_over()

    def _patience_s(self) -> float:
        """How long nothing has to be done by itself."""
        due_s = self.roster.due_s
        return _LOOK_S if due_s is None else min(max(due_s - time.monotonic(), 0.0), _LOOK_S)

    def _note(self, now_s: float) -> None:
        """Have what was reported noted, at a twentieth of the time at most."""
        if self._on_reports is None or self.roster.reports == self._noted_reports:
            return
        if now_s >= self._next_note_s or self.roster.over:
            self._noted_reports = self.roster.reports
            self._on_reports()
            self._next_note_s = now_s + max(_NOTE_S, 20 * (time.monotonic() - now_s))

    def _done(self) -> bool:
        """Over, and the workers gone, or long enough asked to go."""
        if not self.roster.over:
            return False
        if self._over_since is None:
            self._over_since = time.monotonic()
        return not self._connections or time.monotonic() - self._over_since > 5.0

    def _serve(self, fd: int, events: int) -> None:
        connection = self._connections[fd]
        known = connection.authenticated
        frames = connection.on_ready(events)
        if connection.authenticated and not known and not connection.closed:
            connection.send(0, KIND, [pack(self._welcome)])
            connection.flush()
        now_ns = self.clock.clock_ns()
        for frame in frames:
            message = unpack(frame.payload)
            if isinstance(message, AskClock):
                if not connection.closed:  # it may have asked and gone
                    connection.send(0, KIND, [pack(self.clock.answer(message, now_ns))])
                    connection.flush()
            else:
                self._decide(partial(self.roster.hear, message, self._numbers[fd]))
        if connection.closed:
            self._lose(fd, connection)  # at once: the next to come may get its descriptor

    def _lose(self, fd: int, connection: TcpConnection) -> None:
        del self._connections[fd]
        number = self._numbers.pop(fd)
        rank = connection.peer_id
        if rank is not None:
            silent = os.strerror(errno.ETIMEDOUT) in (connection.close_reason or "")
            self._decide(partial(self.roster.lost, rank, time.monotonic(), silent, number))

    def _decide(self, decide: Decision) -> None:
        with self._lock:
            self.roster.now_s = time.monotonic()
            orders = decide()
        if self._replay is not None and any(isinstance(message, Go) for _, message in orders):
            orders.append((ALL, self._replay))  # who is new has what the job was started with
        if orders:
            self._carry_out(orders)
        if self.roster.writes:
            self._write_manifests()
        if self.roster.phase != STARTING:
            self.started.set()
        if self.roster.recover:
            self._tell_events()

    def _write_manifests(self) -> None:
        assert self._committer is not None
        with self._lock:
            writes, self.roster.writes = self.roster.writes, []
        for write in writes:
            changing = self.roster.changing
            layout = changing.layout_of(write.epoch) if changing else None
            self._committer.write(write, self.roster.attempt, self._on_written, self.fail, layout)

    def _on_written(self, written: Written) -> None:
        """In the committer's thread."""
        manifest = written.manifest
        begun_s = self.roster.epochs.begun_s if self.roster.epochs is not None else 0.0
        took_ms = (time.monotonic() - begun_s) * 1e3
        self.last_checkpoint = LastCheckpoint(
            manifest.epoch, manifest.created_s, took_ms, written.new_bytes
        )
        kept_in = self._committer.url if self._committer is not None else ""
        self._ask(lambda: self.roster.written(manifest.epoch, manifest.file, kept_in))

    def _tell_events(self) -> None:
        """Log what went wrong, as soon as it is known."""
        restarts = self.roster.recovery.restarts
        new = restarts.noted - self._told_events
        for event in restarts.events[-new:] if new else ():
            _LOG.warning("%s", event)
        self._told_events = restarts.noted

    def _carry_out(self, orders: list[Order]) -> None:
        last: Message | None = None
        payload = b""
        by_number = {self._numbers[fd]: one for fd, one in self._connections.items()}
        for rank, message in orders:
            if message is not last:
                last, payload = message, pack(message)
            for number in by_number if rank is ALL else (self._number(rank),):
                connection = by_number.get(number)
                if connection is not None and not connection.closed:
                    connection.send(0, KIND, [payload])
                    connection.flush()

    def _number(self, to: int | Line) -> int:
        return to.number if isinstance(to, Line) else self.roster.speakers.get(to, -1)
