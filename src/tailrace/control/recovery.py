"""Where a job stands between losing a worker and running again; pure, as the roster it belongs to.

An attempt is one life of the job between two failures. It begins by gathering: the workers that
are left have been told to stop, those that were lost are replaced. When all are there, and a pause
that may be due is over, they are introduced to each other, go back to the last epoch, and run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.control.budget import STANDARD, Budget, Restarts

MISSING_S = 5.0
"""Who is to come back where it was has so long; then Spark is asked to start all workers anew."""


@dataclass
class Recovery:
    """See above. Workers are known by the numbers of their connections."""

    enabled: bool = False
    """Without, the first loss is the end."""
    budget: Budget = STANDARD
    attempt: int = 0
    launch: int = 0
    """How often Spark was asked for the workers, beyond the first time."""
    introduced: bool = False
    """Whether the workers of this attempt know of each other."""
    ran: bool = False
    """Whether the job has ever run: before, what goes wrong is mostly wrong for good."""
    drains: bool = False
    """Whether the user wants it to end as soon as it runs again."""
    resume_s: float = 0.0
    """From when on the workers may be introduced."""
    restarts: Restarts = field(init=False)
    _present: frozenset[int] = frozenset()  # the workers when this recovery began
    _may_launch: bool = False  # at no further cost
    _missing_since_s: dict[int, float] = field(default_factory=dict)  # by rank

    def __post_init__(self) -> None:
        self.restarts = Restarts(self.budget)

    def lost(
        self, now_s: float, rank: int | None, number: int | None, what: str, speakers: list[int]
    ) -> bool:
        """Begin anew, without the worker of that number if it is one; False: no restart is left.

        What falls while the workers gather, and was there when that began, falls with the first:
        an executor that is killed takes all of its workers along, and that is one restart.
        """
        self.restarts.note(now_s, what)
        gathering = self.ran and not self.introduced
        if not (gathering and number in self._present):
            until_s = self.restarts.another(now_s)
            if until_s is None:
                return False
            self.resume_s = until_s
            self._present = frozenset(speakers)
            self._may_launch = True
        if rank is not None:
            self._missing_since_s[rank] = now_s
        if self.introduced:
            self.attempt += 1
            self.introduced = False
        return True

    def relaunched(self, now_s: float, what: str) -> bool:
        """Spark has ended all tasks, or is about to, and starts others; False: it may not.

        That is what follows from a loss, once: it costs a restart only if it goes on.
        """
        if not self._may_launch or self.introduced:
            if not self.lost(now_s, None, None, what, []):
                return False
        else:
            self.restarts.note(now_s, what)
        self._may_launch = False
        self._present = frozenset()
        self._missing_since_s.clear()
        self.launch += 1
        return True

    @property
    def may_launch(self) -> bool:
        """Whether Spark may be asked anew: the job has run, or a worker was there and is lost.

        What else ends before the job has ever run would end again.
        """
        return self.ran or self._may_launch

    def came(self, rank: int) -> None:
        """A worker is there, for the first time or again."""
        self._missing_since_s.pop(rank, None)

    def running(self, now_s: float) -> None:
        """All workers run."""
        self.ran = True
        self._may_launch = False
        self.restarts.running(now_s)

    def abandoned(self, now_s: float) -> bool:
        """Whether somebody who should have come back has not, so that Spark has to help.

        Workers that Spark was asked for may take as long as it likes to start them.
        """
        missing = self._missing_since_s.values()
        return self.ran and any(now_s - since_s >= MISSING_S for since_s in missing)

    def given_up(self, rank: int) -> None:
        """That one will not come back by itself: do not wait for it."""
        if rank in self._missing_since_s:
            self._missing_since_s[rank] = float("-inf")
