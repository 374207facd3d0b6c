"""A worker: the core, and around it the ring, the sockets and the coordinator. One thread."""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial

from tailrace.control.aside import SharedConnection
from tailrace.control.binding import Binding, settle
from tailrace.control.clocks import ClockTold, Follower
from tailrace.control.feed import KIND_FEED
from tailrace.control.meeting import Meeting, WorkerJob
from tailrace.control.protocol import (
    SILENCE_S,
    Go,
    Hello,
    Message,
    Met,
    Open,
    Peers,
    Ready,
    Settings,
    Stop,
    Welcome,
    unpack,
)
from tailrace.control.reporting import Reporting
from tailrace.control.sockets import Sockets
from tailrace.control.waiting import Policy, Waiting, policy_of
from tailrace.runtime.core import Core
from tailrace.runtime.garbage import collected_rarely
from tailrace.transport.frame import Frame
from tailrace.transport.identity import pin_in
from tailrace.transport.listener import TcpListener
from tailrace.transport.ring import Doorbell, Ring
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

_DRAIN_MESSAGES = 256
_LOOK_AROUND_NS = 5_000_000
"""A busy worker looks at its sockets this often,"""
_LOOK_AT_OTHERS_NS = 100_000
"""and this often if others than the coordinator are connected."""
_LONGEST_SLEEP_S = 0.5
_MOST_PUSHERS = 1024
"""Spark tasks that feed sources here at the same time."""
_LAST_WORDS_NS = 1_000_000_000
_FINDING_NS = (SILENCE_S + 5) * 1_000_000_000
"""How long to wait for what the coordinator finds out about a peer that was lost."""


class CoordinatorLostError(ConnectionError):
    """The driver is gone; so the worker goes, too."""


class Worker:
    """See above. `run` returns when the job has ended; `error` says whether it failed.

    The job is the one of the settings, or one that was made in this process. How it waits when
    there is nothing to do is that of the settings, or a policy may be given; so may its clock.
    """

    error = ""
    """What went wrong, here or elsewhere, with its traceback; empty: nothing."""
    core: Core | None = None
    """What it works on, once it has met the others."""

    def __init__(
        self,
        settings: Settings,
        rank: int,
        executor: str,
        job: WorkerJob | None = None,
        policy: Policy | None = None,
        host_clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._settings = settings
        self._job = job
        self._rank = rank
        self._executor = executor
        self._clock = Follower(rank, settings.workers, host_clock_ns)
        self._clock_ns: Callable[[], int] = time.monotonic_ns  # until the job's is known
        self._doorbell = Doorbell()
        self._ring = Ring.create(settings.ring_bytes)
        self._reader = self._ring.reader(self._doorbell)
        self._refusals = refusals = Refusals()
        self._sockets = Sockets(self._doorbell, self._on_frame)
        self._control = SharedConnection.connect(
            TcpConfig(worker_id=rank, secret=settings.secret),
            settings.coordinator,
            settings.workers,
            refusals,
            pin=pin_in(settings.secret),
        )
        self._control.notice_silence(SILENCE_S)
        self._sockets.watch(self._control)
        policy = policy or policy_of(settings.waiting)
        self._waiting = Waiting(policy, self._reader, self._sockets)
        self._meeting = Meeting(settings, rank, self._doorbell, self._sockets, refusals)
        self._reporting = Reporting(
            self._control, self._sockets, settings.report_s, self._clock, refusals
        )
        self._welcome: Welcome | None = None
        self._peers: Peers | None = None  # all that take part, when all are there
        self._seats: tuple[int, ...] = ()
        self._ways: dict[int, str] | None = None
        self._met = self._may_open = False
        self._binding: Binding | None = None
        self._running = False
        self._stopped = False
        self._reported_end = False
        self._failed = False
        self._suspects = False
        self._worked = False  # since it last rested, and when that was over
        self._rested_ns = 0
        self._polls = False  # in the last turn, its sources

    # ---- life ----

    def run(self) -> None:
        """Join the job, work until it ends, leave nothing behind."""
        for _ in self.turns():
            pass

    def turns(self) -> Generator[None, None, None]:
        """The same for an owner who has something to do before each turn.

        To leave before the end fails the job.
        """
        try:
            with collected_rarely():
                self._join()
                while not self._stopped:
                    yield
                    assert self.core is not None
                    self._turn(self.core)
        except CoordinatorLostError as error:
            self.error = f"worker {self._rank} has lost the coordinator: {error}"
        except BaseException as error:
            self._fail(error)
        finally:
            self._close()

    def work_on(self, job: WorkerJob) -> None:
        """From the next turn on, do another job with the same peers; what was under way is lost."""
        self.core = self._meeting.build(job, self._seats)

    def _join(self) -> None:
        entered = self._enter()
        if entered is None:
            return
        host, listener = entered
        hello = Hello(
            self._rank, os.getpid(), host, self._executor, self._ring.address, listener.address
        )
        self._reporting.tell(hello)
        while not self._running and not self._stopped:
            self._reporting.ask_time()
            self._await()
            if self._peers is not None and self._clock.settled:
                self._meet(self._peers)

    def _enter(self) -> tuple[str, TcpListener] | None:
        """Be let in, and let others in: the address by which both find us. None if it is over."""
        while self._welcome is None:
            if self._stopped:
                return None
            self._await()
            self._control.check_deadline()
        welcome, settings = self._welcome, self._settings
        with socket.socket(fileno=os.dup(self._control.fileno())) as copy:
            host: str = copy.getsockname()[0]
        config = TcpConfig(
            worker_id=self._rank,
            secret=welcome.secret,
            max_connections=settings.workers + _MOST_PUSHERS,
            max_unauthenticated=settings.workers + 64,
            guest=(settings.workers + 1, settings.secret),
        )
        identity = welcome.identity
        listener = TcpListener(
            config, (host, 0), self._refusals, identity=identity, ports=settings.ports
        )
        self._sockets.listen(listener)
        self._meeting.known_by(config, identity.pin if identity else None)
        return host, listener

    def _await(self, most_s: float = _LONGEST_SLEEP_S) -> None:
        self._check_coordinator()
        self._sockets.sleep(most_s)
        self._sockets.look()
        self._check_coordinator()

    def _check_coordinator(self) -> None:
        if self._control.closed and not self._stopped:
            raise CoordinatorLostError(self._control.close_reason)

    def _meet(self, peers: Peers) -> None:
        """Go on with meeting the others, as far as it goes by now.

        All have reached all before anybody opens its operators and is busy with that: only then
        handshakes are answered at once, and strangers told from workers by their silence.
        """
        if self._ways is None:
            self._seats = peers.seats
            self._clock_ns = self._clock.clock_ns
            self._meeting.go_by(self._clock.clock_ns, self._clock.wall_ns)
            self._ways = self._meeting.meet(peers.hellos)
        if not self._met and self._meeting.reached_all():
            self._met = True
            self._reporting.tell(Met(self._rank))
        if self._may_open and self.core is None:
            self._open(self._seats, self._ways)

    def _open(self, seats: tuple[int, ...], ways: dict[int, str]) -> None:
        """Build the core, and take our seat."""
        self.core = self._meeting.build(self._job, seats)
        # Threads that operators have started by now stay free.
        cores = self._settings.cores
        core = cores[seats.index(self._rank)] if cores else None
        if core is not None:
            self._binding = Binding(core)
            settle(self._ring, core)
        gc.freeze()  # what operators have loaded stays, too
        self._reporting.tell(Ready(self._rank, ways))

    # ---- one turn ----

    def _turn(self, core: Core) -> None:
        messages = self._reader.drain(self._meeting.accept, _DRAIN_MESSAGES)
        naps = self._waiting.policy.naps
        # Who naps asks its sources once in a beat. With work left over, every other turn is enough.
        self._polls = not naps or not self._polls
        busy = core.round(self._polls) or messages > 0
        self._meeting.flush()
        now_ns = self._clock_ns()
        if now_ns >= self._reporting.next_ns:
            self._reporting.tell_what_is_due(core, now_ns, self._reported_end)
        if not self._reported_end and core.ended and not self._meeting.pending:
            core.close()  # before we say that all went well
            self._reported_end = True
            self._reporting.report(core, now_ns, ended=True)
        here_ns = time.monotonic_ns()
        every_ns = _LOOK_AT_OTHERS_NS if self._sockets.connected else _LOOK_AROUND_NS
        if here_ns - self._sockets.looked_ns > every_ns:
            self._sockets.look()
        self._worked |= busy
        if not busy or (naps and not core.backlog):
            self._rest(core, busy, here_ns)
        self._check_coordinator()

    def _rest(self, core: Core, busy: bool, here_ns: int) -> None:
        waiting, due_ns = self._waiting, core.next_due_ns()
        if due_ns is not None:
            due_ns = self._clock.by_host(due_ns)
            # Who naps has asked all sources in this beat: what became due since is of the next.
            if due_ns <= (self._rested_ns if waiting.policy.naps else here_ns):
                return
        worked_ns = here_ns - self._rested_ns if self._worked else 0
        if not waiting.nap(here_ns, worked_ns, due_ns) and not busy:
            waiting.rest(due_ns, self._source_fds(core))
        self._worked = False
        self._rested_ns = time.monotonic_ns()
        self._polls = False

    def _source_fds(self, core: Core) -> Iterator[int]:
        """The descriptors by which sources say that they have something, if it can be taken."""
        for instance in core.instances:
            if instance.source is not None and not instance.congested and not instance.ended:
                yield from instance.source.filenos()

    def _on_frame(self, connection: TcpConnection, frame: Frame) -> None:
        if connection is self._control:
            self._obey(unpack(frame.payload))
        elif frame.kind == KIND_FEED:
            self._feed(connection, frame)
        elif connection.peer_id is None or connection.peer_id > self._settings.workers:
            connection.refuse("not_a_worker", f"a guest sent a message of kind {frame.kind}")
        elif self.core is not None:
            self._meeting.accept(connection.peer_id, frame.kind, frame.payload)

    def _feed(self, connection: TcpConnection, frame: Frame) -> None:
        """Something from outside the topology, for a source of ours."""
        for instance in self.core.instances if self.core is not None else ():
            if instance.number == frame.target and instance.source is not None:
                try:
                    instance.source.receive(frame.payload, partial(self._reply, connection))
                except Exception as error:  # who feeds may be anybody who read a Spark task
                    connection.refuse("bad_feed", repr(error))

    def _reply(self, connection: TcpConnection, payload: bytes) -> None:
        if not connection.closed:
            connection.send(0, KIND_FEED, [payload])
            connection.flush()
            self._sockets.await_room(connection)

    def _obey(self, message: Message) -> None:
        match message:
            case Welcome():
                self._welcome = message
            case Peers():
                self._peers = message
            case Open():
                self._may_open = True
            case ClockTold():
                self._clock.hear(message)
            case Go() if self.core is not None:  # a copy of a worker hears it, too
                self._running = True
                self._reporting.started(self.core, self._clock_ns())
            case Stop(drain=True) if self.core is not None:
                self.core.stop_sources()
            case Stop():
                self._stopped = True
                # What went wrong first, anywhere. That a peer is gone may only mean that it has
                # heard this before us.
                self.error = message.error or ("" if self._suspects else self.error)

    # ---- the end ----

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        lost = self._meeting.lost(error)
        self._suspects = lost is not None
        if lost is not None:
            self.error = self._reporting.suspects(self._rank, *lost)
        else:
            self.error = self._reporting.failed(self._rank, error)
        deadline_ns = self._clock_ns() + (_LAST_WORDS_NS if lost is None else _FINDING_NS)
        with suppress(CoordinatorLostError):
            # What failed here may only follow from what failed elsewhere; the answer tells.
            while not self._stopped and self._clock_ns() < deadline_ns:
                self._await(0.01)

    def _close(self) -> None:
        self._reporting.close()
        try:
            if self.core is not None:
                self.core.close()
        except BaseException as error:
            if not self._failed:
                self._fail(error)
        finally:
            if self._binding is not None:
                self._binding.release()
            self._meeting.close()
            self._sockets.forget(self._control)
            self._sockets.close()
            self._reader.close()
            self._ring.close()
            self._doorbell.close()
            self._control.close()  # the last: it tells the coordinator that nothing is left here
