"""From a good layout to a better one: single instances move, swap, come, go and change their part.

A search from a layout ends where no such step helps. From there a few instances are thrown
elsewhere at random and the search goes on, as long as that pays. Where the whole space is small it
is then searched to its end.
"""

from __future__ import annotations

import random
from itertools import product

from tailrace.plan.model.flow import Flow
from tailrace.plan.search.branch_and_bound import CLOSE, Search, Solution, placements
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.improve import WORTH, improve
from tailrace.plan.search.layout import Layout, layout_of

KICK = 8
"""Instances that are thrown elsewhere at once."""
PATIENCE = 12
"""So many throws in a row may be in vain."""
SMALL = 50_000
"""So many placements are searched to the end."""
SMALL_SIZES = 2_000
"""So many replications are tried to the end."""


def refine(
    flow: Flow, start: Solution, free: list[int], limit: int, effort: Effort, chance: random.Random
) -> Solution:
    """The best layout found from here. Only parts in `free` change their size."""
    assert start.counts is not None
    best = start
    counts = start.counts
    patience = PATIENCE
    while True:
        layout = layout_of(flow, counts)
        improve(layout, effort)
        while effort.left > 0:
            better = _resized(layout, free, limit, effort)
            if better is None:
                break
            layout = better
            improve(layout, effort)
        fullest = layout.fullest()
        patience = PATIENCE if fullest < best.fullest * CLOSE else patience - 1
        if fullest <= best.fullest:
            best = Solution(layout.copy_counts(), fullest)
        if effort.left <= 0 or patience == 0:
            return best
        assert best.counts is not None
        counts = _thrown(best.counts, free, limit, chance)


def _thrown(
    counts: list[list[int]], free: list[int], limit: int, chance: random.Random
) -> list[list[int]]:
    """Some instances elsewhere; a few of them come, go, or become those of another part."""
    counts = [row.copy() for row in counts]
    everywhere = range(len(counts[0]))
    for _ in range(min(KICK, 1 + sum(map(sum, counts)) // 3)):
        sizes = [sum(row) for row in counts]
        k = chance.choices(range(len(counts)), sizes)[0]
        place = chance.choices(everywhere, counts[k])[0]
        to = chance.choice(everywhere)
        kind = chance.choice(("move", "move", "move", "change", "come", "go"))
        may_go = k in free and sizes[k] > 1
        if kind == "come" and free and sum(sizes) < limit:
            counts[chance.choice(free)][to] += 1
        elif kind == "change" and may_go:
            counts[k][place] -= 1
            counts[chance.choice(free)][to] += 1
        elif kind == "go" and may_go:
            counts[k][place] -= 1
        else:
            counts[k][place] -= 1
            counts[k][to] += 1
    return counts


def _resized(layout: Layout, free: list[int], limit: int, effort: Effort) -> Layout | None:
    """The layout with one instance more, or exchanged for one of another part, if that helps."""
    flow = layout.flow
    scale = layout.fullest()
    now = layout.strain(scale)
    use = [
        max(cost for cost, n in zip(layout.cost[k], layout.counts[k], strict=True) if n)
        / layout.sizes[k]
        for k in layout.parts
    ]
    growing = sorted(free, key=lambda k: -use[k])
    shrinking: list[int | None] = [None]
    if sum(layout.sizes) >= limit:
        shrinking = [*sorted(free, key=use.__getitem__)]
    for k, j in product(growing, shrinking):
        counts = layout.copy_counts()
        if j is not None:
            fewer = layout.sizes[j] - 1
            if j == k or fewer == 0 or use[j] * (fewer + 1) / fewer > scale:
                continue
            row = counts[j]
            row[max((p for p in layout.places if row[p]), key=layout.cpu.__getitem__)] -= 1
        at = max(layout.places, key=counts[k].__getitem__)
        counts[k][at] += 1
        changed = layout_of(flow, counts)
        changed.put(k, at, -1)
        best = (now * WORTH, -1)
        for q in layout.places:
            if effort.spend():
                changed.put(k, q, 1)
                best = min(best, (changed.strain(scale), q))
                changed.put(k, q, -1)
        if best[1] >= 0:
            changed.put(k, best[1], 1)
            return changed
    return None


def search_to_the_end(
    flow: Flow, best: Solution, free: list[int], limit: int, effort: Effort
) -> bool:
    """Search a small space exactly, and put what is better into `best`.

    True when that was all of it: no replication within the limit has a better placement.
    """
    assert best.counts is not None
    sizes = [sum(row) for row in best.counts]
    if placements(sizes, len(flow.places)) > SMALL:
        return False
    every = _all_sizes(flow, free, limit)
    finished = every is not None
    for other in [sizes, *(every or [])]:
        layout = Layout(flow, other)
        if layout.bound() < best.fullest * CLOSE:
            small = placements(other, len(flow.places)) <= SMALL
            finished = small and Search(layout, 1, effort, best, exact=True).run() and finished
    return finished


def _all_sizes(flow: Flow, free: list[int], limit: int) -> list[list[int]] | None:
    """Every replication within the limit, the most instances first; None if there are many."""
    room = limit - sum(len(part.instances) for k, part in enumerate(flow.parts) if k not in free)
    most = room - len(free) + 1
    if most ** len(free) > SMALL_SIZES:
        return None
    found = []
    for choice in product(range(1, most + 1), repeat=len(free)):
        if sum(choice) <= room:
            sizes = [len(part.instances) for part in flow.parts]
            for k, size in zip(free, choice, strict=True):
                sizes[k] = size
            found.append(sizes)
    return sorted(found, key=lambda sizes: -sum(sizes))
