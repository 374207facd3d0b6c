"""Steps in places of their own: each with a clock that means nothing in the other."""

import heapq
import pickle
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from tailrace.runtime.state import Stateful
from tailrace.runtime.step import Step
from tests.runtime.timed import Bench


@dataclass
class World:
    """What all places share: the time of day."""

    wall_ns: int = 1_700_000_000_000_000_000


@dataclass
class Place:
    """A step, and what has come out of it."""

    logic: Any
    world: World
    clock_ahead_ns: int
    bench: Bench = field(default_factory=Bench)
    before: Step | None = None
    epoch: int | None = None

    def __post_init__(self) -> None:
        self._timers: list[tuple[int, int, Any]] = []
        self._numbers = count()
        context = replace(
            self.bench.context(),
            clock_ns=self._clock_ns,
            wall_ns=lambda: self.world.wall_ns,
            set_timer=self._set_timer,
            before=self.before,
            epoch=self.epoch,
        )
        step = self.logic.start(context)
        assert isinstance(step, Stateful)
        self.step: Stateful = step

    def _clock_ns(self) -> int:
        return self.world.wall_ns + self.clock_ahead_ns

    def _set_timer(self, at_ns: int, tag: Any) -> None:
        heapq.heappush(self._timers, (at_ns, next(self._numbers), tag))

    def fire(self) -> None:
        """Call the timers that are due."""
        while self._timers and self._timers[0][0] <= self._clock_ns():
            at_ns, _, tag = heapq.heappop(self._timers)
            self.step.on_timer(at_ns, tag)

    def out(self, key: Hashable) -> list[Any]:
        """The results of a key, and what came too late for it."""
        main = [one for one in self.bench.out.get("main", []) if one[0] == key]
        return main + [("late", one) for one in self.bench.out.get("late", []) if one[0] == key]


def move(source: Place, target: Place, keys: set[Hashable]) -> None:
    """Some keys, with all that belongs to them, by way of bytes."""
    target.step.put_shared(shipped(source.step.shared()))
    target.step.put_in(shipped(entry) for entry in source.step.take_out(keys))


def shipped(value: Any) -> Any:
    """What arrives elsewhere."""
    return pickle.loads(pickle.dumps(value))
