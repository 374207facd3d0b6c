"""Better splits than algorithm 2 finds: moves as Fiduccia and Mattheyses make them, many starts.

A split is better than another when it is nearer to its balance, and among equally balanced ones
when less flow is cut. Nothing here ever makes a split worse in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import inf

from tailrace.plan.model.weighted import Weighted
from tailrace.plan.search.balance import Balance, carried, deal_by_load
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.split import assign, consolidated

_PATIENCE = 60
"""Moves that a pass goes on without having got better than at its best."""
_KEPT = 4
"""Splits of the top level that are followed down."""
_FEW = 4
"""Parts that are filled in all their orders."""


def quality(graph: Weighted, balance: Balance, part_of: Sequence[int]) -> tuple[float, float]:
    """How far the split is from its balance, and what it cuts. Less is better."""
    loads = carried(graph.loads, part_of, len(balance.shares))
    return balance.excess(loads), graph.cut(part_of)


def refine(graph: Weighted, balance: Balance, part_of: Sequence[int], effort: Effort) -> list[int]:
    """Move single vertices, pass after pass, for as long as a pass makes the split better.

    A pass moves each vertex at most once, the best move first even where that makes things worse
    for a while, and then goes back to the best split it has seen. When a move has broken the
    balance, the next ones must mend it: so vertices change places where none may move alone.
    """
    current = list(part_of)
    now = quality(graph, balance, current)
    while effort.left > 0:
        better = _Pass(graph, balance, current).run(now, effort)
        after = quality(graph, balance, better)
        if not after < now:
            break
        current, now = better, after
    return current


class _Pass:
    def __init__(self, graph: Weighted, balance: Balance, part_of: list[int]) -> None:
        self._graph = graph
        self._balance = balance
        self._part_of = part_of.copy()
        self._parts = len(balance.shares)
        self._load = carried(graph.loads, part_of, self._parts)
        # One part too light and one too heavy, by no more than what a single move brings back.
        self._mendable = 2 * max(graph.loads, default=0.0)
        self._free = set(range(graph.size))
        # What flows between a vertex and each part.
        self._pull = [[0.0] * self._parts for _ in range(graph.size)]
        for vertex, near in enumerate(graph.flows):
            for other, flow in near.items():
                self._pull[vertex][part_of[other]] += flow

    def run(self, now: tuple[float, float], effort: Effort) -> list[int]:
        """The best split seen; the one it began with if none was better."""
        best, (excess, cut) = now, now
        moved: list[tuple[int, int]] = []
        kept = 0
        while self._free and len(moved) - kept < _PATIENCE and effort.left > 0:
            effort.spend(len(self._free) * self._parts)
            choice = self._mend() if excess else self._choose()
            if choice is None:
                break
            gain, vertex, to = choice
            moved.append((vertex, self._part_of[vertex]))
            self._move(vertex, to)
            effort.spend(len(self._graph.flows[vertex]))
            excess, cut = self._balance.excess(self._load), cut - gain
            if excess < best[0] or (excess == best[0] and cut < best[1] - abs(best[1]) * 1e-9):
                best, kept = (excess, cut), len(moved)
        for vertex, origin in reversed(moved[kept:]):
            self._part_of[vertex] = origin
        return self._part_of

    def _choose(self) -> tuple[float, int, int] | None:
        """The move that gains most among those that one more move could mend."""
        best: tuple[float, int, int] | None = None
        best_gain, best_harm = -inf, 0.0
        for vertex in sorted(self._free):
            origin, load = self._part_of[vertex], self._graph.loads[vertex]
            pull = self._pull[vertex]
            here = pull[origin]
            for to in range(self._parts):
                gain = pull[to] - here
                if to == origin or gain < best_gain:
                    continue
                harm = self._miss(origin, -load) + self._miss(to, load)
                if harm <= self._mendable and (gain > best_gain or harm < best_harm):
                    best, best_gain, best_harm = (gain, vertex, to), gain, harm
        return best

    def _mend(self) -> tuple[float, int, int] | None:
        """The move that gains most among those that bring the split nearer to its balance."""
        best: tuple[float, int, int] | None = None
        missed = [self._miss(part, 0.0) for part in range(self._parts)]
        for vertex in sorted(self._free):
            origin, load = self._part_of[vertex], self._graph.loads[vertex]
            pull = self._pull[vertex]
            here = pull[origin]
            leaving = self._miss(origin, -load) - missed[origin]
            for to in range(self._parts):
                gain = pull[to] - here
                if to == origin or (best is not None and gain <= best[0]):
                    continue
                if leaving + self._miss(to, load) - missed[to] < -1e-9 * self._mendable:
                    best = (gain, vertex, to)
        return best

    def _miss(self, part: int, more: float) -> float:
        load = self._load[part] + more
        return max(load - self._balance.high[part], self._balance.low[part] - load, 0.0)

    def _move(self, vertex: int, to: int) -> None:
        origin = self._part_of[vertex]
        self._part_of[vertex] = to
        self._load[origin] -= self._graph.loads[vertex]
        self._load[to] += self._graph.loads[vertex]
        self._free.discard(vertex)
        for near, flow in self._graph.flows[vertex].items():
            self._pull[near][origin] -= flow
            self._pull[near][to] += flow


def best_split(
    graph: Weighted, capacities: Sequence[float], factor: float, threshold: int, effort: Effort
) -> list[int]:
    """The best split found from the paper's, from one by load alone, and from many grown ones.

    It is within `Balance.of(graph.loads, capacities, factor)` always, and never worse than what
    `assign` finds.
    """
    balance = Balance.of(graph.loads, capacities, factor)
    half = effort.left / 2
    found = [
        assign(graph, capacities, factor, threshold, effort),
        deal_by_load(graph.loads, balance.shares),
        # Instances are numbered along the streams.
        *_fill(graph, range(graph.size), balance.shares),
    ]
    # A parent heavier than this would leave no choice to those who balance.
    heaviest = max(max(graph.loads), 1.5 * sum(graph.loads) / threshold)
    tree = consolidated(graph, threshold, effort, heaviest)
    for part_of in _best_at_top(tree.top, capacities, factor, effort, half):
        for level in reversed(tree.levels):
            part_of = [part_of[parent] for parent in level.parent_of]
            nearer = Balance.of(level.graph.loads, capacities, factor)
            part_of = refine(level.graph, nearer, part_of, effort)
        found.append(part_of)
    found.sort(key=lambda part_of: quality(graph, balance, part_of))
    found = [refine(graph, balance, part_of, effort) for part_of in found]
    return min(found, key=lambda part_of: quality(graph, balance, part_of))


def _best_at_top(
    top: Weighted, capacities: Sequence[float], factor: float, effort: Effort, spare: float
) -> list[list[int]]:
    """A few splits, the best of those grown from every vertex while more than `spare` is left."""
    balance = Balance.of(top.loads, capacities, factor)
    grown = []
    for start in range(top.size):
        if effort.left <= spare:
            break
        for filled in _fill(top, _grow(top, start), balance.shares):
            split = refine(top, balance, filled, effort)
            grown.append((quality(top, balance, split), split))
    return [split for _, split in sorted(grown)[:_KEPT]]


def _grow(graph: Weighted, start: int) -> list[int]:
    """All vertices, each the one that those before it exchange most with."""
    drawn = dict.fromkeys(range(graph.size), 0.0)
    order = []
    vertex = start
    while True:
        del drawn[vertex]
        order.append(vertex)
        if not drawn:
            return order
        for near, flow in graph.flows[vertex].items():
            if near in drawn:
                drawn[near] += flow
        vertex = max(drawn, key=lambda v: (drawn[v], -v))


def _fill(graph: Weighted, order: Sequence[int], shares: Sequence[float]) -> Iterator[list[int]]:
    """Parts filled one after the other in this order of the vertices."""
    for sequence in _sequences(shares):
        part_of = [sequence[-1]] * graph.size
        remaining = iter(sequence[:-1])
        part = next(remaining, None)
        load = 0.0
        for vertex in order:
            while part is not None and load + graph.loads[vertex] / 2 > shares[part]:
                load -= shares[part]
                part = next(remaining, None)
            if part is None:
                break
            part_of[vertex] = part
            load += graph.loads[vertex]
        yield part_of


def _sequences(shares: Sequence[float]) -> list[tuple[int, ...]]:
    """The orders to go through the parts: all that differ, or of many parts there and back."""
    parts = tuple(range(len(shares)))
    orders = permutations(parts) if len(parts) <= _FEW else (parts, parts[::-1])
    return list({tuple(shares[p] for p in order): order for order in orders}.values())
