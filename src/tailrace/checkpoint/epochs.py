"""When an epoch begins, when it is whole, and when it counts: the coordinator's part, without I/O.

One epoch at a time: all workers cut it and write what is theirs, then the manifest is written, then
all are told. Where it is interrupted before the manifest is there, it has never been. The next one
begins when all have put in order what is safe now: after many keys have moved that may take longer
than an epoch, and who had to hurry with it would stop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Stage(Enum):
    """How far the newest epoch is."""

    COMMITTED = "committed"
    CUTTING = "cutting"  # workers cut it, encode and write
    WRITING = "writing"  # its manifest is being written


@dataclass(frozen=True)
class Begin:
    """Have all workers cut an epoch. Behind the `last` one sources give nothing any more.

    With the number of a `change`, the deployment is another one behind it.
    """

    epoch: int
    last: bool
    change: int = 0


@dataclass(frozen=True)
class Write:
    """Write the manifest of an epoch, and say so."""

    epoch: int
    parts: tuple[Any, ...]
    """What the workers have said of it, by rank."""
    ended: bool
    """All input had ended, and everything had been processed: there is nothing to go on with."""


@dataclass(frozen=True)
class Commit:
    """Tell all workers that an epoch counts; after the `last` one they end."""

    epoch: int
    last: bool


Act = Begin | Write | Commit


@dataclass
class Epochs:
    """See above. Times are of any clock, in seconds. What it wants done it returns."""

    workers: int
    every_s: float
    committed: int = 0
    """The newest epoch that counts; 0 is the beginning."""
    stage: Stage = Stage.COMMITTED
    running: bool = False
    """Whether the workers run: before that, and while some are lost, nothing begins."""
    over: bool = False
    """Whether the last epoch counts."""
    taking_part: int = 0
    """How many workers the newest epoch has: those that there were when it began."""
    begun: int = 0
    """How many epochs have begun, those that never counted, too,"""
    counted: int = 0
    """and how many had when the newest began that counts."""
    begun_s: float = 0.0
    paused: bool = False
    """Whether none begins, because the deployment changes; but for the one that comes with it."""
    _change: int = 0
    _due_s: float = 0.0
    _asked: int | None = None
    """Somebody wants an epoch now, after so many had begun: also if one that begins is lost."""
    _stopping: bool = False
    _last: bool = False
    _parts: dict[int, tuple[Any, bool]] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)
    """Workers that had nothing left to do when they cut, or said so since."""
    _unsettled: set[int] = field(default_factory=set)
    """Workers that still have to do something for the epoch that counts."""

    def go(self, now_s: float) -> None:
        """The workers run, all from the newest epoch that counts."""
        if self.stage is Stage.WRITING:
            raise RuntimeError(f"workers run, and nobody knows whether {self.committed + 1} counts")
        self.running = True
        self.stage = Stage.COMMITTED
        self._due_s = now_s + self.every_s

    def halt(self) -> None:
        """A worker is lost: what is not being written by now has never been.

        Also when the last epoch counts: not all may have heard of it, so there will be another.
        """
        self.running = self.over = False
        self.paused, self._change = False, 0
        self._parts.clear()
        self._ended.clear()
        self._unsettled.clear()
        if self.stage is Stage.CUTTING:
            self.stage = Stage.COMMITTED

    @property
    def known(self) -> bool:
        """Whether it is known which epoch is the newest that counts."""
        return self.stage is not Stage.WRITING

    def ask(self) -> None:
        """Somebody wants an epoch that begins from now on to count, as soon as possible."""
        self._asked = self.begun

    def change(self, number: int) -> None:
        """Begin an epoch as soon as possible, behind which the deployment is another one."""
        self._change = number

    def stop(self) -> None:
        """The job is to end behind an epoch."""
        self._stopping = True

    def drained(self, rank: int) -> None:
        """All instances of a worker have ended."""
        if self.running:
            self._ended.add(rank)

    def works(self, rank: int) -> None:
        """A worker whose instances had all ended gets others."""
        self._ended.discard(rank)

    @property
    def resting(self) -> bool:
        """Whether no epoch is in progress."""
        return self.stage is Stage.COMMITTED

    @property
    def ending(self) -> bool:
        """Whether the last epoch has begun: nobody can join any more."""
        return self.over or (self._last and self.stage is not Stage.COMMITTED)

    def count(self, workers: int) -> None:
        """So many workers take part from the next epoch on; an epoch in progress stays as it is."""
        self.workers = workers
        self._ended = {rank for rank in self._ended if rank < workers}
        self._unsettled = {rank for rank in self._unsettled if rank < workers}

    @property
    def due_s(self) -> float | None:
        """When an epoch begins by itself; None: not before something else happens."""
        waits = self.running and not self.over and self.stage is Stage.COMMITTED
        waits = waits and not self.paused and not self._unsettled
        return self._due_s if waits else None

    def tick(self, now_s: float) -> list[Act]:
        """Time passes."""
        all_ended = len(self._ended) == self.workers
        if not self.running or self.over or self.stage is not Stage.COMMITTED or self._unsettled:
            return []
        change, self._change = self._change, 0
        if not change:
            asked = self._asked is not None
            wanted = asked or self._stopping or all_ended or now_s >= self._due_s
            if self.paused or not wanted:
                return []
        self.stage, self.begun_s = Stage.CUTTING, now_s
        self.begun += 1
        self._last = not change and (self._stopping or all_ended)
        self.taking_part = self.workers
        self._due_s = now_s + self.every_s
        return [Begin(self.committed + 1, self._last, change)]

    def cut(self, rank: int, epoch: int, part: Any, *, ended: bool) -> list[Act]:
        """What a worker has of an epoch is safe. Of another than the one in progress it is old."""
        if self.stage is not Stage.CUTTING or epoch != self.committed + 1:
            return []
        self._parts[rank] = part, ended
        if ended:
            self._ended.add(rank)
        if len(self._parts) < self.taking_part:
            return []
        self.stage = Stage.WRITING
        told = [self._parts[one] for one in range(self.taking_part)]
        self._parts.clear()
        # Some may have ended since they were cut: then the epoch does not say so.
        return [Write(epoch, tuple(part for part, _ in told), all(over for _, over in told))]

    def abandon(self) -> None:
        """The manifest will never be there: the epoch has never been."""
        if self.stage is Stage.WRITING:
            self.stage = Stage.COMMITTED

    def written(self, epoch: int) -> list[Act]:
        """The manifest is there: the epoch counts, whatever becomes of the workers."""
        if self.stage is not Stage.WRITING or epoch != self.committed + 1:
            raise RuntimeError(f"epoch {epoch} is written; {self.committed + 1} is {self.stage}")
        self.stage, self.committed, self.counted = Stage.COMMITTED, epoch, self.begun
        if self._asked is not None and self._asked < self.begun:
            self._asked = None
        if not self.running:
            return []  # those that go on from it know it
        self.over = self._last
        self._unsettled = set(range(self.taking_part))
        return [Commit(epoch, self._last)]

    def settled_by(self, rank: int, epoch: int) -> None:
        """A worker has nothing left to do for an epoch that counts."""
        if epoch == self.committed:
            self._unsettled.discard(rank)
