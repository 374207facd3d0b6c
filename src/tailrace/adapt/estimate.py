"""What a change of plans moves, costs and brings: before it is made, by the model and the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.adapt.changelog import ChangeLog
from tailrace.graph.model import Graph
from tailrace.graph.wiring import wire
from tailrace.plan.plan import Plan, apply

KEY_BYTES = 100.0
"""Of a key and its state, where nobody has told."""
MOVING_CORES = 2.0
"""Busy while keys move: who sends, and who receives."""


class Held(NamedTuple):
    """What an operator keeps, all its instances together."""

    keys: int
    size_bytes: float

    @staticmethod
    def of(keys: int) -> Held:
        """So many keys of the usual size."""
        return Held(keys, keys * KEY_BYTES)


class Effort(NamedTuple):
    """What has to move."""

    keys: int = 0
    size_bytes: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """What a change is expected to cost and to bring."""

    gain: float
    """In cores: what the present load needs less from then on."""
    took_s: float
    cost: float
    """In core-seconds, once."""

    def net(self, horizon_s: float) -> float:
        """What is left of the gain within a horizon, in core-seconds."""
        return self.gain * max(horizon_s - self.took_s, 0.0) - self.cost

    def pays(self, horizon_s: float, margin: float = 1.0) -> bool:
        """Whether the gain within a horizon is more than `margin` times the cost."""
        return self.gain * max(horizon_s - self.took_s, 0.0) > margin * self.cost


def estimate(
    changes: ChangeLog, kind: str, now_s: float, gain: float, effort: Effort, silence: float = 0.0
) -> Estimate:
    """The model's gain, in cores, as far as such changes are to be trusted; and what moves, costs.

    `silence` are cores that can do nothing else while it moves: of a mechanism that stops the
    stream, all of them.
    """
    took_s = changes.seconds(effort.keys, effort.size_bytes)
    trusted = gain * changes.trust(kind, now_s) if gain > 0 else gain
    return Estimate(trusted, took_s, (MOVING_CORES + silence) * took_s)


def effort_of(graph: Graph, present: Plan, plan: Plan, held: Mapping[str, Held]) -> Effort:
    """What moves from one plan to another, of operators that keep something.

    An instance that stays in its place keeps its keys, but for those that others get when an
    operator has more instances than before, or fewer.
    """
    was, becomes = _places(graph, present), _places(graph, plan)
    keys = size_bytes = 0.0
    for name, kept in held.items():
        share = moved_share(was[name], becomes[name])
        keys += share * kept.keys
        size_bytes += share * kept.size_bytes
    return Effort(round(keys), size_bytes)


def moved_share(was: tuple[int, ...], becomes: tuple[int, ...]) -> float:
    """The part of an operator's keys that moves, by the places of its instances.

    >>> moved_share((0, 1), (0, 1)), moved_share((0, 1), (0, 2)), moved_share((0, 1), (0, 1, 2))
    (0.0, 0.5, 0.3333333333333333)
    """
    more = max(len(was), len(becomes))
    others = sum(one != other for one, other in zip(was, becomes, strict=False))
    return (others + abs(len(was) - len(becomes))) / more


def _places(graph: Graph, plan: Plan) -> dict[str, tuple[int, ...]]:
    """The places of each operator's instances."""
    wiring = wire(apply(plan, graph))
    return {
        name: tuple(plan.place_of[instance] for instance in placed.instances)
        for placed in wiring.chains
        for name in placed.operators
    }
