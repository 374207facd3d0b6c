"""Figures 11 and 12: locality and balance over weeks of drifting posts, and by edges considered.

Records are not sent; where each would go follows from tables and hashes alone. On-line tables are
made of what the product's own sketches have counted, one of 1 MB for each instance.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from locality_parts.drift import REGION, TAG, Drift
from tailrace.adapt.locality import LocalityPolicy
from tailrace.routing.deciding import tables_for
from tailrace.routing.forecast import forecast, moved
from tailrace.routing.homes import Homes, side_by_side
from tailrace.routing.pairs import PairCounts, Sketched, merged
from tailrace.routing.sketch import PairSketch
from tailrace.routing.slots import Routes
from tailrace.runtime.pair_counting import SKETCH_BYTES

HASH, OFFLINE, ONLINE, POLICY = "hash", "offline", "online", "policy"
CONTESTANTS = (HASH, OFFLINE, ONLINE, POLICY)
SERVERS = 6
_RATE = 100_000.0
_WEEK_S = 120.0
"""For the policy, which is asked every two minutes at this rate."""


@dataclass(frozen=True)
class Week:
    """What the records of one week did, by contestant."""

    locality: dict[str, float]
    imbalance: dict[str, float]
    expected: float
    """The locality that the on-line tables promise, by the records that they are made of."""
    moved: int
    """Keys that have another place by them."""
    policy_changed: bool


def figure_11(drift: Drift, weeks: int, servers: int = SERVERS) -> list[Week]:
    """Off-line: tables of the first week's exact counts. On-line: new ones after every week."""
    homes = side_by_side([REGION, TAG], servers)
    routes: dict[str, dict[str, Routes]] = {name: {} for name in CONTESTANTS}
    policy = LocalityPolicy()
    found = []
    for number, pairs in enumerate(islice(drift.weeks(), weeks)):
        told = {name: forecast([pairs], routes[name], homes) for name in CONTESTANTS}
        if number == 0:
            routes[OFFLINE] = _tabled(pairs, homes, {})
        seen = {name: counted(pairs, routes[name], servers, number) for name in (ONLINE, POLICY)}
        before = routes[ONLINE]
        routes[ONLINE] = _tabled(seen[ONLINE], homes, before)
        now_s = number * _WEEK_S
        decision = policy.decide(now_s, [seen[POLICY]], homes, routes[POLICY], _RATE)
        if decision.tables is not None:
            policy.begin(now_s, decision)
            routes[POLICY] = {
                name: decision.tables[name].routes(routes[POLICY].get(name))
                for name in decision.tables
            }
            policy.done(now_s, decision.keys / policy.changes.keys_per_s, decision.keys)
        found.append(
            Week(
                {name: one.local for name, one in told.items()},
                {name: one.worst_imbalance - 1 for name, one in told.items()},
                forecast([seen[ONLINE]], routes[ONLINE], homes).local,
                moved([pairs], before, routes[ONLINE], homes).keys,
                decision.tables is not None,
            )
        )
    return found


def counted(
    pairs: PairCounts, routes: dict[str, Routes], servers: int, seed: int = 0
) -> PairCounts:
    """What the sketches of the first operator's instances have of these records, in any order."""
    owner = routes.get(REGION) or Routes.even(servers)
    sketches = [PairSketch(SKETCH_BYTES) for _ in range(servers)]
    records = [pair for pair, count in pairs.counts.items() for _ in range(round(count))]
    random.Random(seed).shuffle(records)
    homes: dict[str, PairSketch] = {}
    for region, tag in records:
        sketch = homes.get(region)
        if sketch is None:
            sketch = homes[region] = sketches[owner.owner(region)]
        sketch.add(region, tag)
    told = [Sketched(REGION, TAG, one.counts(), one.total, one.floor) for one in sketches]
    return merged(told)[0]


def figure_12(
    drift: Drift, parallelisms: Sequence[int], most_edges: Sequence[int]
) -> dict[int, dict[int, float]]:
    """By parallelism and edges considered, the heaviest first: the locality of the next week."""
    first, second = islice(drift.weeks(), 2)
    found: dict[int, dict[int, float]] = {}
    for servers in parallelisms:
        homes = side_by_side([REGION, TAG], servers)
        found[servers] = {0: forecast([second], {}, homes).local}
        for edges in most_edges:
            routes = _tabled(first.heaviest(edges), homes, {})
            found[servers][edges] = forecast([second], routes, homes).local
    return found


def edges_for_half(by_edges: dict[int, float]) -> int:
    """Of those that were tried, the least number that brings half of what all of them bring."""
    without, with_all = by_edges[0], by_edges[max(by_edges)]
    half = without + (with_all - without) / 2
    return min(edges for edges, locality in by_edges.items() if edges and locality >= half)


def _tabled(pairs: PairCounts, homes: Homes, before: dict[str, Routes]) -> dict[str, Routes]:
    tables = tables_for([pairs], homes, before)
    return {name: tables[name].routes(before.get(name)) for name in tables}
