"""An instance that gives state away: what is asked for at once, all else bit by bit.

Each key is always in one place. The old owner processes no record of a key that leaves it any more,
and time stands still for it, so that nothing is done there by the clock either; the new owner asks
for the keys that records come for (`keeper`). So nothing has to be copied twice, and the keys that
are busy move first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from tailrace.graph.wiring import InstanceId
from tailrace.runtime.instance import Instance
from tailrace.runtime.moves import Moves
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.sink import SinkStep
from tailrace.runtime.state import Entry, Stateful
from tailrace.runtime.step import call
from tailrace.runtime.sweep import Sweep

_FEW_KEYS = 512
"""So many an instance that leaves may give at once."""

Shared = dict[str, tuple[Any, bool]]
"""By operator, what a step has beside its keys, and whether all of its input had ended."""


@dataclass
class Given:
    """What one instance gives to another."""

    change: int
    giver: InstanceId
    taker: InstanceId
    entries: list[tuple[str, list[Entry]]] = field(default_factory=list)
    """By operator."""
    nothing: list[Hashable] = field(default_factory=list)
    """Keys that were asked for and have no state."""
    shared: Shared | None = None
    """Comes first, once."""
    done: bool = False
    """Nothing more comes."""


@dataclass
class Asked:
    """Keys that somebody needs now."""

    change: int
    giver: InstanceId
    taker: InstanceId
    keys: list[Hashable]


@dataclass
class Taken:
    """So many messages with state that the addressee has sent are taken in."""

    change: int
    messages: int


Send = Callable[[Given], None]


class Giving:
    """See above. Made when the instance has been cut; sends nothing by itself but what is shared.

    Instances that are not reached by key give all at once if that is little: sources, whose splits
    are few, and those that have something beside keys only. Of one that has many keys all the same,
    as by partial key, its place is taken when they have come.
    """

    def __init__(self, instance: Instance, moves: Moves, change: int, send: Send) -> None:
        self.instance = instance
        self.moved_keys = 0
        self._change = change
        self._send = send
        self._takers = sorted(moves.takers[instance.id])  # so that a seed always does the same
        # Of what is taken apart, others get what is shared alone.
        self._heirs = [one for one in self._takers if one.operator == instance.id.operator]
        # What has finished needs its state no more.
        self._steps = [
            (name, step)
            for name, step in instance.steps
            if isinstance(step, Stateful) and not step.finished
        ]
        self._sweeps: deque[tuple[str, Stateful, Sweep]] | None = None
        self._leaves = instance.id in moves.leaving
        routes = moves.routes(instance.id.operator)
        self._owner = None if routes is None else routes[1].owner
        self._listed: Iterator[Hashable] | None = None
        """The keys that may leave it, if they are known; some may come twice."""
        if routes is not None and not self._leaves and routes[0].owners == routes[1].owners:
            self._listed = chain(routes[0].keys, routes[1].keys)
        self._give_shared()
        self.done = False
        if self._owner is None:
            steps = [step for _, step in self._steps if not isinstance(step, SourceStep)]
            if self._leaves and sum(step.held for step in steps) > _FEW_KEYS:
                index = moves.taker_of(instance.id, None).index
                self._owner = lambda key: index
            else:
                self._give_all(moves)

    def _give_shared(self) -> None:
        shared = {
            name: (step.shared(), isinstance(step, Stateful) and step.finished)
            for name, step in self.instance.steps
            if isinstance(step, Stateful | SinkStep)
        }
        for taker in self._takers:
            only = taker not in self._heirs  # its keys, if it has any, go to others
            self._send(Given(self._change, self.instance.id, taker, shared=shared, done=only))

    def _give_all(self, moves: Moves) -> None:
        giver = self.instance.id
        for name, step in self._steps:
            keys = step.keys()
            takers = {key: moves.taker_of(giver, key) for key in keys}
            leaving = [key for key in keys if self._leaves or takers[key] != giver]
            self._give(name, call(name, "move", step.take_out, leaving), takers.__getitem__)
        self._end()

    def _give(
        self, name: str, entries: Iterable[Entry], taker_of: Callable[[Hashable], InstanceId]
    ) -> None:
        by_taker: dict[InstanceId, list[Entry]] = {}
        for entry in entries:
            by_taker.setdefault(taker_of(entry[0]), []).append(entry)
            self.moved_keys += 1
        for taker, some in by_taker.items():
            self._send(Given(self._change, self.instance.id, taker, [(name, some)]))

    def _end(self) -> None:
        self.done = True
        for taker in self._heirs:
            self._send(Given(self._change, self.instance.id, taker, done=True))

    def answer(self, asked: Asked) -> None:
        """Give keys that are needed now."""
        if self.done:
            return  # all are on their way, and `done` behind them
        entries = []
        left = set(asked.keys)
        for name, step in self._steps:
            some = call(name, "move", step.take_out, asked.keys)
            if some:
                entries.append((name, some))
                self.moved_keys += len(some)
                left.difference_update(key for key, _ in some)
        self._send(Given(self._change, asked.giver, asked.taker, entries, [*left]))

    def some(self, most: int) -> int:
        """Give up to so many of the keys that are left; how many were looked at.

        Only when no cut is being settled: keys change their places then.
        """
        if self.done:
            return 0
        if self._listed is not None:
            return self._some_listed(self._listed, most)
        if self._sweeps is None:
            self._sweeps = deque(
                (name, step, Sweep(layer)) for name, step in self._steps for layer in step.layers()
            )
        if not self._sweeps:
            self._end()
            return 0
        name, step, sweep = self._sweeps[0]
        keys = sweep.some(most)
        if not keys:
            self._sweeps.popleft()
            return 1
        self._give_those(keys, [(name, step)])
        return len(keys)

    def _some_listed(self, listed: Iterator[Hashable], most: int) -> int:
        keys = list(dict.fromkeys(islice(listed, most)))
        if keys:
            self._give_those(keys, self._steps)
        else:
            self._end()
        return len(keys)

    def _give_those(self, keys: list[Hashable], steps: list[tuple[str, Stateful]]) -> None:
        """Of these keys, those that are others' from now on."""
        me, owner = self.instance.id, self._owner
        assert owner is not None
        by_taker: dict[int, list[Hashable]] = {}
        for key in keys:
            by_taker.setdefault(owner(key), []).append(key)
        if not self._leaves:
            by_taker.pop(me.index, None)
        for index, some in by_taker.items():
            for name, step in steps:
                entries = call(name, "move", step.take_out, some)
                if entries:
                    self.moved_keys += len(entries)
                    taker = InstanceId(me.operator, index)
                    self._send(Given(self._change, me, taker, [(name, entries)]))
