"""The graph of keys: how heavy each key of each operator is, and how much they exchange.

Plain arrays, so that it can be handed to another process, and to C. Which key a vertex is stands
beside it, in `Keys`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from tailrace.routing.homes import Homes
from tailrace.routing.pairs import PairCounts
from tailrace.routing.slots import Routes

ALPHA = 1.03
"""No instance gets more than so many times the average of its operator, where keys allow it."""


@dataclass(frozen=True)
class Costs:
    """What a record costs by its way; inside a worker, nothing."""

    ring: float = 1.0
    tcp: float = 10.0
    move: float = 10.0
    """What moving the state of a key costs: it must save as much, while counts stay as they are."""


STANDARD_COSTS = Costs()


@dataclass(frozen=True)
class KeyGraph:
    """Vertices are keys, those of an operator together; instances are numbered likewise."""

    start: Any
    """The first key of each operator, and behind the last."""
    first: Any
    """The first instance of each operator, and behind the last."""
    worker: Any
    """Of each instance."""
    node: Any
    """Of each worker."""
    weight: Any
    """Of each key: the records that it gets."""
    total: Any
    """Of each operator: all that it gets. What is of keys that are no vertices goes by slots."""
    edges: Any
    """Where the edges of each key begin, and behind the last."""
    adjacent: Any
    edge_weight: Any
    before: Any
    """The instance of each key until now."""
    alpha: float
    ring: float
    tcp: float
    keep: float

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self.weight)

    @property
    def operators(self) -> int:
        """How many operators there are."""
        return len(self.first) - 1

    def operator_of(self) -> Any:
        """Of each key."""
        return np.repeat(np.arange(self.operators, dtype=np.int32), np.diff(self.start))


class Keys(NamedTuple):
    """What the vertices of a key graph stand for."""

    operators: list[str]
    keys: list[list[Hashable]]
    """Of each operator."""


class Load(NamedTuple):
    """What an operator gets."""

    keys: dict[Hashable, float]
    """Records by key, of the keys that are known."""
    total: float


def loads(pairs: Sequence[PairCounts]) -> dict[str, Load]:
    """How many records each operator gets, by key, as far as the pairs tell.

    An operator that is reached from others in the pairs gets what they send; of one that is not,
    and of keys that were not seen to come, it is known what is sent, of which the most to one other
    operator is taken.
    """
    got: dict[str, Load] = {}
    sent: dict[str, Load] = {}
    for one in pairs:
        into: dict[Hashable, float] = {}
        out_of: dict[Hashable, float] = {}
        for (key_in, key_out), count in one.at_least().items():
            into[key_out] = into.get(key_out, 0.0) + count
            out_of[key_in] = out_of.get(key_in, 0.0) + count
        known = got.get(one.target, Load({}, 0.0))
        for key, count in into.items():
            known.keys[key] = known.keys.get(key, 0.0) + count
        got[one.target] = Load(known.keys, known.total + one.total)
        if one.source not in sent or sent[one.source].total < one.total:
            sent[one.source] = Load(out_of, one.total)
    for name, load in got.items():
        if name in sent:
            for key, count in sent[name].keys.items():
                load.keys.setdefault(key, count)
            got[name] = Load(load.keys, max(load.total, sum(load.keys.values())))
    return {**sent, **got}


def key_graph(
    pairs: Sequence[PairCounts],
    homes: Homes,
    before: Mapping[str, Routes],
    alpha: float = ALPHA,
    costs: Costs = STANDARD_COSTS,
) -> tuple[KeyGraph, Keys]:
    """The graph of all keys that were seen in pairs. Operators without homes are left out.

    `before` says who owns the keys now; without, slots alone do.
    """
    if alpha < 1:
        raise ValueError(f"alpha is {alpha}; no bound below the average, 1, can be held")
    of_operator = {name: load for name, load in loads(pairs).items() if name in homes}
    names = list(of_operator)
    numbers: list[dict[Hashable, int]] = []
    for name in names:
        begin = sum(len(one) for one in numbers)
        numbers.append({key: begin + i for i, key in enumerate(of_operator[name].keys)})
    place = {name: o for o, name in enumerate(names)}
    ends: tuple[list[int], list[int], list[float]] = ([], [], [])
    for one in pairs:
        if one.source not in place or one.target not in place:
            continue
        sources, targets = numbers[place[one.source]], numbers[place[one.target]]
        for (key_in, key_out), count in one.at_least().items():
            u, v = sources.get(key_in), targets.get(key_out)
            if u is not None and v is not None:
                ends[0].append(u)
                ends[1].append(v)
                ends[2].append(count)
    starts = [0, *accumulate(len(one) for one in numbers)]
    firsts = [0, *accumulate(len(homes[name]) for name in names)]
    all_homes = [home for name in names for home in homes[name]]
    node = np.zeros(max((home.worker for home in all_homes), default=0) + 1, np.int32)
    for home in all_homes:
        node[home.worker] = home.node
    owners = [
        before.get(name) or Routes.even(len(homes[name])) for name in names
    ]  # by slots, where nothing is known
    graph = KeyGraph(
        start=np.array(starts, np.int32),
        first=np.array(firsts, np.int32),
        worker=np.array([home.worker for home in all_homes], np.int32),
        node=node,
        weight=np.array([w for name in names for w in of_operator[name].keys.values()], np.float64),
        total=np.array([of_operator[name].total for name in names], np.float64),
        **_csr(ends, starts[-1]),
        before=np.array(
            [
                firsts[o] + min(owners[o].owner(key), firsts[o + 1] - firsts[o] - 1)
                for o, keys in enumerate(numbers)
                for key in keys
            ],
            np.int32,
        ),
        alpha=alpha,
        ring=costs.ring,
        tcp=costs.tcp,
        keep=costs.move,
    )
    return graph, Keys(names, [list(one) for one in numbers])


def _csr(ends: tuple[list[int], list[int], list[float]], size: int) -> dict[str, Any]:
    """Edges, both ways, by vertex; several between the same two are one."""
    one, other = (np.array(side, np.int64) for side in ends[:2])
    weight = np.array(ends[2], np.float64)
    place = np.concatenate([one * size + other, other * size + one])
    place, where = np.unique(place, return_inverse=True)
    together = np.bincount(where, np.concatenate([weight, weight]), len(place))
    rows = place // max(size, 1)
    return {
        "edges": np.searchsorted(rows, np.arange(size + 1)).astype(np.int64),
        "adjacent": (place % max(size, 1)).astype(np.int32),
        "edge_weight": together.astype(np.float64),
    }
