"""What routes would have done with given pairs of keys: by hand, and against a run through them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tailrace.routing.forecast import forecast, moved
from tailrace.routing.homes import Home
from tailrace.routing.keygraph import Load, loads
from tailrace.routing.pairs import PairCounts
from tailrace.routing.slots import Routes

HOMES = {name: [Home(0, 0), Home(0, 1), Home(1, 2)] for name in ("a", "b", "c")}


def by_table(keys: dict[Any, int]) -> Routes:
    return Routes(Routes.even(3).owners, keys)


def test_what_stays_in_its_worker_and_in_its_node() -> None:
    pairs = [PairCounts("a", "b", {("x", "p"): 5, ("x", "q"): 3, ("y", "q"): 2}, 10)]
    routes = {"a": by_table({"x": 0, "y": 2}), "b": by_table({"p": 0, "q": 1})}
    told = forecast(pairs, routes, HOMES)
    assert (told.local, told.near, told.inside) == (0.5, 0.3, 0.8)
    assert told.imbalance == {"a": pytest.approx(2.4), "b": pytest.approx(1.5)}


def test_records_of_unknown_keys_go_where_chance_has_them() -> None:
    told = forecast([PairCounts("a", "b", {}, 100)], {}, HOMES)
    assert told.local == pytest.approx(1 / 3, abs=0.001)
    assert told.near == pytest.approx(2 / 9, abs=0.001)
    assert told.worst_imbalance == pytest.approx(1, abs=0.001)


def test_a_row_of_operators_gets_what_the_one_before_sends() -> None:
    first = PairCounts("a", "b", {("x", "p"): 4, ("y", "p"): 1}, 5)
    second = PairCounts("b", "c", {("p", "m"): 10, ("q", "m"): 1}, 11)
    got = loads([first, second])
    assert got["a"] == Load({"x": 4, "y": 1}, 5)
    assert got["b"] == Load({"p": 5, "q": 1}, 6)
    assert got["c"] == Load({"m": 11}, 11)


def test_it_is_what_happens_to_records_that_take_these_ways() -> None:
    chance = random.Random(3)
    records = [(f"r{chance.randrange(9)}", f"t{chance.randrange(50)}") for _ in range(5000)]
    counts: dict[tuple[str, str], float] = {}
    for pair in records:
        counts[pair] = counts.get(pair, 0) + 1
    routes = {
        "a": by_table({f"r{i}": chance.randrange(3) for i in range(5)}),
        "b": by_table({f"t{i}": chance.randrange(3) for i in range(20)}),
    }
    local = sum(routes["a"].owner(one) == routes["b"].owner(other) for one, other in records)
    told = forecast([PairCounts("a", "b", counts, 5000)], routes, HOMES)
    assert told.local == pytest.approx(local / 5000)


def test_what_moves_is_told_by_keys_records_and_slots() -> None:
    pairs = [PairCounts("a", "b", {("x", "p"): 5, ("x", "q"): 3, ("y", "q"): 2}, 10)]
    before = {"a": by_table({"x": 0, "y": 2}), "b": by_table({"p": 0, "q": 1})}
    after = {"a": by_table({"x": 1, "y": 2}), "b": by_table({"p": 0, "q": 1})}
    move = moved(pairs, before, after, HOMES)
    assert (move.keys, move.share, move.slots) == (1, 0.4, 0)
    assert moved(pairs, before, before, HOMES).keys == 0
