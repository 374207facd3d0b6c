"""A change of a running job, as whoever asked for it sees it."""

from __future__ import annotations

import time

from tailrace.control.changing import DONE, FAILED, UNDONE, Progressing
from tailrace.control.coordinator import Coordinator

_LOOK_S = 0.002


class ChangeError(RuntimeError):
    """The job is as it was before, and goes on; the message says why."""


class Change:
    """A change that was asked for; it goes on by itself, and the stream meanwhile, too.

    First all workers prepare it, then it moves what is to move. What it was asked for holds for
    good once the job has made a checkpoint after it, which it does at once: if a worker is lost
    before that, the job goes back to what it was, and the change is "undone".
    """

    def __init__(self, coordinator: Coordinator, number: int, moves: str) -> None:
        self.number = number
        """Counts the changes of a job."""
        self.moves = moves
        """What it moves, in words."""
        self._coordinator = coordinator

    @property
    def _known(self) -> Progressing:
        changing = self._coordinator.roster.changing
        known = changing.known(self.number) if changing is not None else None
        if known is None:
            raise LookupError(f"change {self.number} is too long ago: nobody knows of it any more")
        return known

    @property
    def status(self) -> str:
        """One of "preparing", "moving", "done", "failed", "undone"."""
        return self._known.status

    @property
    def error(self) -> str:
        """Why it failed or was undone; empty: it has not."""
        return self._known.error

    @property
    def moved_keys(self) -> int:
        """How many keys have gone to another owner, when it is done."""
        return self._known.moved_keys

    @property
    def took_s(self) -> float:
        """From when it was asked for to its end, or until now."""
        known = self._known
        return (known.ended_s or time.monotonic()) - known.asked_s

    @property
    def moved_s(self) -> float:
        """For how long state moved; without what it took to prepare that."""
        known = self._known
        return (known.ended_s or time.monotonic()) - known.prepared_s if known.prepared_s else 0.0

    def await_done(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False when the time is over first. Raises ChangeError if it failed."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (status := self.status) not in (DONE, FAILED, UNDONE):
            if self._coordinator.roster.over:
                raise ChangeError(f"the job has ended while change {self.number} was {status}")
            if until_s is not None and time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)
        if status != DONE:
            raise ChangeError(f"change {self.number} has {status}: {self.error}")
        return True

    def __repr__(self) -> str:
        return f"<change {self.number}, {self.status}: {self.moves}>"
