"""The best split of a small graph, proven: branch and bound."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.plan.model.weighted import Weighted
from tailrace.plan.search.balance import Balance
from tailrace.plan.search.effort import Effort


def proven_split(
    graph: Weighted, balance: Balance, known: Sequence[int], effort: Effort
) -> tuple[list[int], bool]:
    """The split within the balance that cuts least, and whether all others were ruled out.

    `known` is a split within the balance; it comes back if nothing better was found before the
    steps were used up. Vertices that exchange most come first. A branch ends when what it cuts
    already, and what each vertex still to come must cut wherever it goes, is no better than the
    best known, or when the loads to come cannot fill the parts.
    """
    best = list(known)
    best_cut = graph.cut(known)
    sequence = sorted(range(graph.size), key=lambda v: (-sum(graph.flows[v].values()), v))
    parts = range(len(balance.shares))
    to_come = [0.0] * (graph.size + 1)
    for depth in reversed(range(graph.size)):
        to_come[depth] = to_come[depth + 1] + graph.loads[sequence[depth]]
    part_of = [-1] * graph.size
    load = [0.0] * len(parts)
    pull = [[0.0] * len(parts) for _ in range(graph.size)]

    def search(depth: int, cut: float) -> None:
        nonlocal best, best_cut
        if depth == graph.size:
            if cut < best_cut and balance.excess(load) == 0.0:
                best, best_cut = part_of.copy(), cut
            return
        effort.spend(graph.size)
        missing = sum(max(low - have, 0.0) for low, have in zip(balance.low, load, strict=True))
        if missing > to_come[depth] * (1 + 1e-9):
            return
        at_least = sum(sum(pull[v]) - max(pull[v]) for v in sequence[depth:])
        if cut + at_least >= best_cut * (1 - 1e-9):
            return
        vertex = sequence[depth]
        all_pull = sum(pull[vertex])
        empty: set[float] = set()
        for part in sorted(parts, key=lambda p: (-pull[vertex][p], p)):
            if effort.left <= 0:
                return
            if load[part] + graph.loads[vertex] > balance.high[part]:
                continue
            if part not in part_of:
                # Empty parts of equal capacity are alike; one of them is enough.
                if balance.shares[part] in empty:
                    continue
                empty.add(balance.shares[part])
            part_of[vertex] = part
            before = load[part]
            load[part] += graph.loads[vertex]
            for near, flow in graph.flows[vertex].items():
                pull[near][part] += flow
            search(depth + 1, cut + all_pull - pull[vertex][part])
            for near, flow in graph.flows[vertex].items():
                pull[near][part] -= flow
            load[part] = before
            part_of[vertex] = -1

    if graph.size:
        search(0, 0.0)
    return best, effort.left > 0
