"""How far sources rise until what they share is full. Pure numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

_FULL = 1 - 1e-9


def fill(uses: Sequence[Sequence[float]], most: float = inf) -> list[float]:
    """By how much each source's wanted rate can be multiplied, at most by `most`.

    `uses[source][resource]` is what a source takes of a resource at its wanted rate; 1 is all of
    it. All factors rise together. When a resource is full, the sources that use it stay where they
    are and the others go on rising, so that sources that share nothing do not know of each other
    (max-min fairness). A source that uses nothing rises to `most`.
    """
    factors = [0.0] * len(uses)
    rising = [s for s, row in enumerate(uses) if any(row)]
    for s, row in enumerate(uses):
        if not any(row):
            factors[s] = most
    used = [0.0] * (len(uses[0]) if uses else 0)
    level = 0.0
    while rising:
        speeds = [sum(uses[s][r] for s in rising) for r in range(len(used))]
        room = [(1 - u) / speed if speed else inf for u, speed in zip(used, speeds, strict=True)]
        step = min(*room, most - level) if room else most - level
        level += step
        used = [u + step * speed for u, speed in zip(used, speeds, strict=True)]
        full = [r for r, left in enumerate(room) if left <= step or used[r] >= _FULL]
        for s in rising:
            factors[s] = level
        if level >= most:
            break
        rising = [s for s in rising if not any(uses[s][r] for r in full)]
    return factors
