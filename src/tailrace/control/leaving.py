"""Workers that leave a running job; pure, beside `joining`, which says when.

Nothing runs in them any more. First they count no more, then the others close their ways to them,
and when all have, they end. So their end is nobody's loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.control.orders import Line, Order
from tailrace.control.progress.adding import added
from tailrace.control.protocol import Leave, Members, Progress
from tailrace.control.seating import fewer_places

if TYPE_CHECKING:
    from tailrace.control.roster import Roster


@dataclass
class Departure:
    """Workers on their way out."""

    number: int
    workers: int
    """How many are to stay."""
    until_s: float
    """It begins until then, or not at all."""
    begun: bool = False
    waiting: set[int] = field(default_factory=set)
    """Those that stay and may still have ways to those that go."""
    lines: dict[int, int] = field(default_factory=dict)
    """The ranks of those that are still there, by the numbers of their connections."""
    reports: dict[int, Progress] = field(default_factory=dict)
    """What they have last told, by rank."""

    def may_begin(self, roster: Roster) -> bool:
        """Whether the job runs, and no epoch is in progress, which has a part of theirs.

        Nor may the last one that counts: who goes back to it needs them.
        """
        resting = roster.epochs is None or roster.epochs.resting
        changing = roster.changing
        if changing is not None and changing.kept.seated(roster.seats).places > self.workers:
            return False
        return resting and roster.phase == "running"

    def begin(self, roster: Roster, round_: int) -> list[Order]:
        """From now on they do not count, and the others close their ways to them."""
        stay = self.workers
        self.begun = True
        self.waiting = set(range(stay))
        for rank in range(stay, roster.workers):
            self.lines[roster.speakers.pop(rank)] = rank
            if (report := roster.progress.pop(rank, None)) is not None:
                self.reports[rank] = report
            for known in (roster.hellos, roster.ways, roster.earlier):
                known.pop(rank, None)
            for ways in roster.ways.values():
                ways.pop(rank, None)
        roster.met = {rank for rank in roster.met if rank < stay}
        roster.seats, roster.wanted = fewer_places(roster.seats, roster.wanted, stay)
        roster.count(stay)
        members = Members(round_, stay)
        return [*((rank, members) for rank in range(stay)), *roster.end_if_all_have()]

    def let_go(self, rank: int | None = None) -> list[Order]:
        """One that stays has closed its ways to them; None: nobody has any. Then they may end."""
        self.waiting = set() if rank is None else self.waiting - {rank}
        return [] if self.waiting else [(Line(number), Leave()) for number in self.lines]

    def lost(self, roster: Roster, number: int) -> bool:
        """One of them has ended; whether all have."""
        del self.lines[number]
        if self.lines:
            return False
        for report in self.reports.values():
            if report.attempt == roster.attempt:  # else it has been undone
                roster.departed = added(roster.departed, report)
        return True
