"""Workers follow loads that stay, and not bursts or noise: loads simulated by seeds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import tailrace as tr
from tailrace.adapt.elastic import ElasticPolicy, Size, Use, by_model, by_use
from tailrace.plan.model.machine import cluster
from tailrace.plan.model.profile import OperatorProfile, Profile, Work
from tailrace.plan.schedulers.by_name import scheduler

WORK_US = {"split": 10.0, "count": 20.0}
Demand = Callable[[float], float]


class World:
    """A job of two operators, looked at every second; workers do what they can, and no more."""

    def __init__(self, policy: ElasticPolicy, workers: int, noise: float = 0.0, seed: int = 0):
        self.policy = policy
        self.workers = workers
        self.noise = noise
        self.chance = random.Random(seed)
        self.now_s = 0.0
        self.changes: list[tuple[float, int]] = []
        self.lost = 0.0
        """Records that came and could not be taken in their second."""

    def run(self, seconds: int, demand: Demand) -> None:
        for second in range(seconds):
            self.now_s += 1.0
            wanted = demand(second) * max(self.chance.gauss(1.0, self.noise), 0.0)
            full = self.workers / (sum(WORK_US.values()) / 1e6)
            rate = min(wanted, full)
            self.lost += wanted - rate
            cores = {name: us * rate / 1e6 for name, us in WORK_US.items()}
            use = Use(rate, cores, throttled=wanted > full)
            decision = self.policy.decide(self.now_s, use, self.workers)
            if decision.size is not None:
                self.workers = decision.size.workers
                self.policy.changed()
                self.changes.append((self.now_s, self.workers))


def rate_for(workers: float) -> float:
    """What fills so many workers to what they should be."""
    return workers * 0.8 / (sum(WORK_US.values()) / 1e6)


@pytest.mark.parametrize("seed", range(10))
def test_a_load_that_doubles_and_halves_is_followed_both_ways_without_flapping(seed: int) -> None:
    world = World(ElasticPolicy(2, 8), workers=2, noise=0.05, seed=seed)
    world.run(900, lambda s: rate_for(3.2 if 200 <= s < 500 else 1.6))
    sizes = [workers for _, workers in world.changes]
    assert max(sizes) == 4
    assert world.workers == 2
    assert len(sizes) <= 4
    ups = [at for at, workers in world.changes if workers > 2]
    assert 200 <= ups[0] <= 225
    assert world.changes[-1][0] <= 700


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("length_s", [1, 3])
def test_bursts_of_seconds_change_nothing(length_s: int, seed: int) -> None:
    offset = random.Random(seed).randrange(20)
    world = World(ElasticPolicy(2, 8), workers=2, noise=0.03, seed=seed)
    world.run(600, lambda s: rate_for(9 if (s + offset) % 20 < length_s else 1.5))
    assert world.changes == []


@pytest.mark.parametrize("seed", range(10))
def test_noise_around_a_limit_does_not_swing_it(seed: int) -> None:
    world = World(ElasticPolicy(1, 8), workers=3, noise=0.1, seed=seed)
    world.run(1800, lambda s: rate_for(3.0))
    assert len(world.changes) <= 2
    assert world.workers in (3, 4)


@pytest.mark.parametrize("least", [1, 3])
def test_it_stays_within_its_bounds(least: int) -> None:
    world = World(ElasticPolicy(least, 5), workers=4)
    world.run(300, lambda s: rate_for(50.0))
    assert world.workers == 5
    world.run(300, lambda s: 0.0)
    assert world.workers == least


def test_a_job_that_is_held_up_gets_more_until_it_is_not() -> None:
    world = World(ElasticPolicy(1, 16), workers=1)
    world.run(200, lambda s: rate_for(10.0))
    assert world.workers in (10, 11, 12, 13, 14, 15)
    lost = world.lost
    world.run(60, lambda s: rate_for(10.0))
    assert world.lost == lost


def test_an_operator_that_is_full_by_itself_gets_another_instance() -> None:
    policy = ElasticPolicy(2, 2)
    use = Use(1000.0, {"split": 0.1, "count": 0.95})
    for second in range(12):
        decision = policy.decide(float(second), use, 2, {"split": 1, "count": 1})
    assert decision.size is not None
    assert decision.size.workers == 2
    assert decision.size.parallelism == {"split": 1, "count": 2}
    assert "more of ['count']" in decision.reason


def test_sizes_by_use_leave_room_to_spare() -> None:
    size = by_use()(Use(1000.0, {"a": 0.4, "b": 1.6}), 2000.0)
    assert size == Size(5, {"a": 1, "b": 4})
    assert by_use()(Use(0.0, {}), 0.0).workers == 1


def test_sizes_by_the_model_are_plans_that_sustain_the_rate() -> None:
    topology = tr.Topology("words")
    words = topology.source(["a"], name="source").shuffle()
    words.map(str.upper, name="work").shuffle().sink(print, name="out")
    times_ns = {"source": 500.0, "work": 20_000.0, "out": 500.0}
    profile = Profile({name: OperatorProfile(Work(ns)) for name, ns in times_ns.items()})
    machine = cluster(2, cores=4)
    sizing = by_model(topology.graph, profile, machine, machine.workers(4), scheduler("rlas"))
    few, many = (sizing(Use(1.0, {}), rate) for rate in (10_000.0, 100_000.0))
    assert few.workers == 1
    assert many.workers > 2
    assert many.parallelism["work"] >= 3
    assert many.plan is not None
    policy = ElasticPolicy(1, 8, sizing=sizing)
    for second in range(12):
        decision = policy.decide(float(second), Use(100_000.0, {}), 1)
    assert decision.size == many


@pytest.mark.parametrize("bounds", [(0, 2), (3, 2)])
def test_bounds_that_cannot_be_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="it must be the least number of workers"):
        ElasticPolicy(*bounds)
