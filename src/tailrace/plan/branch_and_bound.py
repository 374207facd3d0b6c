"""BriskStream's algorithm 2: placing given numbers of instances by branch and bound.

Its three heuristics: decisions are about pairs of producer and consumer that run together; an
operator whose producers are all placed goes where it does best (ties to the fullest place, equal
places only once); several instances of an operator are placed as one block. Beyond the paper,
instances of an operator are never told apart, the bound is tighter (`Layout.bound`), the most
promising child comes first, and `exact` goes without the first two heuristics: it branches to
every place and then proves its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, inf

from tailrace.plan.layout import Layout, twins

CLOSE = 1 - 1e-9
"""A bound must be better than the best by more than rounding."""

MOST_BLOCKS = 300
Step = tuple[int, int, int]
"""Part, place, instances."""


@dataclass
class Effort:
    """How many layouts may still be looked at. `late` may end it earlier, by the clock."""

    left: int
    late: Callable[[], bool] = lambda: False

    def spend(self, layouts: int = 1) -> bool:
        """Take so many; False when there is none left."""
        self.left -= layouts
        if self.left % 64 < layouts and self.late():
            self.left = 0
        return self.left > 0


@dataclass
class Solution:
    """The best counts found, and the use of their fullest resource per source record."""

    counts: list[list[int]] | None = None
    fullest: float = inf


class Search:
    """One run of the algorithm."""

    def __init__(
        self, layout: Layout, compression: int, effort: Effort, solution: Solution, exact: bool
    ) -> None:
        self.layout = layout
        # A block must have a chance to fit into a place, and the tree must not become too deep.
        roomy = min(compression, max(place.cores for place in layout.flow.places))
        self.compression = max(roomy, -(-sum(layout.sizes) // MOST_BLOCKS))
        self.effort = effort
        self.solution = solution
        self.exact = exact
        self._twins = twins(layout.flow)
        self._consumers = [
            sorted({layout.flow.edges[e].receiver for e in layout.flow.out_of[k]})
            for k in layout.parts
        ]
        self._producers = [
            {layout.flow.edges[e].sender for e in layout.flow.into[k]} for k in layout.parts
        ]

    def run(self) -> bool:
        """Search; True when no better placement of this kind exists."""
        return self._explore([0] * len(self.layout.parts))

    def _explore(self, lowest: list[int]) -> bool:
        layout = self.layout
        k = next((k for k in layout.parts if layout.missing[k]), None)
        if k is None:
            fullest = layout.fullest()
            if fullest < self.solution.fullest * CLOSE:
                self.solution.fullest = fullest
                self.solution.counts = layout.copy_counts()
            return True
        # Without any solution the first dive goes on to its end, whatever it takes.
        if not self.effort.spend(len(layout.places)) and self.solution.counts is not None:
            return False
        finished = True
        for _, _, steps in self._branch(k, lowest[k]):
            self._do(steps)
            if layout.bound() < self.solution.fullest * CLOSE:
                kept = lowest[k]
                lowest[k] = steps[0][1]
                finished = self._explore(lowest) and finished
                lowest[k] = kept
            self._undo(steps)
        return finished

    def _branch(self, k: int, lowest: int) -> list[tuple[float, float, list[Step]]]:
        """The children to look at, the best first: (bound, room left, steps)."""
        size = 1 if self.exact else self._block(k)
        choices = self._distinct(k, lowest if self.exact else 0)
        alone = sorted(self._rate([(k, place, size)]) for place in choices)
        if self.exact:
            return alone
        together = self._pair(k, size, choices)
        if together is not None:
            return [together]
        if self._producers[k]:
            return alone[:1]
        return [child for child in alone if child[0] < self.solution.fullest * CLOSE]

    def _pair(
        self, k: int, size: int, choices: list[int]
    ) -> tuple[float, float, list[Step]] | None:
        """With the last block of k placed, a consumer may be ready: the best way for the two."""
        layout = self.layout
        if layout.missing[k] > size:
            return None
        for b in self._consumers[k]:
            ready = all(j == k or not layout.missing[j] for j in self._producers[b])
            if ready and layout.missing[b]:
                block = self._block(b)
                best = min(self._rate([(k, p, size), (b, p, block)]) for p in choices)
                if best[0] < self.solution.fullest * CLOSE:
                    return best
                first = min(self._rate([(k, p, size)]) for p in choices)
                self._do(first[2])
                second = min(self._rate([(b, p, block)]) for p in self._distinct(b, 0))
                self._undo(first[2])
                return (second[0], second[1], first[2] + second[2])
        return None

    def _block(self, k: int) -> int:
        """The next block: as even as the compression allows."""
        missing = self.layout.missing[k]
        return -(-missing // -(-missing // self.compression))

    def _distinct(self, k: int, lowest: int) -> list[int]:
        """The places that differ for a part; of equal ones the first.

        Exactly equal are twins with the same instances. Otherwise it is enough that the part costs
        the same there and that place, socket and node have as much to do.
        """
        layout = self.layout
        found: dict[object, int] = {}
        columns = list(zip(*layout.counts, strict=True))
        busy: dict[tuple[int, ...], float] = {}
        for place, cpu in zip(layout.flow.places, layout.cpu, strict=True):
            for key in ((place.node,), (place.node, place.socket)):
                busy[key] = busy.get(key, 0.0) + cpu
        for p, place in enumerate(layout.flow.places):
            same: tuple[object, ...] = (self._twins[p], columns[p])
            if not self.exact:
                loads = (layout.cost[k][p], layout.cpu[p], busy[place.node,])
                same = (place.cores, *loads, busy[place.node, place.socket])
            found.setdefault(same, p)
        return [p for p in found.values() if p >= lowest]

    def _rate(self, steps: list[Step]) -> tuple[float, float, list[Step]]:
        self._do(steps)
        bound = self.layout.bound()
        place = steps[-1][1]
        room = self.layout.flow.places[place].cores - self.layout.cpu[place] / bound
        self._undo(steps)
        return (bound, room, steps)

    def _do(self, steps: list[Step]) -> None:
        for k, place, instances in steps:
            self.layout.put(k, place, instances)

    def _undo(self, steps: list[Step]) -> None:
        for k, place, instances in reversed(steps):
            self.layout.put(k, place, -instances)


def ways(sizes: list[int], places: int) -> int:
    """How many placements there are when instances of a part are alike."""
    count = 1
    for size in sizes:
        count *= comb(size + places - 1, places - 1)
    return count
