"""The parts of the locality benchmark: drift, tuples, and what is made of them."""

from __future__ import annotations

from itertools import islice

import pytest

from locality_parts.drift import REGION, TAG, Drift
from locality_parts.tuples import FIRST, HASH, LOCAL, SECOND, WORST, Tuples, placement, tables
from locality_parts.weeks import HASH as BY_HASH
from locality_parts.weeks import OFFLINE, ONLINE, counted, edges_for_half, figure_11, figure_12

SMALL = Drift(regions=100, tags=2000, posts=15_000, seed=3)


def test_weeks_follow_from_the_seed_and_drift_apart() -> None:
    first, again = (list(islice(SMALL.weeks(), 3)) for _ in range(2))
    assert first == again
    assert all(one.total == sum(one.counts.values()) == 15_000 for one in first)
    tags = [{tag for _, tag in one.counts} for one in first]
    shared = [len(tags[0] & some) / len(tags[0]) for some in tags]
    assert shared[0] == 1 > shared[1] > shared[2] > 0.4


def test_sketches_of_all_instances_have_counted_the_records() -> None:
    pairs = next(SMALL.weeks())
    seen = counted(pairs, {}, 3)
    assert (seen.source, seen.target, seen.total) == (REGION, TAG, 15_000)
    assert seen.counts == pairs.counts


def test_tables_that_follow_the_drift_keep_more_together() -> None:
    weeks = figure_11(SMALL, 6, servers=4)
    last = weeks[-1].locality
    assert weeks[0].locality[ONLINE] == weeks[0].locality[BY_HASH]
    assert last[BY_HASH] < last[OFFLINE] < last[ONLINE] < weeks[-1].expected


def test_more_edges_bring_more_and_few_bring_half() -> None:
    by_edges = figure_12(SMALL, [4], [50, 500, 10**6])[4]
    assert by_edges[0] < by_edges[50] < by_edges[500] < by_edges[10**6] + 0.02
    assert edges_for_half({0: 0.2, 10: 0.25, 100: 0.4, 1000: 0.5}) == 100


@pytest.mark.parametrize("locality", [0.6, 1.0])
def test_tuples_stay_together_as_often_as_they_should(locality: float) -> None:
    servers, make = 3, Tuples(3, locality, 10)
    some = [make(i) for i in range(30_000)]
    assert {len(padding) for _, _, padding in some} == {10}
    expected = {LOCAL: locality, WORST: (1 - locality) / (servers - 1)}
    for routing, share in expected.items():
        made = tables(routing, servers)
        assert made is not None
        first, second = made[FIRST].routes(), made[SECOND].routes()
        stay = sum(first.owner(one) == second.owner(other) for one, other, _ in some)
        assert stay / len(some) == pytest.approx(share, abs=0.02)
        assert all(first.owner(one) == i % servers for i, (one, _, _) in enumerate(some))
    assert tables(HASH, servers) is None
    assert placement(2) == (0, 1, 0, 1, 0, 1)
