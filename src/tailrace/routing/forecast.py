"""What tables bring: how much stays inside workers and nodes, how even loads are, what moves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.routing.homes import Homes
from tailrace.routing.keygraph import loads
from tailrace.routing.pairs import PairCounts
from tailrace.routing.slots import Routes


@dataclass(frozen=True)
class Forecast:
    """What given pairs of keys would have done under given routes."""

    local: float
    """The share of records that would have stayed inside their worker."""
    near: float
    """And of those that would have left it, but not their node."""
    imbalance: Mapping[str, float]
    """By operator: what its busiest instance would have got, over the average; 1 is even."""

    @property
    def inside(self) -> float:
        """The share of records that would have stayed inside their node."""
        return self.local + self.near

    @property
    def worst_imbalance(self) -> float:
        """That of the operator that has the highest."""
        return max(self.imbalance.values(), default=1.0)


@dataclass(frozen=True)
class Move:
    """What changes if routes do, of the keys that are known."""

    keys: int
    share: float
    """Of the records that come by them."""
    slots: int
    """Slots with another owner: their keys move, too, known or not."""


def forecast(pairs: Sequence[PairCounts], routes: Mapping[str, Routes], homes: Homes) -> Forecast:
    """How it would go; operators without routes have even slots.

    Records of pairs that are not known go to the same worker as often as chance has it, and load
    all instances that have slots alike.
    """
    owner = {name: _owner(routes.get(name) or Routes.even(len(homes[name]))) for name in homes}
    chances = _Chances(routes, homes)
    total = local = near = 0.0
    for one in pairs:
        if one.source not in homes or one.target not in homes:
            continue
        of_source, of_target = owner[one.source], owner[one.target]
        at_source, at_target = homes[one.source], homes[one.target]
        known = 0.0
        for (key_in, key_out), count in one.at_least().items():
            here, there = at_source[of_source(key_in)], at_target[of_target(key_out)]
            if here.worker == there.worker:
                local += count
            elif here.node == there.node:
                near += count
            known += count
        by_local, by_near = chances.of(one.source, one.target)
        unknown = max(one.total - known, 0.0)
        local += unknown * by_local
        near += unknown * by_near
        total += max(one.total, known)
    imbalance = {}
    for name, load in loads(pairs).items():
        if name in homes:
            got = [0.0] * len(homes[name])
            for key, count in load.keys.items():
                got[owner[name](key)] += count
            unknown = max(load.total - sum(load.keys.values()), 0.0)
            shares = chances.slots(name)
            got = [known + unknown * share for known, share in zip(got, shares, strict=True)]
            imbalance[name] = max(got) * len(got) / (sum(got) or 1.0) if sum(got) else 1.0
    return Forecast(local / (total or 1.0), near / (total or 1.0), imbalance)


def moved(
    pairs: Sequence[PairCounts],
    before: Mapping[str, Routes],
    after: Mapping[str, Routes],
    homes: Homes,
) -> Move:
    """What has to move from some routes to others."""
    keys, weight, total, slots = 0, 0.0, 0.0, 0
    for name, load in loads(pairs).items():
        if name not in homes:
            continue
        even = Routes.even(len(homes[name]))
        old, new = before.get(name) or even, after.get(name) or even
        was, is_now = _owner(old), _owner(new)
        known = dict.fromkeys([*load.keys, *old.keys, *new.keys])
        for key in known:
            if was(key) != is_now(key):
                keys += 1
                weight += load.keys.get(key, 0.0)
        total += load.total
        slots += sum(one != other for one, other in zip(old.owners, new.owners, strict=True))
    return Move(keys, weight / (total or 1.0), slots)


def _owner(routes: Routes) -> Callable[[Hashable], int]:
    """Who owns a key, remembered: keys come in many pairs."""
    known: dict[Hashable, int] = {}

    def owner(key: Hashable) -> int:
        found = known.get(key)
        if found is None:
            found = known[key] = routes.owner(key)
        return found

    return owner


class _Chances:
    """Where records go of whose keys nothing is known: by the number of slots."""

    def __init__(self, routes: Mapping[str, Routes], homes: Homes) -> None:
        self._routes = routes
        self._homes = homes
        self._shares: dict[str, list[float]] = {}

    def slots(self, name: str) -> list[float]:
        """The share of each instance."""
        if name not in self._shares:
            count = len(self._homes[name])
            owners = (self._routes.get(name) or Routes.even(count)).owners
            self._shares[name] = [owners.count(i) / len(owners) for i in range(count)]
        return self._shares[name]

    def of(self, source: str, target: str) -> tuple[float, float]:
        """How likely two instances are in one worker, and in two of one node."""
        local = near = 0.0
        for here, share in zip(self._homes[source], self.slots(source), strict=True):
            for there, other in zip(self._homes[target], self.slots(target), strict=True):
                if here.worker == there.worker:
                    local += share * other
                elif here.node == there.node:
                    near += share * other
        return local, near
