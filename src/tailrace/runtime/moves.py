"""What moves between two deployments of one topology, as every worker works it out for itself.

An instance *stays* if it runs in the same worker before and after; its keys may change all the
same. Whatever it gives away, keys or all that it has, goes to instances of the same operator.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

from tailrace.graph.model import Operator, Rule
from tailrace.graph.wiring import InstanceId
from tailrace.routing.slots import Routes
from tailrace.runtime.deployment import NOWHERE, Deployment, recast_heads
from tailrace.runtime.event_time import EventTime
from tailrace.runtime.reading import SourceLogic
from tailrace.runtime.sink import SinkLogic
from tailrace.runtime.source import Split

_MANY = 512
"""Single keys that are routed by tables."""


class Moves:
    """The way from one deployment to another, for which `check` has found no objection."""

    def __init__(self, before: Deployment, after: Deployment) -> None:
        self.before = before
        self.after = after

    @cached_property
    def leaving(self) -> dict[InstanceId, int]:
        """Instances that are no more where they were, with the worker that they leave."""
        return self._missing(self.before, self.after)

    @cached_property
    def coming(self) -> dict[InstanceId, int]:
        """Instances that are new where they will be, with that worker."""
        return self._missing(self.after, self.before)

    @cached_property
    def recast(self) -> frozenset[str]:
        """The first operators of chains that are not there before, or not after.

        Their instances leave, and others come, be it in the same worker and of the same id.
        """
        return recast_heads(self.before.wiring, self.after.wiring)

    def _missing(self, here: Deployment, there: Deployment) -> dict[InstanceId, int]:
        return {
            one: worker
            for one, worker in here.workers.items()
            if worker != NOWHERE
            and (one.operator in self.recast or there.workers.get(one, NOWHERE) != worker)
        }

    @cached_property
    def _kin(self) -> dict[str, list[InstanceId]]:
        """By the first operator of a chain that is no more, all that have operators of it.

        Directly, or by others that do: each gets what is shared of all of them, and so begins
        only when all have been cut. What goes on from them has the marker by then.
        """
        together: dict[str, set[str]] = {}
        for chain in (*self.before.wiring.chains, *self.after.wiring.chains):
            if chain.operators[0] in self.recast:
                some = set(chain.operators)
                some = some.union(*(together.get(one, ()) for one in some))
                together.update(dict.fromkeys(some, some))
        return {
            head: [one for one in self.after.wiring.ids if one.operator in together[head]]
            for head in self.recast
        }

    @property
    def new(self) -> set[InstanceId]:
        """Those of them that have not been anywhere before."""
        return {one for one in self.coming if self._worker(self.before, one) == NOWHERE}

    def _worker(self, deployment: Deployment, instance: InstanceId) -> int:
        return deployment.workers.get(instance, NOWHERE)

    def routes(self, operator: str) -> tuple[Routes, Routes] | None:
        """Who owned and who will own the keys of an operator; None: it is not reached by key."""
        stream = stream_by_key(self.before, operator)
        return None if stream is None else (self.before.route(stream), self.after.route(stream))

    @cached_property
    def takers(self) -> dict[InstanceId, frozenset[InstanceId]]:
        """Who gets something of an instance that is there before; only those who give anything."""
        found: dict[InstanceId, frozenset[InstanceId]] = {}
        new: dict[str, set[InstanceId]] = {}
        for one in self.new:
            new.setdefault(one.operator, set()).add(one)
        for chain in self.before.wiring.chains:
            head = chain.operators[0]
            if head in self.recast:
                for index in range(chain.parallelism):
                    found[InstanceId(head, index)] = frozenset(self._kin[head])
                continue
            moved = self._moved_keys(head)
            count = self.after.graph.operator(head).parallelism
            for index in range(chain.parallelism):
                instance = InstanceId(head, index)
                if self._worker(self.before, instance) == NOWHERE:
                    continue
                takers = {InstanceId(head, to) for to in moved.get(index, ())}
                if instance in self.leaving:
                    takers.add(InstanceId(head, index % count))  # what it has beside keys
                else:
                    takers.discard(instance)
                takers |= new.get(head, set())
                if takers:
                    found[instance] = frozenset(takers)
        return found

    @cached_property
    def givers(self) -> dict[InstanceId, frozenset[InstanceId]]:
        """From whom an instance gets something."""
        found: dict[InstanceId, set[InstanceId]] = {}
        for giver, takers in self.takers.items():
            for taker in takers:
                found.setdefault(taker, set()).add(giver)
        return {taker: frozenset(givers) for taker, givers in found.items()}

    def _moved_keys(self, operator: str) -> dict[int, set[int]]:
        """By index, to whom keys may go: for sources, splits."""
        routes = self.routes(operator)
        found: dict[int, set[int]] = {}
        if routes is not None:
            before, after = routes
            if before.owners != after.owners:
                for one, other in set(zip(before.owners, after.owners, strict=True)):
                    found.setdefault(one, set()).add(other)
            single = before.keys != after.keys
            if single and len(before.keys) + len(after.keys) > _MANY:
                # To look at each would take long, and most go everywhere.
                old, new = self.parallelism(operator)
                found = {index: set(range(new)) for index in range(old)}
            elif single:
                for key in {**before.keys, **after.keys}:
                    found.setdefault(before.owner(key), set()).add(after.owner(key))
        elif is_source(self.before, operator):
            old, new = self.parallelism(operator)
            if old != new:
                found = {index: set(range(new)) for index in range(old)}
        return found

    def parallelism(self, operator: str) -> tuple[int, int]:
        """How many instances it has before and after."""
        before, after = (one.graph.operator(operator) for one in (self.before, self.after))
        return before.parallelism, after.parallelism

    def taker_of(self, giver: InstanceId, key: Hashable) -> InstanceId:
        """Whose a key of an instance will be."""
        operator = giver.operator
        routes = self.routes(operator)
        if routes is not None:
            return InstanceId(operator, routes[1].owner(key))
        before, count = self.parallelism(operator)
        if isinstance(key, Split) and count != before:
            return InstanceId(operator, key.home(count))
        return InstanceId(operator, giver.index % count)


def stream_by_key(deployment: Deployment, operator: str) -> int | None:
    """A stream by key that leads to an operator from elsewhere; None: there is none."""
    for number in deployment.wiring.streams:
        stream = deployment.graph.streams[number]
        if stream.target == operator and stream.grouping.rule is Rule.KEY:
            return number
    return None


def is_source(deployment: Deployment, operator: str) -> bool:
    """Whether records begin there."""
    return isinstance(deployment.graph.operator(operator).logic, SourceLogic)


def is_tied(operator: Operator, *, checkpoints: bool) -> bool:
    """Whether instances of an operator can neither move nor change in number while they run."""
    logic = operator.logic
    if isinstance(logic, SourceLogic):
        return logic.source.tied or not logic.source.rewinds
    return isinstance(logic, SinkLogic) and logic.sink.tied and not checkpoints


def check(before: Deployment, after: Deployment, *, checkpoints: bool = False) -> None:
    """Raise ValueError if a running job cannot go from one deployment to the other."""
    for one, other in zip(before.graph.streams, after.graph.streams, strict=True):
        rule, wanted = one.grouping.rule, other.grouping.rule
        if rule is not wanted and len(before.graph.into(one.target)) > 1:
            raise ValueError(
                f"the stream {one.label!r} goes by {rule.value} and cannot go by {wanted.value}"
                f" while it runs: {one.target!r} reads others, too"
            )
        if rule is not wanted and isinstance(before.graph.operator(one.target).logic, EventTime):
            raise ValueError(
                f"{one.target!r} cannot be fused with {one.source!r}, nor taken apart from it,"
                " while it runs: records of sources that are not equally far would become late"
            )
    recast = recast_heads(before.wiring, after.wiring)
    for chain in before.wiring.chains:
        head = chain.operators[0]
        old, new = (one.graph.operator(head).parallelism for one in (before, after))
        moves = head in recast or any(
            before.workers[instance] != after.workers[instance]
            for instance in (InstanceId(head, index) for index in range(min(old, new)))
        )
        if not moves and old == new:
            continue
        for name in chain.operators:
            operator = before.graph.operator(name)
            if not is_tied(operator, checkpoints=checkpoints):
                continue
            raise ValueError(
                f"the sink {name!r} cannot be moved or rescaled while it runs: another instance"
                " would write over its files. Start the job with checkpoint=, then it can"
                if isinstance(operator.logic, SinkLogic)
                else f"the source {name!r} cannot be moved or rescaled while it runs: nobody could"
                " go on elsewhere where it stood"
            )
        rules = {stream.grouping.rule for stream in before.graph.into(head)}
        if old != new and Rule.PARTIAL_KEY in rules:
            raise ValueError(
                f"{head!r} cannot go from {old} to {new} instances while it runs: its records come"
                " by partial key, which does not say whose a key is"
            )
