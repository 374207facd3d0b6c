"""How often keys came together: what was counted by sketches, put together, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple

Pair = tuple[Any, Any]
"""The key by which a record came, and the key by which what followed from it was sent."""


@dataclass(frozen=True)
class PairCounts:
    """Records that came to an operator by one key, and led to others sent by another.

    For every pair in `counts`, ``count - error <= true count <= count``; every pair that came more
    than `floor` times is there. So of exact counts `errors` is empty and the floor 0. Counts need
    not be whole: those of a sample are scaled up, and then hold as far as the sample does.

    >>> asia = PairCounts("region", "tag", {("Asia", "java"): 3, ("Asia", "ruby"): 1}, total=4)
    >>> asia.merge(asia).top(1)
    [(('Asia', 'java'), 6)]
    """

    source: str
    """The operator that is reached by the first of the keys."""
    target: str
    """And the one by the second."""
    counts: Mapping[Pair, float]
    total: float
    """Of all pairs, also those that are not there."""
    errors: Mapping[Pair, float] = field(default_factory=dict)
    """By how much a count may be too high, where it may."""
    floor: float = 0.0

    def at_least(self) -> dict[Pair, float]:
        """How often each pair came for sure; those of which nothing is sure are left out."""
        errors = self.errors
        if not errors:
            return {pair: count for pair, count in self.counts.items() if count > 0}
        sure = ((pair, count - errors.get(pair, 0.0)) for pair, count in self.counts.items())
        return {pair: count for pair, count in sure if count > 0}

    def top(self, most: int) -> list[tuple[Pair, float]]:
        """The pairs that come most often, with their counts, the first of them first."""
        return nlargest(most, self.counts.items(), key=itemgetter(1))

    def scaled(self, factor: float) -> PairCounts:
        """What a sample stands for."""
        return PairCounts(
            self.source,
            self.target,
            {pair: count * factor for pair, count in self.counts.items()},
            self.total * factor,
            {pair: error * factor for pair, error in self.errors.items()},
            self.floor * factor,
        )

    def heaviest(self, most: int) -> PairCounts:
        """Only the pairs that come most often; the rest counts in the total."""
        if len(self.counts) <= most:
            return self
        kept = dict(self.top(most))
        left = max((count for pair, count in self.counts.items() if pair not in kept), default=0.0)
        errors = {pair: self.errors[pair] for pair in kept if pair in self.errors}
        return PairCounts(self.source, self.target, kept, self.total, errors, max(self.floor, left))

    def merge(self, other: PairCounts) -> PairCounts:
        """Both together. A pair that one lacks may have come there as often as its floor."""
        if (self.source, self.target) != (other.source, other.target):
            raise ValueError(
                f"pairs of {self.source!r} and {self.target!r} cannot be put together with those of"
                f" {other.source!r} and {other.target!r}"
            )
        counts = dict(self.counts)
        errors = dict(self.errors)
        if other.floor:
            for pair in self.counts.keys() - other.counts.keys():
                counts[pair] += other.floor
                errors[pair] = errors.get(pair, 0.0) + other.floor
        for pair, count in other.counts.items():
            error = other.errors.get(pair, 0.0)
            if pair in self.counts:
                counts[pair] += count
            else:
                counts[pair] = count + self.floor
                error += self.floor
            if error:
                errors[pair] = errors.get(pair, 0.0) + error
        return PairCounts(
            self.source,
            self.target,
            counts,
            self.total + other.total,
            errors,
            self.floor + other.floor,
        )


class Sketched(NamedTuple):
    """What one sketch has counted, as plain data: it travels, and becomes a value elsewhere."""

    source: str
    target: str
    counts: list[tuple[Any, Any, int, int]]
    """Key in, key out, count, error."""
    total: int
    floor: int
    scale: float = 1.0
    """How many records one that was counted stands for."""

    def value(self) -> PairCounts:
        """See `PairCounts`."""
        counts: dict[Pair, float] = {}
        errors: dict[Pair, float] = {}
        for key_in, key_out, count, error in self.counts:
            counts[key_in, key_out] = count
            if error:
                errors[key_in, key_out] = error
        found = PairCounts(self.source, self.target, counts, self.total, errors, self.floor)
        return found if self.scale == 1.0 else found.scaled(self.scale)


def merged(all_counts: Iterable[PairCounts | Sketched]) -> list[PairCounts]:
    """What several instances have counted: one value for each two operators."""
    found: dict[tuple[str, str], PairCounts] = {}
    for given in all_counts:
        one = given.value() if isinstance(given, Sketched) else given
        known = found.get((one.source, one.target))
        found[one.source, one.target] = one if known is None else known.merge(one)
    return list(found.values())
