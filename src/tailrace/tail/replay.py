"""Which runs are sent again: late ones, selectively; or a share of all at once, to compare with.

A policy is asked by the source of the runs (`runtime/replaying.py`), which has the mechanism.
"""

from __future__ import annotations

from tailrace.tail.timeout import AdaptiveTimeout

BUDGET = 0.05
"""The share of runs that are sent again at most."""
MOST_RECORDS = 64
"""Batches of more are not tracked: they come under load, and what is late then is late anyway."""
_SAVED = 32
"""So many replays may come at once, if there were few before."""
_BUSIEST = 0.8
"""Workers that are busy for more of the time than this send nothing again."""


class SelectiveReplay:
    """Adaptive timeout with selective replay: what is late is sent again, once.

    Never more than `BUDGET` of all runs. Not by a worker that is busy nearly all the time: there
    is a queue everywhere then, and another copy makes it longer.
    """

    most_records = MOST_RECORDS

    def __init__(self, timeout: AdaptiveTimeout | None = None, budget: float = BUDGET) -> None:
        self._timeout = AdaptiveTimeout(budget) if timeout is None else timeout
        self._budget = budget
        self._tokens = 0.0
        self.refused_for_budget = self.refused_for_load = 0

    def begun(self) -> bool:
        """Nothing is sent twice at once."""
        self._tokens = min(self._tokens + self._budget, _SAVED)
        return False

    def note(self, took_ns: int) -> None:
        """The original of a run took that long."""
        self._timeout.note(took_ns)

    def tried(self, saved_ns: int) -> None:
        """A copy was that much faster than its original, or 0."""
        self._timeout.tried(saved_ns)

    def timeout_ns(self, now_ns: int) -> int | None:
        """How old a run may get."""
        return self._timeout.look(now_ns)

    def allow(self, busy: float) -> bool:
        """Whether a late run is sent again."""
        if busy > _BUSIEST:
            self.refused_for_load += 1
            return False
        if self._tokens < 1:
            self.refused_for_budget += 1
            return False
        self._tokens -= 1
        return True


class Replication:
    """A share of all runs is sent twice at once, evenly spread; table 5.2's other column."""

    most_records = MOST_RECORDS

    def __init__(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a share of {share} is to be sent twice; it must be above 0, up to 1")
        self._share = share
        self._owed = 0.0

    def begun(self) -> bool:
        """Whether this one is sent twice."""
        self._owed += self._share
        if self._owed < 1:
            return False
        self._owed -= 1
        return True

    def note(self, took_ns: int) -> None:
        """It does not matter."""

    def tried(self, saved_ns: int) -> None:
        """Nor does that."""

    def timeout_ns(self, now_ns: int) -> int | None:
        """Nothing is ever late."""
        return None

    def allow(self, busy: float) -> bool:
        """Nothing is ever late."""
        return False


class Tracking(SelectiveReplay):
    """Follows all that is emitted and sends nothing again: what following costs."""

    most_records = 1 << 30

    def allow(self, busy: float) -> bool:
        """Nothing is sent again."""
        return False


def replay_named(name: str) -> SelectiveReplay | Replication | None:
    """The policy of a name: "off", "replay"; and, to compare with, "replicate 20%" and "track".

    >>> replay_named("off")
    >>> type(replay_named("replay")).__name__, type(replay_named("replicate 50%")).__name__
    ('SelectiveReplay', 'Replication')
    """
    if name == "off":
        return None
    if name == "replay":
        return SelectiveReplay()
    if name == "track":
        return Tracking()
    word, _, share = name.partition(" ")
    if word == "replicate" and share.endswith("%") and share[:-1].isdigit():
        return Replication(int(share[:-1]) / 100)
    raise ValueError(f'tail is {name!r}; it must be "off" or "replay"')
