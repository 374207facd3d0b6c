"""Jobs in which runs are sent twice whenever chance wants it, and whoever it wants is stopped."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tailrace as tr
from tailrace.checkpoint.restoring import Restoring
from tailrace.runtime.board import SLOT_BYTES, Boards
from tailrace.runtime.core import Core
from tests.checkpoint.world import Ledger, Post, World

SLOTS = 8
"""Few, so that they are used again soon."""


class AnyTime:
    """Sends runs again at any age, or at once; a chance for each."""

    most_records = 64

    def __init__(self, chance: random.Random, share: float, blind: bool) -> None:
        self.chance = chance
        self.share = share
        self.blind = blind
        self.noted: list[int] = []

    def begun(self) -> bool:
        return self.blind and self.chance.random() < self.share

    def note(self, took_ns: int) -> None:
        assert took_ns >= 0
        self.noted.append(took_ns)

    def tried(self, saved_ns: int) -> None:
        assert saved_ns >= 0

    def timeout_ns(self, now_ns: int) -> int | None:
        return None if self.blind else self.chance.choice([1, 1_000_000, 5_000_000, 50_000_000])

    def allow(self, busy: float) -> bool:
        return self.chance.random() < self.share


class Replayed(World):
    """See above. Workers that are stopped have no turns for a while."""

    def __init__(
        self,
        make: Callable[[Ledger], tr.Topology],
        seed: int,
        *,
        share: float = 0.5,
        late_kills: int = 0,
        **options: Any,
    ) -> None:
        workers = options.get("workers", 3)
        self.own = random.Random(seed)
        self.share = share
        self.late_kills = late_kills
        self.memory = [bytearray(SLOTS * SLOT_BYTES) for _ in range(workers)]
        self.boards = [Boards(rank, self.memory.__getitem__) for rank in range(workers)]
        self.stopped = [0] * workers
        self.runs = self.copies = self.won = 0
        super().__init__(make, seed, **options)

    def fresh(self, rank: int, before: Core | None = None) -> Core:
        restoring = Restoring(
            self.folder, self.manifest, self.deployment, self.versions, self.migrations
        )
        core = Core(
            rank,
            self.deployment,
            self.clock,
            Post(self, rank),
            limits=self.limits,
            wall_ns=self.clock,
            epoch=self.manifest.epoch,
            going_on=restoring.going_on,
            before=before,
            boards=self.boards[rank],
            loads=self.loads(rank),
        )
        core.set_replay(AnyTime(self.own, self.share, self.own.random() < 0.3))
        return core

    def kill(self, rank: int) -> None:
        self._count()
        self.memory[rank] = bytearray(SLOTS * SLOT_BYTES)
        self.boards[rank] = Boards(rank, self.memory.__getitem__)
        for boards in self.boards:
            boards.forget(rank)
        super().kill(rank)

    def turn(self, rank: int) -> bool:
        if self.stopped[rank]:
            self.stopped[rank] -= 1
            return True
        if self.own.random() < 0.02:
            self.stopped[rank] = self.own.randrange(1, 60)
        if self.own.random() < 0.01:  # turned off and on while it runs
            policy = AnyTime(self.own, self.share, self.own.random() < 0.3)
            self.cores[rank].set_replay(self.own.choice([None, policy]))
        if self.killed < self.late_kills and self.own.random() < 0.003:
            self.kill(rank)
            return True
        return super().turn(rank)

    def _count(self) -> None:
        for core in self.cores:
            assert core.replaying is not None
            self.runs += core.replaying.runs
            self.copies += core.replaying.copies
            self.won += core.replaying.won

    def run(self, *arguments: Any, **options: Any) -> Any:
        results = super().run(*arguments, **options)
        self._count()
        return results
