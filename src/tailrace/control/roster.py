"""What the coordinator knows and decides, without I/O: messages and losses in, orders out.

An order is an addressee, a rank, a connection or all, and a message. Whoever carries orders out
keeps the connections; a roster knows them by the numbers that it is told.

With recovery, a worker that is lost is not the end: the others are told to stop, a new process
takes its place, and all go back to the last epoch. What is said by or about others than the
workers of the present attempt is then of no interest any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tailrace.checkpoint.epochs import Act, Begin, Commit, Epochs, Write
from tailrace.control.budget import SAME_RECORD, STANDARD, Budget
from tailrace.control.changing import PREPARING, Changing, Prepare, Wanted
from tailrace.control.changing import Act as ChangeAct
from tailrace.control.joining import Joining
from tailrace.control.orders import ALL, Decision, Line, Order
from tailrace.control.preparing import in_pieces
from tailrace.control.protocol import (
    SILENCE_S,
    VERSION,
    BeginEpoch,
    Committed,
    Drained,
    Failed,
    Go,
    Hello,
    Message,
    Met,
    Moved,
    Open,
    Peers,
    Prepared,
    Progress,
    Ready,
    RollBack,
    SetTail,
    Settled,
    Snapshotted,
    Stop,
    Suspects,
)
from tailrace.control.recovery import Recovery
from tailrace.control.seating import SeatingError, follows, home, named, reseat
from tailrace.tail.modes import Tail

__all__ = ["ALL", "Decision", "Line", "Order", "Roster"]

STARTING, RUNNING, RECOVERING, DRAINING, STOPPED, FAILED = (
    "starting",
    "running",
    "recovering",
    "draining",
    "stopped",
    "failed",
)

_SPARK_SAYS_WHY_S = 3.0
"""How long a worker that was lost at the start waits for Spark's account of it."""
_FINDING_S = SILENCE_S + 1.0
"""How long a worker that has lost another may wait for us to find out what became of that one."""

_DAMAGED = (
    ". To try again would find the same. Start the job again with the same folder: it looks at all"
    " that an epoch needs first, and goes on from the newest that is whole"
)


@dataclass
class Roster:
    """The state of a job, as the coordinator knows it. Times are of any clock, in seconds."""

    workers: int
    """How many there are; those that are about to join come when they run: see `joining`."""
    wanted: tuple[int, ...] = ()
    """The node of each place of the plan; without a plan workers may be anywhere."""
    node: str = "memory"
    """What counts as one node, see `Topology.start`."""
    replaced: bool = False
    """Whether Spark starts a task that was lost anew, and maybe copies of slow ones."""
    recover: bool = False
    """Whether the job goes on without a worker that is lost."""
    budget: Budget = STANDARD
    seats: tuple[int, ...] = ()
    """The rank of each place, when all workers have met."""
    epoch: int = 0
    """The last that was committed, which is what a job goes back to,"""
    manifest: str = ""
    """the name of its manifest (none for the empty beginning)"""
    kept_in: str = ""
    """and the folder where that is."""
    epochs: Epochs | None = None
    """When checkpoints are made, if they are."""
    writes: list[Write] = field(default_factory=list)
    """Manifests to be written by whoever can: see `written`."""
    phase: str = STARTING
    reason: str = ""
    traceback: str = ""
    hellos: dict[int, Hello] = field(default_factory=dict)
    speakers: dict[int, int] = field(default_factory=dict)
    """By rank, the number of the connection that is the worker; others are copies."""
    copies: dict[int, Hello] = field(default_factory=dict)
    """By the number of their connection, workers of a rank that has one already."""
    leaving: set[int] = field(default_factory=set)
    """The connections of workers of earlier launches: while one is there, others do not begin."""
    met: set[int] = field(default_factory=set)
    """Those that have reached all others."""
    ways: dict[int, dict[int, str]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    earlier: dict[int, Progress] = field(default_factory=dict)
    """The reports before those."""
    departed: Progress | None = None
    """What those have done that have left since the workers last began anew."""
    pairs: dict[int, Progress] = field(default_factory=dict)
    """The last reports that had pairs of keys."""
    reports: int = 0
    """How many have come."""
    tails: dict[int, Tail] = field(default_factory=dict)
    """How streams are dealt, by number, where that was changed since the start."""
    tails_told: dict[str, str] = field(default_factory=dict)
    """Of streams whose way that is found while they run, what it is, and why."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Connections that the coordinator has refused, by reason."""
    suspicion: tuple[float, str] | None = None
    """What the job will have failed of by some time, if nobody knows better until then."""
    doubt: tuple[float, str] | None = None
    """The same for a worker that says it has lost another."""
    silent: set[str] = field(default_factory=set)
    """Hosts that went silent."""
    now_s: float = 0.0
    """What time it is, as far as it was told."""
    changing: Changing | None = None
    """The deployment and its changes, by places; without, it stays as it is."""
    recovery: Recovery = field(init=False)
    joining: Joining = field(init=False)

    def __post_init__(self) -> None:
        self.joining = Joining(self)
        self.recovery = Recovery(self.recover, self.budget)

    @property
    def attempt(self) -> int:
        """Counts the lives of the job, from 0."""
        return self.recovery.attempt

    @property
    def over(self) -> bool:
        """Whether the job has ended, well or not."""
        return self.phase in (STOPPED, FAILED)

    def hear(self, message: Message, speaker: int | None = None) -> list[Order]:
        """A worker said something, on the connection of that number (by default its rank).

        Of several tasks of one rank the first to say hello is the worker. Spark would take a copy
        that returns for the finished rank and end the worker, and count one that raises as a
        failure. So copies stay and hear nothing until all is over, or until they are needed:
        before the workers have met, one that is lost is replaced.
        """
        number = message_rank(message) if speaker is None else speaker
        if (orders := self.joining.hear(message, number)) is not None:
            return orders
        if isinstance(message, Hello):
            return self._welcome(message, number)
        if self.speakers.get(message_rank(message), self._stranger(number)) != number:
            return []
        if not isinstance(message, Failed) and self._is_old(message):
            return []
        match message:
            case Met():
                self.met.add(message.rank)
                if len(self.met) == self.workers:
                    return [(rank, Open()) for rank in range(self.workers)]
            case Ready():
                self.ways[message.rank] = message.ways
                if len(self.ways) == self.workers and self.phase in (STARTING, RECOVERING):
                    return self._go()
            case Progress():
                if message.rank in self.progress:
                    self.earlier[message.rank] = self.progress[message.rank]
                self.progress[message.rank] = message
                if message.sampled_pairs and message.change == self._change_done:
                    self.pairs[message.rank] = message
                self.reports += 1
                # A thousand workers report: only an end is worth a look at all.
                return self.end_if_all_have() if message.ended else []
            case Suspects():
                if self.doubt is None and message.peer < self.workers:
                    text = (
                        f"{self._named(message.rank)} has lost {self._named(message.peer)},"
                        f" which still answers the driver: {message.reason}."
                        " Can their hosts reach each other?"
                    )
                    self.doubt = self.now_s + _FINDING_S, text
            case Snapshotted() if self.epochs is not None:
                return self._act(
                    self.epochs.cut(message.rank, message.epoch, message, ended=message.ended)
                )
            case Prepared() if self.changing is not None:
                if not message.trouble:
                    self._works_again(message.rank)
                return self._change(
                    self.changing.prepared(
                        message.rank, message.number, message.trouble, self.now_s, self.epochs
                    )
                )
            case Moved() if self.changing is not None:
                done = self.changing.switched(
                    message.rank, message.number, message.moved_keys, self.now_s, self.epochs
                )
                if done:
                    self.pairs.clear()  # they count anew
                # The sooner an epoch counts under the new deployment, the sooner it is for good.
                return self.ask_epoch() if done and self.epochs is not None else []
            case Settled() if self.epochs is not None:
                self.epochs.settled_by(message.rank, message.epoch)
                return self._act(self.epochs.tick(self.now_s))
            case Drained() if self.epochs is not None:
                self.epochs.drained(message.rank)
                return self._act(self.epochs.tick(self.now_s))
            case Failed():
                return self._failed(message, number)
        return []

    def count(self, workers: int) -> None:
        """So many take part from now on; in epochs, from the next one on."""
        self.workers = workers
        if self.epochs is not None:
            self.epochs.count(workers)

    def end_if_all_have(self) -> list[Order]:
        """The job is over when all workers have reported their end."""
        if self.over:
            return []
        reports = self.progress.values()
        if sum(one.ended and not self._is_old(one) for one in reports) < self.workers:
            return []
        self.phase = STOPPED
        return [(ALL, Stop(drain=False))]

    def _act(self, acts: list[Act]) -> list[Order]:
        """What the epochs want done, as orders; but for manifests, which others write."""
        assert self.epochs is not None
        orders: list[Order] = []
        meant = range(self.epochs.taking_part)
        for act in acts:
            match act:
                case Write():
                    self.writes.append(act)
                case Begin():
                    told: Message = BeginEpoch(act.epoch, act.last, act.change)
                    if self.changing is not None:
                        self.changing.epoch_begins(act.epoch)
                    orders += [(rank, told) for rank in meant]
                case Commit():
                    told = Committed(act.epoch, act.last)
                    orders += [(rank, told) for rank in meant]
        return orders

    @property
    def _change_done(self) -> int:
        return 0 if self.changing is None else self.changing.done

    def change(self, wanted: Wanted) -> int:
        """Have another deployment, by places; the number of the change. Raises if not now."""
        if self.changing is None:
            raise RuntimeError("this job keeps its deployment")
        if self.phase not in (RUNNING, RECOVERING) or self.recovery.drains:
            raise RuntimeError(f"the job is {self.phase}; it changes only while it runs")
        if self.joining.growth is not None or self.joining.departure is not None:
            raise RuntimeError("the number of workers is being changed; wait for that")
        return self.changing.ask(wanted, self.now_s, recovers=self.phase == RECOVERING)

    def look_at_change(self) -> list[Order]:
        """Begin a change that is wanted, if it is time for that."""
        if self.changing is None or self.phase != RUNNING:
            return []
        return self._change(self.changing.look(self.workers, self.epochs, self.now_s))

    def _change(self, acts: list[ChangeAct]) -> list[Order]:
        orders: list[Order] = []
        for act in acts:
            if isinstance(act, Prepare):
                act = in_pieces(replace(act, layout=act.layout.seated(self.seats)))
            orders += [(rank, act) for rank in range(self.workers)]
        if self.epochs is not None:
            orders += self._act(self.epochs.tick(self.now_s))
        return orders

    def _works_again(self, rank: int) -> None:
        """A worker is prepared: if instances come to it, what it said of its end before is old.

        Those that could not prepare it, or did not come to that, have ended as they said.
        """
        assert self.changing is not None
        before, coming = self.changing.layout, self.changing.current
        if coming is None or coming.status != PREPARING or coming.layout is None:
            return
        recast = before.forwarded != coming.layout.forwarded  # then all tell their end anew
        if not any(
            place >= 0
            and self.seats[place] == rank
            and (recast or before.workers.get(instance) != place)
            for instance, place in coming.layout.workers.items()
        ):
            return
        if rank in self.progress:
            self.progress[rank].ended = False
        if self.epochs is not None:
            self.epochs.works(rank)

    def written(self, epoch: int, manifest: str, kept_in: str) -> list[Order]:
        """The manifest of an epoch is there."""
        assert self.epochs is not None
        self.epoch, self.manifest, self.kept_in = epoch, manifest, kept_in
        if self.changing is not None:
            self.changing.epoch_counts(epoch)
        if self.epochs.running:
            self.recovery.restarts.progressed()
        orders = [*self._act(self.epochs.written(epoch)), *self.joining.look()]
        return orders if self.recovery.introduced else [*orders, *self._introduce()]

    def set_tail(self, modes: Mapping[int, Tail]) -> list[Order]:
        """Streams are dealt in other ways from now on, also by who goes back or joins later."""
        self.tails.update(modes)
        return [(ALL, SetTail(modes))] if self.phase in (RUNNING, DRAINING) else []

    def ask_epoch(self) -> list[Order]:
        """Somebody wants an epoch as soon as possible."""
        assert self.epochs is not None
        self.epochs.ask()
        return self._act(self.epochs.tick(self.now_s))

    def _stranger(self, number: int) -> int:
        """Whom a rank without a hello is taken for: nobody, where workers come and go."""
        return -1 if self.recover else number

    def _is_old(self, message: Message) -> bool:
        """Whether it was said in an attempt that is over."""
        attempt: int = getattr(message, "attempt", self.attempt)
        return attempt != self.attempt

    def _go(self) -> list[Order]:
        """Everybody is ready."""
        self.phase = RUNNING
        self.departed = None
        self.recovery.running(self.now_s)
        if self.epochs is not None:
            self.epochs.go(self.now_s)
        orders: list[Order] = [(ALL, Go())]
        if self.tails:
            orders.append((ALL, SetTail(dict(self.tails))))
        if self.recovery.drains:
            self.phase = DRAINING
            if self.epochs is None:  # which would know that they are to end
                orders.append((ALL, Stop(drain=True)))
        return orders

    def _failed(self, message: Failed, number: int) -> list[Order]:
        """A worker's code has raised. To go back may help, once or twice for the same record.

        Before the job has ever run it would not: what cannot be opened cannot be opened. Nor does
        it where what it would go back to is damaged.
        """
        if message.damaged:
            return self.fail(f"{message.reason}{_DAMAGED}", message.traceback)
        if not self.recover or not self.recovery.ran or self.over:
            return self.fail(message.reason, message.traceback)
        if message.record:
            times = self.recovery.restarts.failed_on(message.operator, message.record, self.now_s)
            if times >= SAME_RECORD:
                reason = f"{message.reason}; it has failed {times} times in a row on that"
                return self.fail(reason, message.traceback)
        orders = self._lose(message.rank, message.reason, message.traceback)
        # It ends itself when it knows that it is not needed to say more.
        return orders if self.over else [(Line(number), RollBack(self.attempt)), *orders]

    def _welcome(self, hello: Hello, number: int) -> list[Order]:
        if self.recover and (self.over or hello.launch != self.launch):
            return [(Line(number), self._stop())]
        if hello.rank in self.speakers:
            if self.speakers[hello.rank] == number:
                return []
            if hello.rank not in self.hellos or not follows(self.hellos[hello.rank], hello):
                self.copies[number] = hello
                return []
            # Its predecessor is gone, though we have not heard of that yet.
            orders = self._lose(hello.rank, self._gone(hello.rank))
            return orders if self.over else [*orders, *self._welcome(hello, number)]
        self.speakers[hello.rank] = number
        if self.over:  # a task that Spark has started too late
            return [(hello.rank, self._stop())]
        self.hellos[hello.rank] = hello
        self.recovery.came(hello.rank)
        if hello.version != VERSION:
            return self.fail(
                f"{self._named(hello.rank)} runs {hello.version}; the driver runs {VERSION}."
                " Install the same on all executors, or let tailrace.ship(spark) bring it there"
            )
        return self._introduce()

    def _introduce(self) -> list[Order]:
        """Let the workers of this attempt know of each other, if all are there and it is time."""
        recovery = self.recovery
        if len(self.hellos) < self.workers or recovery.introduced or self.over:
            return []
        if self.now_s < recovery.resume_s or self.leaving:
            return []
        if self.epochs is not None and not self.epochs.known:
            return []  # nobody knows yet which epoch to go back to
        hellos = tuple(self.hellos[rank] for rank in range(self.workers))
        try:
            homes = [home(hello, self.node) for hello in hellos]
            self.seats = reseat(self.wanted, self.seats, homes)
        except SeatingError as error:
            return self.fail(str(error))
        recovery.introduced = True
        layout = self.changing.begin() if self.changing is not None else None
        peers = Peers(
            hellos, self.seats, self.attempt, self.epoch, self.manifest, self.kept_in, layout
        )
        return [(rank, peers) for rank in range(self.workers)]

    def seated(self, placement: tuple[int, ...]) -> tuple[int, ...]:
        """The rank for each instance, by its place; until all have met, the places themselves."""
        return tuple(self.seats[place] for place in placement) if self.seats else placement

    def lost(
        self, rank: int, now_s: float, silent: bool = False, speaker: int | None = None
    ) -> list[Order]:
        """A worker's connection is gone; `silent`: because its host does not answer any more.

        While the job starts that is seldom the first cause: Spark ends all tasks when one fails,
        and tells why a moment later. A silent host it would notice much later.
        """
        self.now_s = max(self.now_s, now_s)
        number = rank if speaker is None else speaker
        if self.copies.pop(number, None) is not None or self.over:
            return []
        if number in self.leaving:
            self.leaving.discard(number)
            return self._introduce()
        if (told := self.joining.lost(rank, number, silent)) is not None:
            return told
        if self.speakers.get(rank, self._stranger(number)) != number:
            return []
        if silent and rank in self.hellos:
            self.silent.add(self.hellos[rank].host)
        if self.replaced and not self.seats:
            return self._replace(rank)
        reason = self._gone(rank)
        if silent:
            reason = f"{self._named(rank)} is silent: its host or the network to it is down"
        if self.recover:
            orders = self._lose(rank, reason)
            if silent:
                self.recovery.given_up(rank)
            return orders
        if silent or self.phase != STARTING:
            return self.fail(reason)
        if self.suspicion is None:
            self.suspicion = now_s + _SPARK_SAYS_WHY_S, reason
        return []

    def _gone(self, rank: int) -> str:
        return (
            f"{self._named(rank)} is gone: killed (kill -9, out of memory, a crash in native"
            " code), or its host is"
        )

    def _lose(self, rank: int | None, reason: str, traceback: str = "") -> list[Order]:
        """Go on without a worker, or with all of them but from where they were, if that may be."""
        recovery, was_introduced = self.recovery, self.recovery.introduced
        number = self.speakers.get(rank, -1) if rank is not None else None
        if not recovery.lost(self.now_s, rank, number, reason, [*self.speakers.values()]):
            return self.fail(f"{reason}; {recovery.restarts.used_up}", traceback)
        self._set_back()
        orders = self.joining.set_back()
        if rank is not None:
            orders += self._replace(rank)
        if was_introduced:
            told = RollBack(self.attempt)
            orders = [*((one, told) for one in sorted(self.hellos)), *orders]
        return [*orders, *self._introduce()]

    def _set_back(self) -> None:
        """Nothing that was said in this attempt counts any more."""
        if self.phase in (RUNNING, DRAINING):
            self.recovery.drains |= self.phase == DRAINING
            self.phase = RECOVERING
        self.met.clear()
        self.ways.clear()
        self.doubt = None
        if self.changing is not None:
            self.changing.set_back(self.now_s)
        if self.epochs is not None:
            self.epochs.halt()

    def relaunch(
        self, reason: str, traceback: str = "", launch: int | None = None, lost: bool = False
    ) -> list[Order]:
        """Spark has ended the tasks. If it may, the job goes on with others: see `launch`.

        That those of a launch of before have ended is no news. `lost`: Spark has lost a process,
        so before the job has ever run another try may help.
        """
        if self.over or launch not in (None, self.launch):
            return []
        recovery = self.recovery
        if not self.recover or not (recovery.may_launch or lost):
            return self.fail(reason, traceback)
        if not recovery.relaunched(self.now_s, reason):
            return self.fail(f"{reason}; {recovery.restarts.used_up}", traceback)
        self._set_back()
        self.leaving |= {*self.speakers.values(), *self.copies}
        for known in (self.hellos, self.speakers, self.copies):
            known.clear()
        self.joining.relaunched()
        return [(ALL, Stop(drain=False))]

    @property
    def launch(self) -> int:
        """How often Spark was asked for the workers, beyond the first time."""
        return self.recovery.launch

    @property
    def abandoned(self) -> bool:
        """Whether it takes Spark to bring back a worker that was lost: see `relaunch`."""
        return self.phase == RECOVERING and self.recovery.abandoned(self.now_s)

    def _replace(self, rank: int) -> list[Order]:
        """Nobody has heard of the lost one yet: another task of its rank takes its place."""
        self.speakers.pop(rank, None)
        self.hellos.pop(rank, None)
        for number, hello in self.copies.items():
            if hello.rank == rank:
                del self.copies[number]
                return self._welcome(hello, number)
        return []

    def tick(self, now_s: float) -> list[Order]:
        """Time passes; to be called several times a second."""
        self.now_s = now_s
        if self.suspicion is not None and now_s >= self.suspicion[0]:
            return self.fail(self.suspicion[1])
        if self.doubt is not None and now_s >= self.doubt[0]:
            if self.recover and self.recovery.ran:
                return self._lose(None, self.doubt[1])
            return self.fail(self.doubt[1])
        orders = [*(self._introduce() if self.recover else []), *self.joining.look()]
        orders += self.look_at_change()
        if self.epochs is not None and not self.over:
            orders += self._act(self.epochs.tick(now_s))
        return orders

    @property
    def due_s(self) -> float | None:
        """When to tick at the latest; None: now and then."""
        waits = self.recover and not self.over and len(self.hellos) == self.workers
        if waits and not self.recovery.introduced:
            return self.recovery.resume_s
        return None if self.epochs is None or self.over else self.epochs.due_s

    def fail(self, reason: str, traceback: str = "") -> list[Order]:
        """The job cannot go on. The first reason counts."""
        if self.over:
            return []
        if self.suspicion is not None and self.suspicion[1] != reason:
            reason = f"{reason}; before that, {self.suspicion[1]}"
        self.phase, self.reason, self.traceback = FAILED, reason, traceback
        return [(ALL, self._stop())]

    def stop(self, drain: bool) -> list[Order]:
        """The user wants it to end."""
        if self.over:
            return []
        drain = drain and self.phase != STARTING  # before the start there is nothing to drain
        if drain and self.epochs is not None:
            self.epochs.stop()
        if drain and self.phase == RECOVERING:
            self.recovery.drains = True  # when it is back where it was
            return []
        if drain and self.epochs is not None:
            self.phase = DRAINING
            return self._act(self.epochs.tick(self.now_s))
        self.phase = DRAINING if drain else STOPPED
        return [(ALL, Stop(drain))]

    def _stop(self) -> Stop:
        return Stop(drain=False, error=f"{self.reason}\n\n{self.traceback}".strip())

    def _named(self, rank: int) -> str:
        return named(self.hellos[rank]) if rank in self.hellos else f"worker {rank}"


def message_rank(message: Message) -> int:
    """Who says it; only workers' messages have a rank."""
    rank: int = getattr(message, "rank", -1)
    return rank
