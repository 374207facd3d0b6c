"""How much load each part of a split may carry. Pure numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Balance:
    """For each part the least and the most load it may carry.

    A part's share of the load is its share of the capacity. It may miss that by `factor` of
    itself, or, where single loads are so heavy that this cannot be, by what `deal_by_load` misses
    at worst. So there always is a split that keeps to it.
    """

    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @staticmethod
    def of(loads: Sequence[float], capacities: Sequence[float], factor: float) -> Balance:
        """The balance of these loads over parts of these capacities."""
        if not capacities or min(capacities) <= 0:
            raise ValueError(f"capacities are {list(capacities)}; each must be above 0")
        total, room = sum(loads), sum(capacities)
        shares = tuple(total * capacity / room for capacity in capacities)
        dealt = carried(loads, deal_by_load(loads, shares), len(shares))
        missed = max(abs(load - share) for load, share in zip(dealt, shares, strict=True))
        slack = [max(factor * share, missed) + total * _ROUNDING for share in shares]
        return Balance(
            shares,
            tuple(share - miss for share, miss in zip(shares, slack, strict=True)),
            tuple(share + miss for share, miss in zip(shares, slack, strict=True)),
        )

    def excess(self, carried: Sequence[float]) -> float:
        """By how much the parts together miss what is allowed. 0.0: all is well."""
        return sum(
            max(load - high, low - load, 0.0)
            for load, low, high in zip(carried, self.low, self.high, strict=True)
        )


def carried(loads: Sequence[float], part_of: Sequence[int], parts: int) -> list[float]:
    """The load of each part."""
    result = [0.0] * parts
    for load, part in zip(loads, part_of, strict=True):
        result[part] += load
    return result


def deal_by_load(loads: Sequence[float], shares: Sequence[float]) -> list[int]:
    """The heaviest first, each to the part that misses most of its share: the part of each.

    No part ends a whole heaviest load or more away from its share: the one that goes above it had
    room, and had the most of it.
    """
    missing = list(shares)
    part_of = [0] * len(loads)
    for vertex in sorted(range(len(loads)), key=lambda v: (-loads[v], v)):
        part = max(range(len(missing)), key=lambda p: (missing[p], -p))
        part_of[vertex] = part
        missing[part] -= loads[vertex]
    return part_of
