"""A worker: the core, and around it the ring, the sockets and the coordinator. One thread."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tailrace.control.aside import SharedConnection
from tailrace.control.binding import Binding, settle
from tailrace.control.changing import CallOff, Prepare, Switch
from tailrace.control.checkpointing import Checkpointing
from tailrace.control.clocks import ClockTold, Follower
from tailrace.control.feed import KIND_FEED
from tailrace.control.meeting import Meeting, WorkerJob
from tailrace.control.preparing import Preparing
from tailrace.control.protocol import (
    COORDINATOR_ID,
    GUEST_ID,
    SILENCE_S,
    BeginEpoch,
    Committed,
    Drained,
    Go,
    Hello,
    Joined,
    Leave,
    Members,
    Message,
    Met,
    Moved,
    Open,
    Peers,
    Prepared,
    Reached,
    Ready,
    RollBack,
    SetReplay,
    SetTail,
    Settings,
    Settled,
    Stop,
    Welcome,
    unpack,
)
from tailrace.control.reporting import Reporting
from tailrace.control.slices import SHORT_NS, USUAL_NS, set_slice
from tailrace.control.sockets import Sockets
from tailrace.control.waiting import Policy, Waiting, policy_of
from tailrace.runtime.core import Core
from tailrace.runtime.garbage import TIDY_NS, collected_rarely, let_stay, tidy
from tailrace.transport.frame import Frame
from tailrace.transport.identity import pin_in
from tailrace.transport.listener import TcpListener
from tailrace.transport.memory import keep_freed_memory
from tailrace.transport.peer import mark_of
from tailrace.transport.ring import Doorbell, Ring
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

_DRAIN_MESSAGES = 256
_LONGEST_SLEEP_S = 0.5
_MOST_PUSHERS = 1024
"""Spark tasks that feed sources here at the same time."""
_MOST_STRANGERS = 64
"""So many more than there are workers may be connected and not have proven who they are."""
_LAST_WORDS_NS = 1_000_000_000
_FINDING_NS = (SILENCE_S + 5) * 1_000_000_000
"""How long to wait for what the coordinator finds out about a peer that was lost."""


_BREATH_NS = 100_000
"""Who has nothing to do but to encode rests so long between two slices: the system lets who never
sleeps run for milliseconds, and then others, who may be workers with something to do."""
_SETTLE_KEYS = 512
"""Keys whose state has come from elsewhere before the collector looks at them."""
_SWITCH_S = 0.0001
"""How long the thread that writes checkpoints may keep the loop from going on."""
_REDIAL_MS = SILENCE_S * 1000
"""Who takes another's place knows that the coordinator was there a moment ago."""


@dataclass(frozen=True)
class Supervised:
    """Who starts another process when this one is lost, and how many it has started before."""

    by: int = 0
    life: int = 0
    on_hello: Callable[[], None] = lambda: None
    """Called when the coordinator has been told that this one is there."""


UNSUPERVISED = Supervised()


class CoordinatorLostError(ConnectionError):
    """The driver is gone; so the worker goes, too."""


class Worker:
    """See above. `run` returns when the job has ended; `error` says whether it failed.

    Where jobs recover it also returns when this process cannot go on though the job may: `again`
    then says that another should take its place. When it is others that were lost, it stops, waits
    for who takes their places, and goes back with them to the last epoch, as often as need be.

    The job is the one of the settings, or one that was made in this process. How it waits when
    there is nothing to do is that of the settings, or a policy may be given; so may its clock.
    """

    error = ""
    """What went wrong, here or elsewhere, with its traceback; empty: nothing."""
    core: Core | None = None
    """What it works on, once it has met the others."""
    again = False
    """Whether the job needs another process in the place of this one."""

    def __init__(
        self,
        settings: Settings,
        rank: int,
        executor: str,
        job: WorkerJob | None = None,
        policy: Policy | None = None,
        host_clock_ns: Callable[[], int] = time.monotonic_ns,
        supervised: Supervised = UNSUPERVISED,
    ) -> None:
        self._settings = settings
        self._supervised = supervised
        self._attempt = 0
        self._job = job
        self._rank = rank
        self._executor = executor
        self._clock = Follower(rank, settings.workers, host_clock_ns)
        self._clock_ns: Callable[[], int] = time.monotonic_ns  # until the job's is known
        self._doorbell = Doorbell()
        # Who takes another's place is waited for: its memory comes as it is needed.
        self._ring = Ring.create(settings.ring_bytes, populate=not supervised.life)
        self._reader = self._ring.reader(self._doorbell)
        self._refusals = refusals = Refusals()
        self._sockets = Sockets(self._doorbell, self._on_frame)
        self._control = SharedConnection.connect(
            TcpConfig(
                worker_id=rank,
                secret=settings.secret,
                dial_ms=_REDIAL_MS if supervised.life else TcpConfig.dial_ms,
            ),
            settings.coordinator,
            COORDINATOR_ID,
            refusals,
            pin=pin_in(settings.secret),
        )
        self._control.notice_silence(SILENCE_S)
        self._sockets.watch(self._control)
        policy = policy or policy_of(settings.waiting)
        self._waiting = Waiting(policy, self._reader, self._sockets)
        self._meeting = Meeting(settings, rank, self._doorbell, self._sockets, refusals)
        self._reporting = Reporting(
            self._control, self._sockets, settings.report_s, self._clock, refusals, self._waiting
        )
        self._welcome: Welcome | None = None
        self._peers: Peers | None = None  # all that take part, when all are there
        self._joined: Joined | None = None  # those that join, until there are ways to them
        self._seats: tuple[int, ...] = ()
        self._ways: dict[int, str] | None = None
        self._met = self._may_open = self._opened = self._froze = False
        self._binding: Binding | None = None
        self._running = False
        self._stopped = False
        self._reported_end = self._drained = False
        self._retired: Core | None = None  # the core of the attempt before
        self._checkpointing: Checkpointing | None = None
        if settings.checkpoint:
            self._checkpointing = Checkpointing(settings, rank, self._doorbell.ring)
            sys.setswitchinterval(_SWITCH_S)
        self._failed = False
        self._suspects = False
        self._worked = False  # since it last rested, and when that was over
        self._rested_ns = 0
        self._tidied_ns = 0
        self._polls = False  # in the last turn, its sources
        self._encodes = False  # in this turn, what was cut, or a report
        self._preparing: Preparing | None = None

    # ---- life ----

    def run(self) -> None:
        """Join the job, work until it ends, leave nothing behind."""
        for _ in self.turns():
            pass

    def turns(self) -> Generator[None, None, None]:
        """The same for an owner who has something to do before each turn.

        To leave before the end fails the job.
        """
        set_slice(SHORT_NS)
        keep_freed_memory()
        try:
            with collected_rarely():
                self._arrive()
                while not self._stopped:
                    self._gather()
                    while self._running and not self._stopped:
                        yield
                        assert self.core is not None
                        self._try_turn(self.core)
        except CoordinatorLostError as error:
            self.error = f"worker {self._rank} has lost the coordinator: {error}"
            # It may be the way to it that is gone; who does not find it anew was right to go.
            self.again = self._settings.recover and self._welcome is not None
        except BaseException as error:
            self._fail(error)
        finally:
            set_slice(USUAL_NS)
            self._close()

    def work_on(self, job: WorkerJob) -> None:
        """From the next turn on, do another job with the same peers; what was under way is lost."""
        self.core = self._meeting.build(job, self._seats)

    def _arrive(self) -> None:
        """Be let in, and say so."""
        entered = self._enter()
        if entered is None:
            return
        host, listener = entered
        hello = Hello(
            self._rank,
            os.getpid(),
            host,
            self._executor,
            self._ring.address,
            listener.address,
            launch=self._settings.launch,
            stage=self._settings.stage,
            supervisor=self._supervised.by,
            life=self._supervised.life,
            board=self._meeting.board,
        )
        self._reporting.tell(hello)
        self._supervised.on_hello()

    def _gather(self) -> None:
        """Wait until all workers of an attempt are there, meet them, and be ready to run."""
        self._let_go()
        while not self._running and not self._stopped:
            self._reporting.ask_time()
            self._await()
            if self._peers is not None and self._clock.settled:
                try:
                    self._meet(self._peers)
                    self._tend_joining()
                except ConnectionError as error:
                    self._suspect(error)

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
            max_unauthenticated=settings.workers + _MOST_STRANGERS,
            guest=(GUEST_ID, settings.secret),
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
            if self._clock_ns is not self._clock.clock_ns:
                self._clock_ns = self._clock.clock_ns
                self._meeting.go_by(self._clock.clock_ns, self._clock.wall_ns)
            self._ways = self._meeting.meet(peers.hellos)
        if not self._met and self._meeting.reached_all():
            self._met = True
            self._reporting.tell(Met(self._rank, self._attempt))
        if self._may_open and not self._opened:
            self._open(peers, self._ways)

    def _open(self, peers: Peers, ways: dict[int, str]) -> None:
        """Have the core where the attempt begins, and take our seat."""
        # All have heard of this attempt, and nobody runs yet: what is in the ring is old.
        while peers.attempt and self._reader.drain(self._meeting.accept, _DRAIN_MESSAGES):
            pass
        self._go_back(peers)
        # Threads that operators have started by now stay free.
        cores = self._settings.cores
        place = peers.seats.index(self._rank)
        core = cores[place] if place < len(cores) else None  # who has joined has none
        if core is not None and self._binding is None:
            self._binding = Binding(core)
            settle(self._ring, core)
        if not self._froze:
            gc.freeze()  # what operators have loaded stays, too
        self._opened = self._froze = True
        self._reporting.tell(Ready(self._rank, ways, self._attempt))

    # ---- from one attempt to the next ----

    def _go_back(self, peers: Peers) -> None:
        """Have a core whose state is that of `peers.epoch`, the one of `peers.manifest`.

        Called when nothing of another attempt can reach it any more, and nothing of this one yet.
        """
        before, self._retired = self._retired, None
        self.core = self._meeting.build(self._job, peers.seats, peers, before)
        if self._settings.job:
            self._job = None  # what was used is not what a new core may begin with

    def _halt(self, attempt: int) -> None:
        """Run no more: somebody was lost, and the next attempt begins when all are there again."""
        self._attempt = attempt
        self._running = False
        self._peers = self._ways = self._joined = self._preparing = None
        self._met = self._may_open = self._opened = self._reported_end = self._drained = False
        self._meeting.begin(attempt)
        self._reporting.begin(attempt)

    def _let_go(self) -> None:
        """Close the core of an attempt that is over, while we have to wait anyway."""
        if self.core is None:
            return
        try:
            if self.core.cuts is None:
                self.core.close()
                gc.unfreeze()  # what is left of it goes when the collector comes next
            else:  # the collector had better not look through all the state that is kept
                self._retired = self.core
                self.core.retire()
        except Exception:
            traceback.print_exc()  # it is not what went wrong
        self.core = None

    def _try_turn(self, core: Core) -> None:
        try:
            self._turn(core)
        except CoordinatorLostError:
            raise
        except ConnectionError as error:
            self._suspect(error)

    def _suspect(self, error: ConnectionError) -> None:
        """Another worker cannot be reached: wait to hear what became of it, if the job goes on."""
        lost = self._meeting.lost(error) if self._settings.recover else None
        if lost is None or isinstance(error, CoordinatorLostError):
            raise error
        self._reporting.suspects(self._rank, *lost)
        attempt = self._attempt
        while self._attempt == attempt and not self._stopped and self._meeting.knows(lost[0]):
            self._await()

    # ---- workers that join and leave while we run ----

    def _expect(self, joined: Joined) -> None:
        """Begin to open ways to those that join."""
        last = max((hello.rank for hello in joined.hellos), default=self._settings.workers)
        self._sockets.expect(last + 1 + _MOST_PUSHERS, last + 1 + _MOST_STRANGERS)
        self._joined = joined
        self._meeting.expect(joined.hellos)
        self._tend_joining()

    def _tend_joining(self) -> None:
        """Say when there are ways to all that join; or, for one that does, to all others."""
        joined = self._joined
        if joined is None or self._ways is None:
            return
        trouble = ""
        try:
            if not self._meeting.reached_all():
                return
        except ConnectionError as error:
            trouble = str(error)
        self._joined = None
        ways = self._meeting.ways_to_coming()
        self._reporting.tell(Reached(self._rank, joined.round, ways, trouble, self._attempt))

    def _count(self, members: Members) -> None:
        """So many take part from now on."""
        self._joined = None
        self._ways = self._meeting.members(members.workers)
        self._clock.one_of(members.workers)
        self._reporting.every(replace(self._settings, workers=members.workers).report_s)
        self._reporting.tell(Reached(self._rank, members.round, attempt=self._attempt))

    # ---- one turn ----

    def _turn(self, core: Core) -> None:
        if self._reported_end and core.cuts is not None:  # it is closed, and may not have ended
            self._await()
            return
        messages = self._reader.drain(self._meeting.accept, _DRAIN_MESSAGES)
        naps = self._waiting.policy.naps
        # Who naps asks its sources once in a beat. With work left over, every other turn is enough.
        self._polls = not naps or not self._polls
        busy = core.round(self._polls) or messages > 0
        self._encodes = core.cuts is not None and self._tend_epochs(core)
        if self._preparing is not None:
            self._encodes = True
            self._prepare(core, self._preparing)
        if core.moving is not None:
            self._encodes |= core.move()
            if core.moving.new_keys >= _SETTLE_KEYS:
                core.moving.new_keys = 0
                let_stay()
            if (moved := core.moved()) is not None:
                told = Moved(self._rank, moved.number, moved.moved_keys, self._attempt)
                self._reporting.tell(told)
        self._meeting.flush()
        now_ns = self._clock_ns()
        if now_ns >= self._reporting.next_ns:
            more = self._reporting.tell_what_is_due(core, now_ns, self._reported_end)
            self._encodes |= more
        if not busy and not self._drained and core.ended and not self._meeting.pending:
            self._drained = True
            if core.cuts is None:
                self._report_end(core)
            else:
                self._reporting.tell(Drained(self._rank, self._attempt))
        here_ns = time.monotonic_ns()
        if here_ns >= self._sockets.due_ns:
            busy |= self._sockets.look()
            if self._stopped or not self._running:
                return
        if self._joined is not None:
            self._tend_joining()
        self._worked |= busy
        if not busy or (naps and not core.backlog):
            self._rest(core, busy, here_ns)
        self._check_coordinator()

    def _tend_epochs(self, core: Core) -> bool:
        """Work on what was cut; whether there is more of that."""
        assert self._checkpointing is not None and core.cuts is not None
        busy = core.encode()
        told = self._checkpointing.look(core, self._attempt)
        if told is not None:
            self._reporting.tell(told)
        if (epoch := core.cuts.settled()) is not None:
            self._reporting.tell(Settled(self._rank, epoch, self._attempt))
        return busy

    def _report_end(self, core: Core) -> None:
        if core.instances:  # else it has nothing yet that could end
            core.close()  # before we say that all went well
        self._reported_end = True
        self._reporting.report(core, self._clock_ns(), ended=True)

    def _rest(self, core: Core, busy: bool, here_ns: int) -> None:
        waiting, due_ns = self._waiting, core.next_due_ns()
        if due_ns is not None:
            due_ns = self._clock.by_host(due_ns)
            # Who naps has asked all sources in this beat: what became due since is of the next.
            if due_ns <= (self._rested_ns if waiting.policy.naps else here_ns):
                return
        if self._encodes or (core.cuts is not None and core.cuts.unsettled):
            breathed_ns = here_ns + _BREATH_NS
            due_ns = breathed_ns if due_ns is None else min(due_ns, breathed_ns)
        if here_ns - self._tidied_ns > TIDY_NS:
            self._tidied_ns = here_ns
            tidy()
        worked_ns = here_ns - self._rested_ns if self._worked else 0
        if not waiting.nap(here_ns, worked_ns, due_ns, self._source_fds(core)) and not busy:
            waiting.rest(due_ns, self._source_fds(core))
        self._worked = False
        self._rested_ns = time.monotonic_ns()
        self._polls = False

    def _source_fds(self, core: Core) -> Iterator[int]:
        """The descriptors by which sources say that they have something, if it can be taken."""
        for instance, source in core.sources:
            if not instance.congested and not instance.ended:
                yield from source.filenos()

    def _on_frame(self, connection: TcpConnection, frame: Frame) -> None:
        if connection is self._control:
            self._obey(unpack(frame.payload))
        elif frame.kind == KIND_FEED:
            self._feed(connection, frame)
        elif connection.peer_id is None or connection.peer_id >= COORDINATOR_ID:
            connection.refuse("not_a_worker", f"a guest sent a message of kind {frame.kind}")
        elif self.core is not None:
            marked = mark_of(connection.peer_id, frame.target)
            self._meeting.accept(marked, frame.kind, frame.payload)

    def _feed(self, connection: TcpConnection, frame: Frame) -> None:
        """Something from outside the topology, for a source of ours."""
        for instance in self.core.instances if self.core is not None else ():
            number = self._meeting.numbers.get(instance.id)
            if number == frame.target and instance.source is not None:
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
            case Peers() if message.attempt >= self._attempt:
                if message.attempt != self._attempt:  # we have just come
                    self._halt(message.attempt)
                self._peers = message
            case RollBack():
                self._halt(message.attempt)
            case Open():
                self._may_open = True
            case ClockTold():
                self._clock.hear(message)
            case Joined():
                self._expect(message)
            case Members():
                self._count(message)
            case SetReplay():
                self._meeting.set_replay(message.replay)
            case Leave():
                if self.core is not None:
                    self._reporting.report(self.core, self._clock_ns(), ended=True)
                self._stopped = True
            case Go() if self.core is not None and self._opened:  # copies of workers hear it, too
                self._running = True
                self._reporting.started(self.core, self._clock_ns())
            case SetTail() if self.core is not None and self._running:
                for stream, mode in message.modes.items():
                    self.core.set_tail(stream, mode)
            case BeginEpoch() if self.core is not None and self._running:
                self.core.begin_epoch(message.epoch, last=message.last, change=message.change)
            case Prepare() if self.core is not None and self._running:
                self._preparing = Preparing(message)
                self._prepare(self.core, self._preparing)
            case CallOff() if self.core is not None and self._running:
                self._preparing = None
                self.core.call_off()
            case Switch() if self.core is not None and self._running:
                self.core.switch()
            case Committed() if self.core is not None and self._running:
                assert self.core.cuts is not None
                self.core.cuts.committed(message.epoch)
                if message.last:
                    self._report_end(self.core)
            case Stop(drain=True) if self.core is not None:
                self.core.stop_sources()
            case Stop():
                self._stopped = True
                # What went wrong first, anywhere. That a peer is gone may only mean that it has
                # heard this before us.
                self.error = message.error or ("" if self._suspects else self.error)

    def _prepare(self, core: Core, preparing: Preparing) -> None:
        layout, message = preparing.work(self._clock_ns), preparing.told
        if layout is None:
            return
        trouble, self._preparing = "", None
        try:
            core.prepare(message.number, layout.of(core.deployment.graph), message.epoch)
            moving = core.moving
            if moving is not None and (moving.moves.recast or moving.brings):
                self._drained = self._reported_end = False
                self._reporting.begin(self._attempt)
        except Exception as error:
            trouble = f"worker {self._rank} cannot prepare it: {error}"
        self._reporting.tell(Prepared(self._rank, message.number, trouble, self._attempt))

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
        attempt = self._attempt
        with suppress(CoordinatorLostError):
            # What failed here may only follow from what failed elsewhere; the answer tells.
            while not self._stopped and self._clock_ns() < deadline_ns:
                self._await(0.01)
                if self._attempt != attempt:  # the job goes on
                    break
        self.again = self._settings.recover and not self._stopped

    def _close(self) -> None:
        self._reporting.close()
        if self._checkpointing is not None:
            self._checkpointing.close()
        if self._retired is not None:
            with suppress(Exception):
                self._retired.discard()
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
