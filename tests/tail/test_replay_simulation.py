"""Runs are sent twice, workers stopped and killed, epochs cut between: each result exactly once.

A failing case is replayed by its seed: `Replayed(topology, seed, ...)`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import tailrace as tr
from tests.checkpoint.test_simulation import numbers
from tests.checkpoint.world import Exact, Ledger, World
from tests.seeds import seeds
from tests.tail.world import Replayed

SEEDS = seeds(500)


def line(ledger: Ledger) -> tr.Topology:
    """Stateless all the way, with sinks that are many."""
    topology = tr.Topology("line")
    stream = numbers(topology, "numbers", 300, 2)
    for name in ("one", "two"):
        stream = stream.shuffle().map(lambda n: n + 1, parallelism=3, name=name)
    stream.shuffle().sink(Exact(ledger), parallelism=3)
    return topology


def spread(ledger: Ledger) -> tr.Topology:
    """Runs grow, shrink, vanish and part on their way to states."""
    topology = tr.Topology("spread")
    some = numbers(topology, "numbers", 300, 2).shuffle().filter(lambda n: n % 3, parallelism=2)
    more = some.shuffle().flat_map(lambda n: [n] * (n % 4), parallelism=3, name="more")
    totals = more.key_by(lambda n: n % 5).fold(lambda total, n: (total or 0) + n, parallelism=3)
    totals.sink(Exact(ledger), parallelism=2)
    more.shuffle().sink(Exact(ledger), name="all", parallelism=2)
    return topology


def by_chance(ledger: Ledger) -> tr.Topology:
    """Copies of a run differ: whichever counts, it is all of one and nothing of the other."""
    topology = tr.Topology("by chance")
    chance = random.Random(0)

    def several(n: int) -> list[tuple[int, float, int]]:
        lot, many = chance.random(), chance.randrange(1, 4)
        return [(n, lot, many)] * many

    made = numbers(topology, "numbers", 300, 2).shuffle().flat_map(several, parallelism=3)
    made.key_by(lambda one: hash(one) % 7).process(Passing(), parallelism=3).sink(Exact(ledger))
    return topology


class Passing(tr.Operator):
    def process(self, record: Any) -> None:
        self.emit(record)


@cache
def undisturbed(make: Callable[[Ledger], tr.Topology]) -> Counter[str]:
    return Counter(map(repr, World(make, 0, every_s=1e9).run()))


def accepted(make: Callable[[Ledger], tr.Topology], results: Any) -> bool:
    if make is by_chance:
        of: dict[int, list[Any]] = {}
        for one in results:
            of.setdefault(one[0], []).append(one)
        return len(of) == 300 and all(
            len(some) == some[0][2] and len(set(some)) == 1 for some in of.values()
        )
    return Counter(map(repr, results)) == undisturbed(make)


TOPOLOGIES = [line, line, spread, by_chance]


@pytest.mark.parametrize("part", range(10))
def test_each_result_comes_once_though_runs_are_sent_twice(part: int) -> None:
    copies = won = 0
    for seed in range(part, SEEDS, 10):
        make = TOPOLOGIES[seed % len(TOPOLOGIES)]
        world = Replayed(
            make,
            seed,
            workers=2 + seed % 4,
            late_kills=seed % 3,
            every_s=(0.005, 0.02, 0.1, 1e9)[seed % 7 % 4],
        )
        try:
            results = world.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert accepted(make, results), f"seed {seed}"
        copies += world.copies
        won += world.won
    assert copies > SEEDS / 2, copies
    assert won > SEEDS / 10, "there is nothing to drop where copies never win"
