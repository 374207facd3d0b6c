"""Making a complete layout better by moving and swapping single instances."""

from __future__ import annotations

from tailrace.plan.search.effort import Effort
from tailrace.plan.search.layout import Layout

WORTH = 1 - 1e-3
"""A smaller gain is not worth the steps it would take."""


def improve(layout: Layout, effort: Effort) -> None:
    """Move and swap instances while that relieves the fullest resources. Never makes it worse."""
    while effort.left > 0 and (_move(layout, effort) or _swap(layout, effort)):
        pass


def _occupied(layout: Layout) -> list[tuple[int, int]]:
    return [(k, p) for k in layout.parts for p in layout.places if layout.counts[k][p]]


def _move(layout: Layout, effort: Effort) -> bool:
    """Take every move that helps, once round; whether there was one."""
    scale = layout.fullest()
    now = layout.strain(scale)
    moved = False
    for k, p in _occupied(layout):
        best = (now * WORTH, -1)
        layout.put(k, p, -1)
        # If all is as full without it, no other place can help. (Where rates depend on places,
        # nothing can be said before all are placed.)
        hopeful = layout.flow.has_local or layout.strain(scale) < best[0]
        for q in layout.places:
            if hopeful and q != p and effort.spend():
                layout.put(k, q, 1)
                best = min(best, (layout.strain(scale), q))
                layout.put(k, q, -1)
        q = best[1]
        layout.put(k, p if q < 0 else q, 1)
        if q >= 0:
            now, moved = best[0], True
    return moved


def _swap(layout: Layout, effort: Effort) -> bool:
    """Take the first swap that helps, out of the place with the most work."""
    scale = layout.fullest()
    now = layout.strain(scale)
    full = max(layout.places, key=lambda p: layout.cpu[p] / layout.flow.places[p].cores)
    everyone = _occupied(layout)
    for k in (k for k, p in everyone if p == full):
        for j, q in everyone:
            if q == full or j == k or not effort.spend():
                continue
            steps = ((k, full, -1), (j, q, -1), (k, q, 1), (j, full, 1))
            for step in steps:
                layout.put(*step)
            if layout.strain(scale) < now * WORTH:
                return True
            for part, place, instances in reversed(steps):
                layout.put(part, place, -instances)
    return False
