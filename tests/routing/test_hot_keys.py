"""Keys that are more than their share of an operator have an instance of their own."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailrace.routing.deciding import tables_for
from tailrace.routing.forecast import forecast
from tailrace.routing.homes import side_by_side
from tailrace.routing.keygraph import ALPHA
from tailrace.routing.pairs import PairCounts
from tailrace.routing.slots import Routes


def hot_keys(weights: dict[Any, float], parts: int) -> list[Any]:
    """Heaviest first: each that is more than a part of what is left may have; one part is left."""
    rest, left, found = sum(weights.values()), parts, []
    for key in sorted(weights, key=lambda key: -weights[key]):
        if left <= 1 or weights[key] <= ALPHA * rest / left:
            break
        found.append(key)
        rest -= weights[key]
        left -= 1
    return found


@given(
    st.lists(st.integers(1, 60), min_size=4, max_size=30),
    st.lists(st.integers(200, 2000), max_size=3),
    st.integers(2, 6),
)
@settings(max_examples=80, deadline=None)
def test_hot_keys_are_alone_without_slots_and_the_rest_is_even(
    cool: list[int], hot: list[int], parts: int
) -> None:
    weights = {f"k{i}": float(w) for i, w in enumerate([*hot, *cool])}
    counts = {(key, f"t{i}"): w for i, (key, w) in enumerate(weights.items())}
    pairs = [PairCounts("a", "b", counts, sum(weights.values()))]
    homes = side_by_side(["a", "b"], parts)
    expected = hot_keys(weights, parts)
    assume(len(set(weights.values())) == len(weights))
    table = tables_for(pairs, homes)["a"]
    routes = table.routes()
    owners = {key: routes.owner(key) for key in weights}
    assert len(table.apart) == len(expected)
    assert {owners[key] for key in expected} == set(table.apart)
    for key, owner in owners.items():
        assert (owner in table.apart) == (key in expected)
    assert not set(table.apart) & set(routes.owners)
    assert routes.owner("never seen") not in table.apart


def test_two_hot_keys_that_belong_together_share_a_worker_and_stay_there() -> None:
    counts = {("hot", "hot too"): 900.0} | {(f"a{i}", f"b{i}"): 20.0 for i in range(30)}
    pairs = [PairCounts("a", "b", counts, 1500.0)]
    homes = side_by_side(["a", "b"], 3)
    before: dict[str, Routes] = {}
    for _ in range(3):
        tables = tables_for(pairs, homes, before)
        routes = {name: tables[name].routes(before.get(name)) for name in tables}
        mine = routes["a"].owner("hot")
        assert mine == routes["b"].owner("hot too")
        assert not before or mine == before["a"].owner("hot")
        assert tables["a"].apart == tables["b"].apart == (mine,)
        before = routes
    told = forecast(pairs, before, homes)
    assert told.local > 0.95
