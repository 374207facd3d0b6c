"""BriskStream's algorithm 2: placing given numbers of instances by branch and bound.

Its three heuristics: decisions are about pairs of producer and consumer that run together; a pair
whose producers are all placed goes where it does best (ties to the fullest place), any other pair
every way that differs (equal places only once); several instances of an operator are placed as one
block.

Beyond the paper: instances of an operator are never told apart, and placements that several ways
lead to are looked at once. The bound is tighter (`Layout.bound`). Two greedy dives come first,
one with smaller blocks, so that there is a solution to beat whatever the effort; then the tree is
searched depth first, best child first, with at first few and then more steps to other children than
the best, so that what effort there is does not all go to the leaves of the first way down. `exact`
goes without the first two heuristics: it branches to every place and then proves its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, inf

from tailrace.plan.search.effort import Effort
from tailrace.plan.search.layout import Layout, twins

CLOSE = 1 - 1e-9
"""A bound must be better than the best by more than rounding."""

MOST_BLOCKS = 300
Step = tuple[int, int, int]
"""Part, place, instances."""
Child = tuple[float, float, list[Step]]
"""Its bound, the room that it leaves in its last place, and how it is made."""


@dataclass
class Solution:
    """The best counts found, and the use of their fullest resource per source record."""

    counts: list[list[int]] | None = None
    fullest: float = inf


class Search:
    """One run of the algorithm. Greedy ways down to a first solution cost no effort."""

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
        self.most_children = 0
        """Of the nodes looked at so far."""
        self._seen: dict[tuple[tuple[int, ...], ...], float] = {}
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
        if self.exact:
            return self._explore(self._nowhere(), inf)
        self._dive()
        coarse = self.compression
        if coarse > 1 and self.effort.left > 0:
            self.compression = coarse // 2
            self._dive()
            self.compression = coarse
        slips = 1
        while not (finished := self._explore(self._nowhere(), slips)) and self.effort.left > 0:
            self._seen.clear()
            slips *= 2
        return finished

    def _nowhere(self) -> list[int]:
        return [0] * len(self.layout.parts)

    def _dive(self) -> None:
        """Each block where it does best, once down to a solution."""
        layout = self.layout
        done: list[Step] = []
        for k in layout.parts:
            while layout.missing[k]:
                size = self._block(k)
                best = min(self._rate([(k, place, size)]) for place in self._distinct(k, 0))
                self._do(best[2])
                done += best[2]
        self._keep_if_better()
        self._undo(done)

    def _keep_if_better(self) -> None:
        fullest = self.layout.fullest()
        if fullest < self.solution.fullest * CLOSE:
            self.solution.fullest = fullest
            self.solution.counts = self.layout.copy_counts()

    def _explore(self, lowest: list[int], slips: float) -> bool:
        """Go down from here; `slips` times a child that is not the best of its parent's."""
        layout = self.layout
        k = next((k for k in layout.parts if layout.missing[k]), None)
        if k is None:
            self._keep_if_better()
            return True
        if self.effort.left <= 0:
            return False
        finished = True
        children = self._alone(k, lowest[k]) if self.exact else self._branch(k)
        self.most_children = max(self.most_children, len(children))
        for nth, child in enumerate(children):
            if not self._may_win(child):
                break
            left = slips - (nth > 0)
            if left < 0:
                return False
            steps = child[2]
            self._do(steps)
            if self.exact or self._is_new(left):
                kept = lowest[k]
                lowest[k] = steps[0][1]
                finished = self._explore(lowest, left) and finished
                lowest[k] = kept
            self._undo(steps)
        return finished

    def _is_new(self, slips: float) -> bool:
        """Whether no other way with as many slips left led to the same counts."""
        counts = tuple(map(tuple, self.layout.counts))
        if self._seen.get(counts, -1) >= slips:
            return False
        self._seen[counts] = slips
        return True

    def _alone(self, k: int, lowest: int) -> list[Child]:
        """Every place for one more instance."""
        places = self._distinct(k, lowest)
        self.effort.spend(len(places))
        return sorted(self._rate([(k, place, 1)]) for place in places)

    def _branch(self, k: int) -> list[Child]:
        """A child, or several, for each decision about a block of k, the best first.

        k is the first part in the order of the streams that is not placed, so all before it are:
        with one of its producers it makes a decision that best fit takes. With each of its
        consumers it makes another one. If the consumer then has all that it fetches from, best fit
        takes it too; otherwise each way to place the two is a child.
        """
        layout, size, places = self.layout, self._block(k), self._distinct(k, 0)
        self.effort.spend(len(places))
        alone = sorted(self._rate([(k, place, size)]) for place in places)
        children = alone[:1] if self._producers[k] else alone
        for b in self._consumers[k]:
            if not layout.missing[b]:
                children = alone
                continue
            ready = layout.missing[k] == size and all(
                j == k or not layout.missing[j] for j in self._producers[b]
            )
            children = children + (
                self._best_fit(alone, b) if ready else self._placements(alone, b)
            )
        return sorted(children)

    def _best_fit(self, alone: list[Child], b: int) -> list[Child]:
        """The best place for both; each its own best if they do not do well together."""
        block = self._block(b)
        self.effort.spend(len(alone))
        together = min(self._rate([*steps, (b, steps[0][1], block)]) for _, _, steps in alone)
        if self._may_win(together):
            return [together]
        return self._placements(alone[:1], b)[:1]

    def _placements(self, alone: list[Child], b: int) -> list[Child]:
        """Each way to place a block of b beside what is placed, the best first."""
        block, found = self._block(b), []
        for child in filter(self._may_win, alone):
            self._do(child[2])
            places = self._distinct(b, 0)
            self._undo(child[2])
            self.effort.spend(len(places))
            found += [self._rate([*child[2], (b, place, block)]) for place in places]
        return sorted(found)

    def _may_win(self, child: Child) -> bool:
        return child[0] < self.solution.fullest * CLOSE

    def _block(self, k: int) -> int:
        """The next block: as even as the compression allows."""
        missing = self.layout.missing[k]
        return -(-missing // -(-missing // self.compression))

    def _distinct(self, k: int, lowest: int) -> list[int]:
        """The places that differ for a part; of equal ones the first.

        Exactly equal are twins with the same instances. Otherwise it is enough that places and
        sockets are as big, that the part costs the same there, and that place, socket and node have
        as much to do.
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
                socket = layout.flow.machine.nodes[place.node].sockets[place.socket]
                big = (place.cores, len(socket.cores), socket.memory_bytes_per_s)
                same = (*big, *loads, busy[place.node, place.socket])
            found.setdefault(same, p)
        return [p for p in found.values() if p >= lowest]

    def _rate(self, steps: list[Step]) -> Child:
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


def placements(sizes: list[int], places: int) -> int:
    """How many placements there are when instances of a part are alike."""
    count = 1
    for size in sizes:
        count *= comb(size + places - 1, places - 1)
    return count
