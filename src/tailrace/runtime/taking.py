"""An instance that gets state: it begins, or goes on, when it has what it needs for that."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tailrace.graph.wiring import InstanceId
from tailrace.runtime.giving import Given, Shared
from tailrace.runtime.instance import Instance
from tailrace.runtime.keeper import Keeper
from tailrace.runtime.moves import Moves
from tailrace.runtime.sink import SinkStep
from tailrace.runtime.state import Stateful
from tailrace.runtime.step import call


class Taking:
    """Of an instance that stays it is made when that has been cut, of a new one when it is there.

    A new one holds all of its links until everybody has given what is shared; if it is not reached
    by key, until all is there. Then single records wait for their keys: see `keeper`.
    """

    def __init__(self, instance: Instance, moves: Moves) -> None:
        self.instance = instance
        self._moves = moves
        self._givers = set(moves.givers[instance.id])
        self._undone = set(self._givers)
        self._shared: dict[InstanceId, Shared] = {}
        self._early: list[Given] = []
        self._steps = dict(instance.steps)
        self._comes = instance.id in moves.coming
        self._keyed = moves.routes(instance.id.operator) is not None
        # Where nothing is kept for keys, the marker alone keeps their records in order.
        self._keeps = any(isinstance(step, Stateful) for _, step in instance.steps)
        self._begun = not self._comes  # what is shared is there, so keys may be put in
        self.ready = not self._comes
        """Whether its records may be processed, but for those that wait for their keys."""
        if self._comes:
            instance.still = True
        elif self._keyed and self._keeps:
            self._keep()

    @property
    def keeper(self) -> Keeper | None:
        """Who keeps records back here, if anybody does."""
        keeper: Keeper | None = self.instance.queue.keeper
        return keeper

    @property
    def done(self) -> bool:
        """Whether all has come."""
        return self.ready and not self._undone

    def _keep(self) -> None:
        instance, moves = self.instance, self._moves
        operator = instance.id.operator
        routes = moves.routes(operator)
        assert routes is not None
        before = routes[0].owner

        def giver_of(key: Hashable) -> InstanceId:
            return InstanceId(operator, before(key))

        keyed = [step for _, step in instance.steps if isinstance(step, Stateful)]
        instance.queue.keeper = Keeper(
            instance,
            giver_of,
            lambda key: any(step.has(key) for step in keyed),
            set(self._undone),
        )

    def take(self, given: Given) -> None:
        """Take in what somebody gives."""
        if given.shared is not None:
            self._shared[given.giver] = given.shared
            self._hear_of(given.shared)
            if not self._comes:
                self._merge(given)
        self._early.append(given)
        if not self._begun and len(self._shared) == len(self._givers):
            self._begin()
        if self._begun:
            early, self._early = self._early, []
            for one in early:
                self._put_in(one)
        if self._begun and not self.ready and not self._undone:
            self._is_ready()

    def _hear_of(self, shared: Shared) -> None:
        for name, (value, _) in shared.items():
            step = self._steps.get(name)
            if isinstance(step, Stateful) and value is not None:
                call(name, "restore", step.hear_of, value)

    def _merge(self, given: Given) -> None:
        """What an instance that leaves for good has beside its keys; this one has its place."""
        assert given.shared is not None
        for name, shared, _ in self._own({given.giver: given.shared}):
            step = self._steps[name]
            if isinstance(step, Stateful):
                call(name, "restore", step.merge_shared, shared)
            elif isinstance(step, SinkStep):
                call(name, "restore", step.put_shared, shared)

    def _own(self, shared: dict[InstanceId, Shared]) -> list[tuple[str, Any, bool]]:
        """What those have shared whose place this one takes, or that it was itself elsewhere."""
        moves, me = self._moves, self.instance.id
        count = moves.after.graph.operator(me.operator).parallelism
        return [
            (name, value, finished)
            for giver, values in shared.items()
            if giver in moves.leaving and giver.index % count == me.index
            for name, (value, finished) in values.items()
            if value is not None or finished
        ]

    def _begin(self) -> None:
        """Be what others were."""
        own = self._own(self._shared)
        for name, step in self.instance.steps:
            values = [value for one, value, _ in own if one == name and value is not None]
            ends = [shared[name][1] for shared in self._shared.values() if name in shared]
            if isinstance(step, SinkStep):
                for value in values:
                    call(name, "restore", step.put_shared, value)
            elif isinstance(step, Stateful):
                mine = [finished for one, _, finished in own if one == name]
                step.was_finished(any(mine) if mine else bool(ends) and all(ends))
                for value in values:
                    call(name, "restore", step.put_shared, value)
                if not values:
                    others = [one[name][0] for one in self._shared.values() if name in one]
                    some = [value for value in others if value is not None]
                    call(name, "restore", step.be_beside, some)
        self._begun = True
        if self._keyed:
            if self._keeps:
                self._keep()
            self._is_ready()

    def _is_ready(self) -> None:
        self.ready = True
        self.instance.still = False

    def _put_in(self, given: Given) -> None:
        keys: list[Hashable] = []
        for name, entries in given.entries:
            step = self._steps[name]
            assert isinstance(step, Stateful), name
            self.instance.stamp.emitted_ns = self.instance.clock_ns()
            call(name, "move", step.put_in, entries)
            keys += [key for key, _ in entries]
        keeper = self.keeper
        if keeper is not None:
            if keys or given.nothing:
                keeper.came(keys, given.nothing)
            if given.done:
                keeper.done(given.giver)
        if given.done:
            self._undone.discard(given.giver)
            if not self._undone:
                self.instance.queue.keeper = None
