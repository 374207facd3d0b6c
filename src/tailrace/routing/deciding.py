"""From counted pairs of keys to tables: the whole decision, as functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tailrace.routing.homes import Homes
from tailrace.routing.keygraph import (
    ALPHA,
    STANDARD_COSTS,
    Costs,
    KeyGraph,
    Keys,
    key_graph,
)
from tailrace.routing.pairs import PairCounts
from tailrace.routing.partition import Partition, partition
from tailrace.routing.slots import Routes
from tailrace.routing.tables import Table, Tables

MOST_KEYS = 1 << 20
"""In the table of an operator."""


def tables_for(
    pairs: Sequence[PairCounts],
    homes: Homes,
    before: Mapping[str, Routes] | None = None,
    *,
    alpha: float = ALPHA,
    costs: Costs = STANDARD_COSTS,
    most_keys: int = MOST_KEYS,
    solve: Callable[[KeyGraph], Partition] = partition,
) -> Tables:
    """Tables that keep what belongs together in one worker, or at least in one node.

    No instance gets more than `alpha` times the average of its operator, as far as the pairs tell
    and as keys allow; a key that is more than that has an instance of its own. Keys stay where
    they are `before` unless moving them pays; those of which nothing was seen lately do, while an
    operator has no more than `most_keys` in its table. `solve` may be what does the work in a
    process of its own.

    >>> from tailrace.routing.homes import Home
    >>> homes = {"region": [Home(0, 0), Home(1, 1)], "tag": [Home(0, 0), Home(1, 1)]}
    >>> seen = {("Asia", "java"): 90, ("Asia", "go"): 10, ("Europe", "go"): 95}
    >>> tables = tables_for([PairCounts("region", "tag", seen, total=195)], homes)
    >>> region, tag = tables["region"].routes(), tables["tag"].routes()
    >>> region.owner("Asia") == tag.owner("java") != region.owner("Europe") == tag.owner("go")
    True
    """
    graph, keys = key_graph(pairs, homes, before or {}, alpha, costs)
    return _as_tables(graph, keys, solve(graph), before or {}, most_keys)


def _as_tables(
    graph: KeyGraph, keys: Keys, found: Partition, before: Mapping[str, Routes], most_keys: int
) -> Tables:
    tables = {}
    for o, name in enumerate(keys.operators):
        first, last = int(graph.first[o]), int(graph.first[o + 1])
        apart = tuple(i for i in range(last - first) if found.apart[first + i])
        known = before.get(name) or Routes.even(last - first)
        without = set(range(last - first)) - set(apart) - set(known.owners)
        # An instance that had no slots for the sake of a hot key, which is no more, gets its own.
        slots = Routes.even(last - first) if without else Routes(known.owners)
        by_slots = Table(last - first, {}, apart).routes(slots)
        where = (found.where[graph.start[o] : graph.start[o + 1]] - first).tolist()
        chosen = dict(zip(keys.keys[o], where, strict=True))
        tables[name] = Table(
            last - first,
            _bounded(
                {k: i for k, i in known.keys.items() if k not in chosen and i not in apart},
                # Only what slots would send elsewhere needs a place in the table.
                {k: i for k, i in chosen.items() if by_slots.owner(k) != i},
                most_keys,
            ),
            apart,
        )
    return Tables(tables)


def _bounded(old: dict[Hashable, int], new: dict[Hashable, int], most: int) -> dict[Hashable, int]:
    """Both together; what is too much is left out, first of the old ones that are there longest."""
    surplus = max(len(old) + len(new) - most, 0)
    kept = dict(list(old.items())[surplus:]) | new
    return kept if len(kept) <= most else dict(list(kept.items())[:most])
