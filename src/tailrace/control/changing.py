"""From one deployment to another, as the coordinator leads it; messages and time in, acts out.

First all workers prepare it, and if one cannot, it is called off and nothing has happened. Then
they switch: with an epoch, if there are checkpoints, so that whoever goes back to that epoch is
under the old deployment as it was. No other epoch begins before all are done. When a worker is lost
meanwhile, or before the next epoch counts, the change is undone with all else that was done since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tailrace.checkpoint.epochs import Epochs
from tailrace.runtime.deployment import Layout

_MOST_OUTCOMES = 64


@dataclass(frozen=True)
class Prepare:
    """Have all workers prepare a change, and say so."""

    number: int
    layout: Layout
    """By places; as it is sent, by ranks."""
    epoch: int = 0
    """The one that it will come with; 0: there are no checkpoints."""
    tables: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    """As it is sent: see `preparing`."""


@dataclass(frozen=True)
class CallOff:
    """A change that some have prepared will not be."""

    number: int


@dataclass(frozen=True)
class Switch:
    """Have all workers go over to what they have prepared; in jobs without checkpoints."""

    number: int


Act = Prepare | CallOff | Switch

PREPARING, MOVING, DONE, FAILED, UNDONE = "preparing", "moving", "done", "failed", "undone"

LOST = "a worker was lost meanwhile, and the job goes back to its last epoch"
"""What a change fails of that may be asked for again."""


Wanted = Callable[[Layout], Layout]
"""What a change makes of the layout that is in force; raises ValueError if it cannot be."""


@dataclass
class Progressing:
    """A change, as far as it is. Times are of any clock, in seconds."""

    number: int
    wanted: Wanted
    asked_s: float
    layout: Layout | None = None
    """What it leads to, by the layout that it was last decided for."""
    status: str = PREPARING
    told: bool = False
    """Whether the workers have heard of it."""
    workers: int = 0
    """How many there are."""
    waiting: set[int] = field(default_factory=set)
    """Workers that have not done what was asked last."""
    prepared_s: float = 0.0
    ended_s: float = 0.0
    moved_keys: int = 0
    error: str = ""
    _decided_for: Layout | None = None

    def decide(self, present: Layout) -> Layout:
        """What it leads to from there."""
        if self.layout is None or self._decided_for is not present:
            self.layout, self._decided_for = self.wanted(present), present
        return self.layout


@dataclass
class Changing:
    """See above. One change at a time."""

    layout: Layout
    """The deployment that workers are under, or will be when the change in progress is done."""
    kept: Layout = field(init=False)
    """The one that the last epoch that counts was cut under."""
    current: Progressing | None = None
    number: int = 0
    """Counts the changes; one that failed, too."""
    done: int = 0
    """The number of the last change that is in force."""
    thought: str = ""
    """What policies have last decided about the job, and why."""
    _before: Layout | None = None  # the change's
    _cut_under: dict[int, Layout] = field(default_factory=dict)  # by epoch
    _known: dict[int, Progressing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = self.layout

    def lately(self) -> list[Progressing]:
        """The last changes, oldest first."""
        return list(self._known.values())

    def known(self, number: int) -> Progressing | None:
        """What is known of a change, also when it is over."""
        return self._known.get(number)

    def ask(self, wanted: Wanted, now_s: float, *, recovers: bool = False) -> int:
        """Have another deployment, as soon as that can begin. Raises while one is in progress.

        What cannot be is refused. While the job `recovers`, it is not known from which layout it
        will go on: then that is found out when it has, and the change fails of it.
        """
        if self.current is not None:
            raise RuntimeError(f"change {self.current.number} is in progress; wait for that")
        asked = Progressing(self.number + 1, wanted, now_s)
        if not recovers:
            asked.decide(self.layout)
        self.number += 1
        self.current = asked
        self._known[self.number] = self.current
        while len(self._known) > _MOST_OUTCOMES:
            del self._known[next(iter(self._known))]
        return self.number

    def look(self, workers: int, epochs: Epochs | None, now_s: float) -> list[Act]:
        """Begin what is wanted, if no epoch is in progress."""
        current = self.current
        if current is None or current.told:
            return []
        if epochs is not None and epochs.ending:
            self._end(FAILED, now_s, "the job is ending", epochs)
            return []
        if epochs is not None and not epochs.resting:
            return []
        try:
            layout = current.decide(self.layout)
        except Exception as error:  # whoever asked knows what it means
            self._end(FAILED, now_s, str(error), epochs)
            return []
        if epochs is not None:
            epochs.paused = True
        current.told, current.workers = True, workers
        current.waiting = set(range(workers))
        epoch = 0 if epochs is None else epochs.committed + 1
        return [Prepare(current.number, layout, epoch)]

    def prepared(
        self, rank: int, number: int, trouble: str, now_s: float, epochs: Epochs | None
    ) -> list[Act]:
        """A worker has what it needs, or says why that cannot be."""
        current = self.current
        if current is None or current.number != number or current.status != PREPARING:
            return []
        current.waiting.discard(rank)
        if trouble:
            self._end(FAILED, now_s, trouble, epochs)
            return [CallOff(number)]
        if current.waiting:
            return []
        current.status, current.prepared_s = MOVING, now_s
        self._before, self.layout = self.layout, current.decide(self.layout)
        current.waiting = set(range(current.workers))
        if epochs is None:
            return [Switch(number)]
        epochs.change(number)
        return []

    def switched(
        self, rank: int, number: int, moved_keys: int, now_s: float, epochs: Epochs | None
    ) -> bool:
        """A worker is where it is to be; whether all are."""
        current = self.current
        if current is None or current.number != number or current.status != MOVING:
            return False
        current.waiting.discard(rank)
        current.moved_keys += moved_keys
        if current.waiting:
            return False
        self._end(DONE, now_s, "", epochs)
        self.done = number
        if epochs is None:
            self.kept = self.layout  # there is nothing to go back to
        return True

    def _end(self, status: str, now_s: float, error: str, epochs: Epochs | None) -> None:
        current, self.current, self._before = self.current, None, None
        assert current is not None
        current.status, current.ended_s, current.error = status, now_s, error
        if epochs is not None:
            epochs.paused = False

    # ---- epochs ----

    def epoch_begins(self, epoch: int) -> None:
        """An epoch is cut under the deployment from before the change that may come with it."""
        self._cut_under[epoch] = self._before or self.layout

    def epoch_counts(self, epoch: int) -> None:
        """Who goes back to it is under the deployment that it was cut under."""
        self.kept = self._cut_under[epoch]
        self._cut_under = {one: kept for one, kept in self._cut_under.items() if one >= epoch}

    def layout_of(self, epoch: int) -> Layout:
        """The deployment that an epoch was cut under."""
        return self._cut_under.get(epoch, self.kept)

    def set_back(self, now_s: float) -> None:
        """The workers will go back to an epoch: a change in progress ends here.

        One that they have not heard of waits until they run again.
        """
        if self.current is not None and self.current.told:
            if self._before is not None:  # who asks again now must not find it done
                self.layout = self._before
            self._end(UNDONE if self.current.status == MOVING else FAILED, now_s, LOST, None)

    def begin(self) -> Layout:
        """The workers begin anew, from the last epoch that counts: under this deployment."""
        for one in self._known.values():
            if one.status == DONE and one.layout is self.layout and self.kept is not self.layout:
                one.status = UNDONE
                one.error = "the job has gone back to an epoch from before it"
        self.layout = self.kept
        self.done = 0  # workers count anew
        return self.kept
