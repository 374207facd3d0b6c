"""Epochs and kills with records in shared queues, and modes that change: all exactly once.

A failing case is replayed by its seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tailrace as tr
from tailrace.tail.modes import MODES, SHUFFLED, Tail
from tests.checkpoint.test_simulation import number_in, numbers
from tests.checkpoint.world import Exact, Ledger, Stuck, World
from tests.seeds import seeds


def dealt(tail: Tail) -> Callable[[Ledger], tr.Topology]:
    """Dealt twice, then counted; some cannot be sent, and come out as dead letters."""

    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("dealt")
        first = numbers(topology, "numbers", 60).shuffle(tail=tail)
        made = first.map(
            lambda n: Stuck(n) if n % 10 == 3 else n,
            parallelism=3,
            name="made",
            on_error="dead letter",
        )
        dead = (
            made.dead_letters().shuffle(tail=tail).map(lambda one: number_in(one[0]), name="dead")
        )
        dead.sink(Exact(ledger), parallelism=1)
        got = made.local_or_shuffle(tail=tail).map(number_in, name="got", parallelism=2)
        keyed = got.key_by(lambda n: n % 7)
        totals = keyed.fold(lambda total, n: (total or 0) + n, parallelism=2)
        totals.sink(Exact(ledger), parallelism=2)
        return topology

    return make


class Fickle(World):
    """Streams are dealt in another way now and then; each worker hears of it at another time."""

    def turn(self, rank: int) -> bool:
        core = self.cores[rank]
        deployment = core.deployment
        for number, stream in enumerate(deployment.graph.streams):
            shuffled = stream.grouping.rule in SHUFFLED and number in deployment.gates
            if shuffled and self.chance.random() < 0.02:
                core.set_tail(number, random.Random(self.chance.random()).choice(MODES))
        return super().turn(rank)


def all_once(results: Iterable[Any]) -> bool:
    """Every number is in a dead letter or in a sum, once; which depends on who sits where."""
    found: int = sum(one[1] if isinstance(one, tuple) else one for one in results)
    return found == sum(range(60))


@pytest.mark.parametrize("tail", MODES)
@pytest.mark.parametrize("part", range(4))
def test_every_record_counts_once_whoever_is_killed(tail: Tail, part: int) -> None:
    for seed in range(part, seeds(160), 4):
        world = World(
            dealt(tail),
            seed,
            workers=1 + seed % 4,
            kills=seed % 5,
            every_s=(0.01, 0.03, 0.2)[seed % 3],
            refusals=(0.0, 0.0, 0.02)[seed % 7 % 3],
        )
        assert all_once(world.run()), f"seed {seed}"


@pytest.mark.parametrize("part", range(4))
def test_every_record_counts_once_while_modes_change(part: int) -> None:
    for seed in range(part, seeds(200), 4):
        world = Fickle(
            dealt("off"), seed, workers=1 + seed % 4, kills=seed % 4, every_s=(0.01, 0.03)[seed % 2]
        )
        assert all_once(world.run()), f"seed {seed}"


@pytest.mark.parametrize("seed", range(40))
def test_windows_behind_a_shared_queue_lose_nothing(seed: int) -> None:
    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("windows")
        timed = numbers(topology, "numbers", 60).event_time(lambda n: n, max_delay_s=4)
        passed = timed.shuffle(tail="shared").filter(lambda n: True, parallelism=3)
        windowed = passed.key_by(lambda n: n % 3).window(tr.tumbling(10))
        windowed.aggregate(lambda count, n: (count or 0) + 1, parallelism=2).sink(
            Exact(ledger), parallelism=2
        )
        return topology

    results = World(make, seed, workers=1 + seed % 4, kills=seed % 4, every_s=0.02).run()
    whole = World(make, 0, every_s=1e9).run()
    assert Counter(map(repr, results)) == Counter(map(repr, whole))
    assert sum(one.value for one in results) == 60
