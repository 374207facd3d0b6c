"""Workers that join a job while it runs, and that leave it; pure, as the roster it belongs to.

Nothing stops for either. Who joins has a rank behind the last, and is no worker yet: first it and
all that run open ways to each other, then it builds a core in which nothing runs, and only when
that stands the roster counts it. What goes wrong with one that is about to join costs nothing but
that. A worker in which nothing runs may leave, the highest rank first: see `leaving`.

When the job goes back to an epoch meanwhile, those that join wait, and begin to meet anew once it
runs. Rounds tell what is said of one meeting from what was said of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.control.leaving import Departure
from tailrace.control.orders import Line, Order
from tailrace.control.protocol import (
    SILENCE_S,
    VERSION,
    Failed,
    Go,
    Hello,
    Joined,
    Members,
    Message,
    Open,
    Peers,
    Progress,
    Reached,
    Ready,
    RollBack,
    SetTail,
    Stop,
    Suspects,
)
from tailrace.control.seating import follows, more_places, named
from tailrace.transport.peer import MOST_WORKERS

if TYPE_CHECKING:
    from tailrace.control.roster import Roster

_FINDING_S = SILENCE_S + 1.0
"""How long it may take until it is known what became of who cannot be reached."""
_MOST_OUTCOMES = 16


class ScaleError(RuntimeError):
    """The number of workers stays as it was; the message says why. The job goes on."""


@dataclass
class Growth:
    """Workers on their way into the job."""

    number: int
    ranks: range
    since_s: float
    until_s: float
    hellos: dict[int, Hello] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)
    """The numbers of their connections, by rank."""
    told: bool = False
    """Whether the workers of the job have ever heard of them,"""
    introduced: bool = False
    """whether all know of each other now,"""
    reached: dict[int, dict[int, str]] = field(default_factory=dict)
    """who of all has open ways to the others, and which,"""
    opened: bool = False
    """whether those that join may build their cores,"""
    ready: dict[int, dict[int, str]] = field(default_factory=dict)
    """and which of them have."""
    doubt: tuple[float, str] | None = None
    """What it will have failed of by some time, if nobody knows better until then."""


class Joining:
    """See above. One change of the number of workers at a time."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.number = 0
        """Counts the changes, and so the stages that Spark is asked for."""
        self.round = 0
        self.growth: Growth | None = None
        self.departure: Departure | None = None
        self._outcomes: dict[int, str] = {}
        self._stage_of: dict[int, int] = {}  # by rank, where it is not the first

    # ---- what is wanted ----

    def grow(self, more: int, within_s: float) -> int:
        """Expect so many more workers, of the stage whose number is returned. See `outcome`."""
        self._check()
        roster = self._roster
        if more < 1:
            raise ValueError(f"{more} more workers were asked for; it must be at least 1")
        if roster.workers + more >= MOST_WORKERS:
            raise ValueError(f"{roster.workers + more} workers; there can be {MOST_WORKERS - 1}")
        ranks = range(roster.workers, roster.workers + more)
        now_s = roster.now_s
        self.number += 1
        self.growth = Growth(self.number, ranks, now_s, now_s + within_s)
        return self.number

    def shrink(self, fewer: int, within_s: float) -> int:
        """Let the last workers go, in which nothing runs; the number to ask `outcome` for."""
        self._check()
        roster = self._roster
        if not 1 <= fewer < roster.workers:
            raise ValueError(f"{fewer} workers cannot leave: there are {roster.workers}")
        self.number += 1
        workers, until_s = roster.workers - fewer, roster.now_s + within_s
        self.departure = Departure(self.number, workers, until_s)
        return self.number

    def outcome(self, number: int) -> str | None:
        """What became of a change: empty if it is done, else why it is not; None: not yet known."""
        return self._outcomes.get(number)

    def _check(self) -> None:
        phase = self._roster.phase
        if phase not in ("running", "recovering") or self._roster.recovery.drains:
            raise ScaleError(f"the job is {phase}; workers come and go only while it runs")
        if self.growth is not None or self.departure is not None:
            raise ScaleError("the number of workers is being changed already; wait for that")
        changing = self._roster.changing
        if changing is not None and changing.current is not None:
            raise ScaleError(f"change {changing.current.number} is in progress; wait for that")

    def _end(self, number: int, error: str) -> None:
        self._outcomes[number] = error
        while len(self._outcomes) > _MOST_OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]

    # ---- what happens ----

    def hear(self, message: Message, number: int) -> list[Order] | None:
        """Somebody said something; None: that is not about joining or leaving."""
        growth, departure = self.growth, self.departure
        if isinstance(message, Hello):
            return self._welcome(message, number)
        if isinstance(message, Reached):
            return self._reached(message, number)
        if growth is not None and number in growth.lines.values():
            return self._hear_joining(growth, message)
        if departure is not None and number in departure.lines:
            if isinstance(message, Progress):
                departure.reports[message.rank] = message
            return []
        return None

    def _welcome(self, hello: Hello, number: int) -> list[Order] | None:
        roster, growth, rank = self._roster, self.growth, hello.rank
        if rank < roster.workers and hello.stage == self._stage_of.get(rank, 0):
            return None
        wanted = growth is not None and hello.stage == growth.number and rank in growth.ranks
        if growth is None or not wanted or hello.launch != roster.launch or roster.over:
            return [(Line(number), Stop(drain=False))]
        if hello.version != VERSION:
            return self.give_up(f"{named(hello)} runs {hello.version}; the driver runs {VERSION}")
        orders: list[Order] = []
        known = growth.hellos.get(rank)
        if known is not None:
            if not follows(known, hello):
                roster.copies[number] = hello
                return []
            orders += self._regather(growth)
        growth.hellos[rank], growth.lines[rank] = hello, number
        return [*orders, *self.look()]

    def _hear_joining(self, growth: Growth, message: Message) -> list[Order]:
        match message:
            case Ready() if growth.opened and message.attempt == self._roster.attempt:
                growth.ready[message.rank] = message.ways
                return self.look()
            case Failed():
                return self.give_up(f"worker {message.rank} cannot join: {message.reason}")
            case Suspects():
                told = f"{named(growth.hellos[message.rank])} cannot reach worker {message.peer}"
                self._doubt(growth, f"{told}: {message.reason}")
        return []

    def _reached(self, message: Reached, number: int) -> list[Order]:
        roster, growth, departure, rank = self._roster, self.growth, self.departure, message.rank
        known = roster.speakers if rank < roster.workers else growth.lines if growth else {}
        old = message.round != self.round or message.attempt != roster.attempt
        if known.get(rank) != number or old:
            return []
        if growth is not None and growth.introduced and message.trouble:
            self._doubt(growth, f"worker {rank} cannot reach who joins: {message.trouble}")
        elif growth is not None and growth.introduced:
            growth.reached[rank] = message.ways
            if len(growth.reached) == growth.ranks.stop and not growth.opened:
                growth.opened = True
                return [(Line(line), Open()) for line in growth.lines.values()]
        elif departure is not None and departure.begun:
            return departure.let_go(rank)
        return []

    def _doubt(self, growth: Growth, text: str) -> None:
        if growth.doubt is None:
            growth.doubt = self._roster.now_s + _FINDING_S, text

    def lost(self, rank: int, number: int, silent: bool = False) -> list[Order] | None:
        """A connection is gone; None: that is not about joining or leaving."""
        roster, growth, departure = self._roster, self.growth, self.departure
        if growth is not None and growth.lines.get(rank) == number:
            del growth.lines[rank]
            hello = growth.hellos.pop(rank)
            for copy, other in roster.copies.items():
                if other.rank == rank and other.stage == growth.number:
                    del roster.copies[copy]
                    return [*self._regather(growth), *(self._welcome(other, copy) or [])]
            if silent:
                return self.give_up(f"the host of {named(hello)} is silent, or the way to it is")
            if hello.supervisor or roster.replaced:  # another one will come in its place
                return self._regather(growth)
            return self.give_up(f"{named(hello)} is gone: it was killed before it had joined")
        if departure is not None and number in departure.lines:
            if departure.lost(roster, number):
                self.departure = None
                self._end(departure.number, "")
            return []
        return [] if rank >= roster.workers else None

    def set_back(self) -> list[Order]:
        """The job goes back to an epoch: what joins waits, what leaves need not wait any more."""
        orders: list[Order] = []
        if self.growth is not None:
            orders += self._regather(self.growth)
        if self.departure is not None and self.departure.begun:
            orders += self.departure.let_go()
        return orders

    def relaunched(self) -> None:
        """All workers are told to end, and Spark is asked for as many in one stage."""
        growth, self.growth = self.growth, None
        self._stage_of.clear()
        if growth is not None:
            self._roster.leaving.update(growth.lines.values())
            told = "Spark had to start the workers of the job anew meanwhile; ask again"
            self._end(growth.number, told)

    def stage_ended(self, stage: int, launch: int, reason: str, traceback: str) -> list[Order]:
        """Spark has ended a further stage: who was to join will not, who had joined is lost."""
        roster = self._roster
        if roster.over or launch != roster.launch:
            return []
        if self.growth is not None and self.growth.number == stage:
            return self.give_up(reason)
        return roster.relaunch(reason, traceback) if stage in self._stage_of.values() else []

    # ---- what follows ----

    def look(self) -> list[Order]:
        """Go on, as far as it goes by now."""
        orders: list[Order] = []
        if self.growth is not None:
            orders += self._look_at(self.growth)
        if self.departure is not None and not self.departure.begun:
            orders += self._look_at_departure(self.departure)
        return orders

    @property
    def _ends(self) -> str:
        """Why nobody joins or leaves any more; empty: they may."""
        roster = self._roster
        if roster.over:
            return "the job has ended"
        ends = roster.phase == "draining" or roster.recovery.drains
        return "the job is ending" if ends else ""

    def _look_at(self, growth: Growth) -> list[Order]:
        roster = self._roster
        if self._ends:
            return self.give_up(self._ends)
        if growth.doubt is not None and roster.now_s >= growth.doubt[0]:
            return self.give_up(growth.doubt[1])
        if roster.now_s >= growth.until_s:
            return self.give_up(self._too_late(growth))
        if roster.phase != "running":
            return []
        if not growth.introduced and len(growth.hellos) == len(growth.ranks):
            return self._introduce(growth)
        ending = roster.epochs is not None and roster.epochs.ending
        if growth.introduced and len(growth.ready) == len(growth.ranks) and not ending:
            return self._admit(growth)
        return []

    def _introduce(self, growth: Growth) -> list[Order]:
        """Let those that join and those that run know of each other."""
        roster = self._roster
        self.round += 1
        growth.introduced = growth.told = True
        joining = tuple(growth.hellos[rank] for rank in growth.ranks)
        running = range(roster.workers)
        hellos = (*(roster.hellos[rank] for rank in running), *joining)
        seats, _ = more_places(roster.seats, roster.wanted, hellos, growth.ranks, roster.node)
        # Nothing runs in them, so they need nothing of the epoch but its number.
        layout = None if roster.changing is None else roster.changing.layout
        peers = Peers(hellos, seats, roster.attempt, roster.epoch, layout=layout)
        orders: list[Order] = []
        for line in growth.lines.values():
            orders += [(Line(line), peers), (Line(line), Joined(self.round, ()))]
        return [*((rank, Joined(self.round, joining)) for rank in running), *orders]

    def _admit(self, growth: Growth) -> list[Order]:
        """All ways are open, the new cores stand: from now on they are workers as the others."""
        roster, self.growth = self._roster, None
        roster.hellos.update(growth.hellos)
        roster.speakers.update(growth.lines)
        for rank, ways in growth.reached.items():
            roster.ways[rank] = {**roster.ways.get(rank, {}), **ways}
        roster.ways.update(growth.ready)
        roster.met.update(growth.ranks)
        hellos = tuple(roster.hellos[rank] for rank in range(growth.ranks.stop))
        roster.seats, roster.wanted = more_places(
            roster.seats, roster.wanted, hellos, growth.ranks, roster.node
        )
        self._stage_of.update(dict.fromkeys(growth.ranks, growth.number))
        roster.count(growth.ranks.stop)
        self._end(growth.number, "")
        members = Members(self.round, roster.workers)
        return [
            *((rank, members) for rank in range(roster.workers)),
            *((rank, Go()) for rank in growth.ranks),
            *((rank, SetTail(roster.tails)) for rank in growth.ranks if roster.tails),
        ]

    def _regather(self, growth: Growth) -> list[Order]:
        """Those that join begin to meet anew, when all are there and the job runs."""
        told = RollBack(self._roster.attempt)
        orders: list[Order] = [(Line(line), told) for line in growth.lines.values()]
        orders = orders if growth.introduced else []
        growth.introduced = growth.opened = False
        growth.reached.clear()
        growth.ready.clear()
        growth.doubt = None
        return orders

    def give_up(self, reason: str) -> list[Order]:
        """Nobody joins, and the job goes on as it was."""
        roster, growth, self.growth = self._roster, self.growth, None
        assert growth is not None
        self._end(growth.number, reason)
        self.round += 1
        numbers = [*growth.lines.values()]
        for number, hello in list(roster.copies.items()):
            if hello.stage == growth.number:
                del roster.copies[number]
                numbers.append(number)
        orders: list[Order] = [(Line(number), Stop(drain=False)) for number in numbers]
        nobody = Joined(self.round, ())
        told = sorted(roster.hellos) if growth.told and not roster.over else []
        return [*((rank, nobody) for rank in told), *orders]

    def _too_late(self, growth: Growth) -> str:
        roster, seconds = self._roster, growth.until_s - growth.since_s
        missing = [rank for rank in growth.ranks if rank not in growth.hellos]
        if missing:
            return (
                f"{len(missing)} of {len(growth.ranks)} workers have not started within"
                f" {seconds:g} s: other jobs may hold Spark's task slots"
            )
        if roster.phase != "running":
            return f"the job was {roster.phase} for too long: {seconds:g} s are over"
        late = [rank for rank in range(growth.ranks.stop) if rank not in growth.reached]
        late = late or [rank for rank in growth.ranks if rank not in growth.ready]
        return (
            f"workers {late} have not come so far within {seconds:g} s; one whose operator holds"
            " it up for long meets nobody meanwhile"
        )

    def _look_at_departure(self, departure: Departure) -> list[Order]:
        roster = self._roster
        reason = self._ends
        if not reason and roster.now_s >= departure.until_s:
            reason = f"the job was {roster.phase}, or an epoch in progress, for too long"
        changing = roster.changing
        uses = changing.layout.seated(roster.seats).places if changing and roster.seats else 0
        if uses > departure.workers:
            reason = reason or "the job has gone back to when something ran in them; ask again"
        if reason:
            self.departure = None
            self._end(departure.number, reason)
            return []
        if not departure.may_begin(roster):
            return []
        self.round += 1
        for rank in range(departure.workers, roster.workers):
            self._stage_of.pop(rank, None)
        return departure.begin(roster, self.round)
