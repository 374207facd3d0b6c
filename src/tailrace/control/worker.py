"""A worker: the core, and around it the ring, the sockets and the coordinator. One thread."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import socket
import time
import traceback
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tailrace.control.binding import Binding, settle
from tailrace.control.feed import KIND_FEED
from tailrace.control.peers import KIND_CREDIT, JumboCodec, OversizedError, Peer, credits_in
from tailrace.control.protocol import (
    KIND,
    SILENCE_S,
    Failed,
    Go,
    Hello,
    Message,
    Peers,
    Ready,
    Settings,
    Stop,
    pack,
    unpack,
)
from tailrace.control.report import progress_of
from tailrace.graph.model import Graph
from tailrace.graph.wiring import wire
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.garbage import collected_rarely
from tailrace.runtime.instance import Instance
from tailrace.runtime.source import FedReader
from tailrace.runtime.step import OperatorFailed
from tailrace.transport.frame import Frame
from tailrace.transport.listener import TcpListener
from tailrace.transport.ring import Doorbell, Ring, RingError
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

if TYPE_CHECKING:
    from tailrace.runtime.outlet import Item

_DRAIN_MESSAGES = 256
_LOOK_AROUND_NS = 5_000_000
"""A busy worker looks at its sockets this often."""
_HANDSHAKE_MS = 600_000
_MOST_PUSHERS = 1024
"""Spark tasks that feed sources here at the same time."""
_LONGEST_SLEEP_S = 0.5
_WAKING_UP_S = 150e-6
"""About what falling asleep and waking up take: a worker with a free core is up that early."""


WorkerJob = tuple[Graph, tuple[int, ...], Limits]
"""The graph, the placement of its instances, and the limits."""


class CoordinatorLostError(ConnectionError):
    """The driver is gone; so the worker goes, too."""


class Worker:
    """See above. `run` returns when the job has ended; `error` says whether it failed.

    The job is the one of the settings, or one that was made in this process.
    """

    error = ""
    """What went wrong, here or elsewhere, with its traceback; empty: nothing."""

    def __init__(
        self, settings: Settings, rank: int, executor: str, job: WorkerJob | None = None
    ) -> None:
        _sharpen_timers()
        self._settings = settings
        self._job = job
        self._rank = rank
        self._executor = executor
        self._clock_ns = time.monotonic_ns
        self._doorbell = Doorbell()
        self._ring = Ring.create(settings.ring_bytes)
        self._reader = self._ring.reader(self._doorbell)
        self._refusals = Refusals()
        # Opening an operator may take its time, and nobody answers a handshake meanwhile.
        self._config = TcpConfig(
            worker_id=rank,
            secret=settings.secret,
            handshake_ms=_HANDSHAKE_MS,
            max_connections=settings.workers + _MOST_PUSHERS,
            max_unauthenticated=settings.workers + 64,
        )
        self._codec = JumboCodec(self._clock_ns)
        self._epoll = select.epoll()
        self._epoll.register(self._doorbell.fileno(), select.EPOLLIN)
        self._control = TcpConnection.connect(
            self._config, settings.coordinator, settings.workers, self._refusals
        )
        self._control.notice_silence(SILENCE_S)
        self._sockets: dict[int, TcpConnection] = {}
        self._source_fds: dict[int, tuple[Instance, bool]] = {}  # and whether each is watched
        self._events: dict[int, int] = {}  # what the epoll watches each connection for
        self._watch(self._control)
        self._listener: TcpListener | None = None
        self._peers: dict[int, Peer] = {}
        self._core: Core | None = None
        self._binding: Binding | None = None
        self._running = False
        self._stopped = False
        self._reported_end = False
        self._failed = False
        self._next_progress_ns = 0
        self._started_ns = 0
        self._cpu_before_s = time.process_time()  # Spark may have used this process before
        self._looked_ns = 0

    # ---- life ----

    def run(self) -> None:
        """Join the job, work until it ends, leave nothing behind."""
        for _ in self.turns():
            pass

    def turns(self) -> Generator[None, None, None]:
        """The same for an owner who has something to do after each turn.

        To leave before the end fails the job.
        """
        try:
            with collected_rarely():
                self._join()
                while not self._stopped:
                    self._turn()
                    yield
        except CoordinatorLostError as error:
            self.error = f"worker {self._rank} has lost the coordinator: {error}"
        except BaseException as error:
            self._fail(error)
        finally:
            self._close()

    def _join(self) -> None:
        host = self._own_host()
        self._listener = TcpListener(self._config, (host, 0), self._refusals)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._tell(
            Hello(
                self._rank,
                os.getpid(),
                host,
                self._executor,
                self._ring.address,
                self._listener.address,
            )
        )
        while not self._running and not self._stopped:
            self._look(_LONGEST_SLEEP_S)

    def _own_host(self) -> str:
        """The address by which we reach the coordinator, and others reach us."""
        while self._control.fileno() >= 0 and not self._control.authenticated:
            self._look(_LONGEST_SLEEP_S)
        if self._control.closed:
            raise CoordinatorLostError(self._control.close_reason)
        with socket.socket(fileno=os.dup(self._control.fileno())) as copy:
            host: str = copy.getsockname()[0]
            return host

    def _meet(self, hellos: tuple[Hello, ...], seats: tuple[int, ...]) -> None:
        """Open a way to every other worker, build the core, and take our seat."""
        mine = hellos[self._rank]
        node = self._settings.node
        ways: dict[int, str] = {}
        for hello in hellos:
            if hello.rank == self._rank:
                continue
            apart = node == "worker" or (node == "executor" and hello.executor != mine.executor)
            peer = None if apart else self._by_ring(hello)
            ways[hello.rank] = "ring" if peer else "tcp"
            self._peers[hello.rank] = peer or self._by_tcp(hello)
        graph, placement, limits = self._job or pickle.loads(self._settings.job)
        self._core = Core(
            self._rank,
            wire(graph),
            tuple(seats[place] for place in placement),
            self._clock_ns,
            self._send,
            self._credit,
            self._doorbell.ring,
            limits,
            self._size,
        )
        for instance in self._core.instances:
            source = instance.source
            if source is not None and (fd := source.reader.fileno()) is not None:
                self._source_fds[fd] = (instance, False)
        # Threads that operators have started by now stay free.
        cores = self._settings.cores
        core = cores[seats.index(self._rank)] if cores else None
        if core is not None:
            self._binding = Binding(core)
            settle(self._ring, core)
        gc.freeze()  # what operators have loaded stays, too
        self._tell(Ready(self._rank, ways))

    def _by_ring(self, hello: Hello) -> Peer | None:
        try:
            writer = Ring.attach(hello.ring).writer(self._doorbell)
        except RingError:
            return None  # its memory is elsewhere, or it could not be woken from here
        return Peer.by_ring(writer, self._codec)

    def _by_tcp(self, hello: Hello) -> Peer:
        connection = TcpConnection.connect(self._config, hello.address, hello.rank, self._refusals)
        self._watch(connection)
        return Peer.by_tcp(connection, self._codec)

    # ---- one turn ----

    def _turn(self) -> None:
        core = self._core
        assert core is not None
        busy = self._receive(core)
        busy |= core.round()
        for peer in self._peers.values():
            peer.flush()
            self._await_room(peer.connection)
        now_ns = self._clock_ns()
        if now_ns >= self._next_progress_ns:
            self._report(core, now_ns)
        if core.ended and not self._reported_end and not self._pending():
            core.close()  # before we say that all went well
            self._reported_end = True
            self._report(core, now_ns)
        if now_ns - self._looked_ns > _LOOK_AROUND_NS:
            self._look(0)
        if not busy:
            self._rest(core)

    def _receive(self, core: Core) -> bool:
        messages = self._reader.drain(_DRAIN_MESSAGES)
        for link, kind, payload in messages:
            self._accept(core, link, kind, payload)
        return bool(messages)

    def _accept(self, core: Core, link: int, kind: int, payload: bytes | memoryview) -> None:
        if kind == KIND_CREDIT:
            for credited, taken in credits_in(payload):
                core.credit(credited, taken)
        else:
            sent_ns, items = self._codec.decode(payload)
            core.deliver(link, items, sent_ns, len(payload))

    def _rest(self, core: Core) -> None:
        """Nothing to do: sleep until a message comes, something is due, or a while has passed."""
        due_ns = core.next_due_ns()
        sleep_s = _LONGEST_SLEEP_S
        if due_ns is not None:
            sleep_s = min(sleep_s, (due_ns - self._clock_ns()) / 1e9)
        if sleep_s <= 0 or self._reader.spin(sleep_s):
            return
        if due_ns is not None and not self._reader.crowded():
            sleep_s -= _WAKING_UP_S
            if sleep_s <= 0:
                return
        if (expected_s := self._reader.expected_s()) is not None:
            sleep_s = min(sleep_s, expected_s)
        for fd, (instance, watched) in self._source_fds.items():
            wanted = not instance.congested and not instance.ended
            if wanted != watched:
                with suppress(OSError):  # a reader may have closed it at its end
                    if wanted:
                        self._epoll.register(fd, select.EPOLLIN)
                    else:
                        self._epoll.unregister(fd)
                self._source_fds[fd] = (instance, wanted)
        patience_ms = self._reader.arm()
        if patience_ms:
            if patience_ms > 0:
                sleep_s = min(sleep_s, patience_ms / 1000)
            self._sleep(sleep_s)
        self._reader.disarm()
        if patience_ms:
            self._look(0)

    def _sleep(self, most_s: float) -> None:
        # An epoll waits in whole milliseconds, a select in microseconds.
        select.select([self._epoll], [], [], most_s)

    def _look(self, timeout_s: float) -> None:
        """Do what the sockets ask for; wait for them, or for the doorbell, at most so long."""
        self._looked_ns = self._clock_ns()
        if timeout_s > 0:
            self._sleep(timeout_s)
        for fd, events in self._epoll.poll(0):
            if fd == self._doorbell.fileno():
                self._doorbell.clear()
            elif self._listener is not None and fd == self._listener.fileno():
                for connection in self._listener.on_ready():
                    self._watch(connection)
            elif fd in self._sockets:
                self._serve(fd, events)
        if self._control.closed and not self._stopped:
            raise CoordinatorLostError(self._control.close_reason)

    def _serve(self, fd: int, events: int) -> None:
        connection = self._sockets[fd]
        frames = connection.on_ready(events)
        for frame in frames:
            if connection is self._control:
                self._obey(unpack(frame.payload))
            elif frame.kind == KIND_FEED:
                self._feed(connection, frame)
            elif self._core is not None:
                self._accept(self._core, frame.target, frame.kind, frame.payload)
        if connection.closed:
            del self._sockets[fd]
            del self._events[fd]
        else:
            self._await_room(connection)

    def _feed(self, connection: TcpConnection, frame: Frame) -> None:
        """Something from outside the topology, for a source of ours."""
        for instance in self._core.instances if self._core is not None else ():
            reader = instance.source and instance.source.reader
            if instance.id == frame.target and isinstance(reader, FedReader):
                reader.receive(frame.payload, partial(self._reply, connection))

    def _obey(self, message: Message) -> None:
        match message:
            case Peers(hellos, seats):
                self._meet(hellos, seats)
            case Go():
                self._running = True
                self._started_ns = self._clock_ns()
            case Stop(drain=True) if self._core is not None:
                self._core.stop_sources()
            case Stop():
                self._stopped = True
                self.error = message.error or self.error  # what went wrong first, anywhere

    # ---- speaking ----

    def _watch(self, connection: TcpConnection) -> None:
        if not connection.closed:
            self._sockets[connection.fileno()] = connection
            self._events[connection.fileno()] = connection.events
            self._epoll.register(connection.fileno(), connection.events)

    def _await_room(self, connection: TcpConnection | None) -> None:
        """Have the epoll watch for what a connection waits for now."""
        if connection is not None and not connection.closed:
            fd, events = connection.fileno(), connection.events
            if self._events[fd] != events:
                self._epoll.modify(fd, events)
                self._events[fd] = events

    def _tell(self, message: Message) -> None:
        if not self._control.closed:
            self._control.send(0, KIND, [pack(message)])
            self._control.flush()
            self._await_room(self._control)

    def _reply(self, connection: TcpConnection, payload: bytes) -> None:
        if not connection.closed:
            connection.send(0, KIND_FEED, [payload])
            connection.flush()
            self._await_room(connection)

    def _send(self, peer: int, link: int, items: list[Item]) -> int:
        return self._peers[peer].send(link, items)

    def _credit(self, peer: int, link: int, taken: int) -> None:
        self._peers[peer].credit(link, taken)

    def _size(self, items: list[Item]) -> int:
        try:
            return sum(memoryview(part).nbytes for part in self._codec.encode(items))
        except Exception:
            return 0  # what stays in a worker need not be picklable

    def _pending(self) -> bool:
        return any(peer.pending for peer in self._peers.values())

    def _report(self, core: Core, now_ns: int) -> None:
        self._next_progress_ns = now_ns + int(self._settings.progress_s * 1e9)
        if self._control.unanswered_bytes and not self._reported_end:
            return  # a coordinator that is held up gets the next one; it must not seem silent
        cpu_s = time.process_time() - self._cpu_before_s
        running_s = (now_ns - self._started_ns) / 1e9
        self._tell(progress_of(core, now_ns, self._reported_end, cpu_s, running_s))

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        cause = error.error if isinstance(error, OperatorFailed) else error
        text = "".join(traceback.format_exception(cause))
        reason = str(error) if isinstance(error, OperatorFailed) else repr(error)
        if isinstance(error, OversizedError) and self._core is not None:
            label = self._core.wiring.links[error.link].stream.label
            reason = f"a record of the stream {label} is too large: {error}"
        self.error = f"{reason}\n\n{text}"
        self._tell(Failed(self._rank, reason, text))
        deadline_ns = self._clock_ns() + 1_000_000_000
        with suppress(CoordinatorLostError):
            # What failed here may only follow from what failed elsewhere; the answer tells.
            while not self._stopped and self._clock_ns() < deadline_ns:
                self._look(0.01)

    def _close(self) -> None:
        try:
            if self._core is not None:
                self._core.close()
        except BaseException as error:
            if not self._failed:
                self._fail(error)
        finally:
            if self._binding is not None:
                self._binding.release()
            for peer in self._peers.values():
                peer.close()
            for connection in self._sockets.values():
                if connection is not self._control:
                    connection.close()
            if self._listener is not None:
                self._listener.close()
            self._reader.close()
            self._ring.close()
            self._doorbell.close()
            self._epoll.close()
            self._control.close()  # the last: it tells the coordinator that nothing is left here


def _sharpen_timers() -> None:
    """Let short sleeps end when they are over, not up to 50 us later."""
    timer_slack = 29
    ctypes.CDLL(None).prctl(timer_slack, 1)
