"""What the coordinator knows and decides, without I/O: messages and losses in, orders out.

An order is an addressee, a rank or all, and a message. Whoever carries orders out keeps the
connections; a roster knows them by the numbers that it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tailrace.control.protocol import (
    SILENCE_S,
    VERSION,
    Failed,
    Go,
    Hello,
    Message,
    Met,
    Open,
    Peers,
    Progress,
    Ready,
    Stop,
    Suspects,
)
from tailrace.control.seating import SeatingError, home, seat

STARTING, RUNNING, DRAINING, STOPPED, FAILED = (
    "starting",
    "running",
    "draining",
    "stopped",
    "failed",
)

ALL = None
"""The addressee of what everybody is told, copies of workers included."""
Order = tuple[int | None, Message]
"""Whom to tell what: a rank, or ALL."""
Decision = Callable[[], list[Order]]

_SPARK_SAYS_WHY_S = 3.0
"""How long a worker that was lost at the start waits for Spark's account of it."""
_FINDING_S = SILENCE_S + 1.0
"""How long a worker that has lost another may wait for us to find out what became of that one."""


@dataclass
class Roster:
    """The state of a job, as the coordinator knows it. Times are of any clock, in seconds."""

    workers: int
    wanted: tuple[int, ...] = ()
    """The node of each place of the plan; without a plan workers may be anywhere."""
    node: str = "memory"
    """What counts as one node, see `Topology.start`."""
    replaced: bool = False
    """Whether Spark starts a task that was lost anew, and maybe copies of slow ones."""
    seats: tuple[int, ...] = ()
    """The rank of each place, when all workers have met."""
    phase: str = STARTING
    reason: str = ""
    traceback: str = ""
    hellos: dict[int, Hello] = field(default_factory=dict)
    speakers: dict[int, int] = field(default_factory=dict)
    """By rank, the number of the connection that is the worker; others are copies."""
    copies: dict[int, Hello] = field(default_factory=dict)
    """By the number of their connection, workers of a rank that has one already."""
    met: set[int] = field(default_factory=set)
    """Those that have reached all others."""
    ways: dict[int, dict[int, str]] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    earlier: dict[int, Progress] = field(default_factory=dict)
    """The reports before those."""
    reports: int = 0
    """How many have come."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Connections that the coordinator has refused, by reason."""
    suspicion: tuple[float, str] | None = None
    """What the job will have failed of by some time, if nobody knows better until then."""
    doubt: tuple[float, str] | None = None
    """The same for a worker that says it has lost another."""
    silent: set[str] = field(default_factory=set)
    """Hosts that went silent."""
    now_s: float = 0.0
    """When it last ticked."""

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
        if isinstance(message, Hello):
            return self._welcome(message, number)
        if self.speakers.get(message_rank(message), number) != number:
            return []
        match message:
            case Met():
                self.met.add(message.rank)
                if len(self.met) == self.workers:
                    return [(rank, Open()) for rank in range(self.workers)]
            case Ready():
                self.ways[message.rank] = message.ways
                if len(self.ways) == self.workers and self.phase == STARTING:
                    self.phase = RUNNING
                    return [(ALL, Go())]
            case Progress():
                if message.rank in self.progress:
                    self.earlier[message.rank] = self.progress[message.rank]
                self.progress[message.rank] = message
                self.reports += 1
                if not message.ended or self.over:
                    return []  # a thousand workers report: only an end is worth a look at all
                if sum(progress.ended for progress in self.progress.values()) == self.workers:
                    self.phase = STOPPED
                    return [(ALL, Stop(drain=False))]
            case Suspects():
                if self.doubt is None:
                    text = (
                        f"{self._named(message.rank)} has lost {self._named(message.peer)},"
                        f" which still answers the driver: {message.reason}."
                        " Can their hosts reach each other?"
                    )
                    self.doubt = self.now_s + _FINDING_S, text
            case Failed():
                return self.fail(message.reason, message.traceback)
        return []

    def _welcome(self, hello: Hello, number: int) -> list[Order]:
        if hello.rank in self.speakers:
            if self.speakers[hello.rank] != number:
                self.copies[number] = hello
            return []
        self.speakers[hello.rank] = number
        if self.over:  # a task that Spark has started too late
            return [(hello.rank, self._stop())]
        self.hellos[hello.rank] = hello
        if hello.version != VERSION:
            return self.fail(
                f"{self._named(hello.rank)} runs {hello.version}; the driver runs {VERSION}."
                " Install the same on all executors, or let tailrace.ship(spark) bring it there"
            )
        if len(self.hellos) < self.workers:
            return []
        hellos = tuple(self.hellos[rank] for rank in range(self.workers))
        try:
            if self.wanted:
                self.seats = seat(self.wanted, [home(hello, self.node) for hello in hellos])
            else:
                self.seats = tuple(range(self.workers))
        except SeatingError as error:
            return self.fail(str(error))
        peers = Peers(hellos, self.seats)
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
        number = rank if speaker is None else speaker
        if self.copies.pop(number, None) is not None or self.over:
            return []
        if self.speakers.get(rank, number) != number:
            return []
        if silent and rank in self.hellos:
            self.silent.add(self.hellos[rank].host)
        if self.replaced and not self.seats:
            return self._replace(rank)
        if silent:
            return self.fail(
                f"{self._named(rank)} is silent: its host or the network to it is down"
            )
        reason = (
            f"{self._named(rank)} is gone: killed (kill -9, out of memory, a crash in native"
            " code), or its host is"
        )
        if self.phase != STARTING:
            return self.fail(reason)
        if self.suspicion is None:
            self.suspicion = now_s + _SPARK_SAYS_WHY_S, reason
        return []

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
        for due in (self.suspicion, self.doubt):
            if due is not None and now_s >= due[0]:
                return self.fail(due[1])
        return []

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
        self.phase = DRAINING if drain else STOPPED
        return [(ALL, Stop(drain))]

    def _stop(self) -> Stop:
        return Stop(drain=False, error=f"{self.reason}\n\n{self.traceback}".strip())

    def _named(self, rank: int) -> str:
        hello = self.hellos.get(rank)
        return f"worker {rank} (pid {hello.pid} on {hello.host})" if hello else f"worker {rank}"


def message_rank(message: Message) -> int:
    """Who says it; only workers' messages have a rank."""
    rank: int = getattr(message, "rank", -1)
    return rank
