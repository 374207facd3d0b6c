"""Keys into instances by weight alone: for bounds that no move of single keys reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_STEPS = 10_000
_LITTLE = 1e-9


def packed(graph: Any, where: Any) -> bool:
    """Have operators with too much in an instance dealt anew, where that helps; whether it did.

    `graph` has `first`, `start`, `weight`, `most` and `fixed`; `where` is changed in place.
    """
    changed = False
    for o in range(len(graph.first) - 1):
        keys = np.arange(graph.start[o], graph.start[o + 1])
        first, last = int(graph.first[o]), int(graph.first[o + 1])
        most = graph.most[first:last]
        load = np.bincount(where[keys] - first, graph.weight[keys], last - first)
        excess = np.maximum(load - most, 0.0).sum()
        if excess <= _LITTLE * (1.0 + most.max()):
            continue
        free = keys[graph.fixed[keys] == 0]
        fixed = keys[graph.fixed[keys] != 0]
        room = most - np.bincount(where[fixed] - first, graph.weight[fixed], last - first)
        order = free[np.argsort(-graph.weight[free], kind="stable")]
        weights = [float(w) for w in graph.weight[order]]
        found = _in_turn(weights, room)
        if _missing(weights, found, room) > 0:
            found = _exact(weights, [float(r) for r in room]) or found
        if _missing(weights, found, room) < excess - _LITTLE:
            where[order] = np.array(found, np.int32) + first
            changed = True
    return changed


def _missing(weights: Sequence[float], where: Sequence[int], room: Any) -> float:
    load = np.bincount(where, weights, len(room))
    return float(np.maximum(load - room - _LITTLE * (1.0 + np.abs(room)), 0.0).sum())


def _in_turn(weights: Sequence[float], room: Any) -> list[int]:
    """Heaviest first, each to where there is most room."""
    left = np.array(room, np.float64)
    found = []
    for weight in weights:
        place = int(left.argmax())
        left[place] -= weight
        found.append(place)
    return found


def _exact(weights: Sequence[float], room: Sequence[float]) -> list[int] | None:
    """A packing within the room, if one is found in so many steps. `weights` fall."""
    left = list(room)
    found = [0] * len(weights)
    steps = 0

    def place(at: int) -> bool:
        nonlocal steps
        if at == len(weights):
            return True
        tried: set[float] = set()
        for where in sorted(range(len(left)), key=left.__getitem__):
            if weights[at] <= left[where] + _LITTLE * (1.0 + abs(room[where])):
                if left[where] in tried:
                    continue  # the same room: the same would follow
                tried.add(left[where])
                steps += 1
                if steps > _STEPS:
                    return False
                left[where] -= weights[at]
                found[at] = where
                if place(at + 1):
                    return True
                left[where] += weights[at]
        return False

    return found if len(weights) <= 64 and place(0) else None
