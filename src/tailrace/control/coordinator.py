"""The part in the driver: gathers the workers, watches them, and ends the job.

What it decides is in `Roster`, without I/O: messages and losses in, messages out. `Coordinator` is
the thread with the sockets.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tailrace.control.protocol import (
    KIND,
    SILENCE_S,
    Failed,
    Go,
    Hello,
    Message,
    Peers,
    Progress,
    Ready,
    Stop,
    pack,
    unpack,
)
from tailrace.control.seating import SeatingError, home, seat
from tailrace.transport.listener import TcpListener
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

STARTING, RUNNING, DRAINING, STOPPED, FAILED = (
    "starting",
    "running",
    "draining",
    "stopped",
    "failed",
)


_SPARK_SAYS_WHY_S = 3.0
"""How long a worker that was lost at the start waits for Spark's account of it."""


@dataclass
class Roster:
    """The state of a job, as the coordinator knows it. Times are of any clock, in seconds."""

    workers: int
    wanted: tuple[int, ...] = ()
    """The node of each place of the plan; without a plan workers may be anywhere."""
    node: str = "memory"
    """What counts as one node, see `Topology.start`."""
    seats: tuple[int, ...] = ()
    """The rank of each place, when all workers have met."""
    phase: str = STARTING
    reason: str = ""
    traceback: str = ""
    hellos: dict[int, Hello] = field(default_factory=dict)
    ways: dict[int, dict[int, str]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    earlier: dict[int, Progress] = field(default_factory=dict)
    """The reports before those."""
    suspicion: tuple[float, str] | None = None
    """What the job will have failed of by some time, if nobody knows better until then."""

    @property
    def over(self) -> bool:
        """Whether the job has ended, well or not."""
        return self.phase in (STOPPED, FAILED)

    def hear(self, message: Message) -> list[Message]:
        """A worker said something. Returns what to tell all of them."""
        match message:
            case Hello():
                self.hellos[message.rank] = message
                if len(self.hellos) == self.workers:
                    return self._meet(tuple(self.hellos[rank] for rank in range(self.workers)))
            case Ready():
                self.ways[message.rank] = message.ways
                if len(self.ways) == self.workers and self.phase == STARTING:
                    self.phase = RUNNING
                    return [Go()]
            case Progress():
                if message.rank in self.progress:
                    self.earlier[message.rank] = self.progress[message.rank]
                self.progress[message.rank] = message
                ended = sum(progress.ended for progress in self.progress.values())
                if ended == self.workers and not self.over:
                    self.phase = STOPPED
                    return [Stop(drain=False)]
            case Failed():
                return self.fail(message.reason, message.traceback)
        return []

    def _meet(self, hellos: tuple[Hello, ...]) -> list[Message]:
        try:
            if self.wanted:
                self.seats = seat(self.wanted, [home(hello, self.node) for hello in hellos])
            else:
                self.seats = tuple(range(self.workers))
        except SeatingError as error:
            return self.fail(str(error))
        return [Peers(hellos, self.seats)]

    def seated(self, placement: tuple[int, ...]) -> tuple[int, ...]:
        """The rank for each instance, by its place; until all have met, the places themselves."""
        return tuple(self.seats[place] for place in placement) if self.seats else placement

    def lost(self, rank: int, now_s: float, silent: bool = False) -> list[Message]:
        """A worker's connection is gone; `silent`: because its host does not answer any more.

        While the job starts that is seldom the first cause: Spark ends all tasks when one fails,
        and tells why a moment later. A silent host it would notice much later.
        """
        hello = self.hellos.get(rank)
        where = f" (pid {hello.pid} on {hello.host})" if hello else ""
        if silent:
            return self.fail(
                f"worker {rank}{where} is silent: its host or the network to it is down"
            )
        reason = f"worker {rank}{where} is gone: killed, or its host is"
        if self.phase != STARTING:
            return self.fail(reason)
        if self.suspicion is None:
            self.suspicion = now_s + _SPARK_SAYS_WHY_S, reason
        return []

    def tick(self, now_s: float) -> list[Message]:
        """Time passes; to be called several times a second."""
        if self.suspicion is not None and now_s >= self.suspicion[0]:
            return self.fail(self.suspicion[1])
        return []

    def fail(self, reason: str, traceback: str = "") -> list[Message]:
        """The job cannot go on. The first reason counts."""
        if self.over:
            return []
        if self.suspicion is not None and self.suspicion[1] != reason:
            reason = f"{reason}; before that, {self.suspicion[1]}"
        self.phase, self.reason, self.traceback = FAILED, reason, traceback
        return [Stop(drain=False, error=f"{reason}\n\n{traceback}".strip())]

    def stop(self, drain: bool) -> list[Message]:
        """The user wants it to end."""
        if self.over:
            return []
        drain = drain and self.phase != STARTING  # before the start there is nothing to drain
        self.phase = DRAINING if drain else STOPPED
        return [Stop(drain)]


class Coordinator:
    """The thread that runs a roster. Its methods may be called from any thread."""

    def __init__(
        self,
        workers: int,
        host: str,
        on_over: Callable[[], None],
        wanted: tuple[int, ...] = (),
        node: str = "memory",
    ) -> None:
        self.secret = secrets.token_bytes(32)
        self.roster = Roster(workers, wanted, node)
        self._on_over = on_over
        self.started = threading.Event()
        """Set when the workers run, or when it is clear that they never will."""
        self._refusals = Refusals()
        config = TcpConfig(
            worker_id=workers,
            secret=self.secret,
            max_connections=workers + 64,
            max_unauthenticated=workers + 64,
        )
        self._listener = TcpListener(config, (host, 0), self._refusals)
        self.address = self._listener.address
        self._connections: dict[int, TcpConnection] = {}
        self._asked: list[list[Message]] = []
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._closed = False
        self._over_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="tailrace-coordinator", daemon=True)
        self._thread.start()

    def stop(self, drain: bool) -> None:
        """Ask the workers to end."""
        self._ask(lambda: self.roster.stop(drain))

    def fail(self, reason: str, traceback: str = "") -> None:
        """Something outside of the workers went wrong."""
        self._ask(lambda: self.roster.fail(reason, traceback))

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the workers have been told that it is over, and have gone."""
        self._thread.join(timeout_s)

    def _ask(self, decide: Callable[[], list[Message]]) -> None:
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
                for fd, events in epoll.poll(0.2):
                    if fd == self._listener.fileno():
                        for connection in self._listener.on_ready():
                            connection.notice_silence(SILENCE_S)
                            self._connections[connection.fileno()] = connection
                            epoll.register(connection.fileno(), connection.events)
                    elif fd == self._wake_r:
                        os.read(self._wake_r, 4096)
                    elif fd in self._connections:
                        self._serve(fd, events)
                self._listener.check_deadlines()
                self._decide(partial(self.roster.tick, time.monotonic()))
                with self._lock:
                    asked, self._asked = self._asked, []
                for messages in asked:
                    self._tell_all(messages)
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

    def _done(self) -> bool:
        """Over, and the workers gone, or long enough asked to go."""
        if not self.roster.over:
            return False
        if self._over_since is None:
            self._over_since = time.monotonic()
        return not self._connections or time.monotonic() - self._over_since > 5.0

    def _serve(self, fd: int, events: int) -> None:
        connection = self._connections[fd]
        for frame in connection.on_ready(events):
            self._decide(partial(self.roster.hear, unpack(frame.payload)))
        if connection.closed:
            self._lose(fd, connection)  # at once: the next to come may get its descriptor

    def _lose(self, fd: int, connection: TcpConnection) -> None:
        del self._connections[fd]
        rank = connection.peer_id
        if rank is not None:
            silent = os.strerror(errno.ETIMEDOUT) in (connection.close_reason or "")
            self._decide(partial(self.roster.lost, rank, time.monotonic(), silent))

    def _decide(self, decide: Callable[[], list[Message]]) -> None:
        with self._lock:
            messages = decide()
        self._tell_all(messages)
        if self.roster.phase != STARTING:
            self.started.set()

    def _tell_all(self, messages: list[Message]) -> None:
        for message in messages:
            payload = pack(message)
            for connection in self._connections.values():
                if not connection.closed:
                    connection.send(0, KIND, [payload])
                    connection.flush()
