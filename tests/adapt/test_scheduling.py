"""Better plans are gone over to when they pay, and nothing swings: jobs simulated by seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

from tailrace.adapt.estimate import Effort
from tailrace.adapt.scheduling import AdaptPolicy, Decision, Load
from tailrace.plan.model.machine import Place
from tailrace.plan.plan import Plan

EVERY_S = 30.0


def plan(*place_of: int) -> Plan:
    places = tuple(Place(0, 0) for _ in range(4))
    return Plan("test", "", {"a": len(place_of)}, (("a",),), places, place_of)


A, B = plan(0, 0, 1, 1), plan(0, 1, 0, 1)
PLANS = {"a": A, "b": B}
Believes = Callable[[str], dict[str, float]]
"""What the model says that records take by each plan, from the plan that the job has."""


@dataclass(frozen=True)
class Proposed:
    plan: Plan
    present: Plan
    gain: float


class World:
    """A job whose plans really cost what `core_ns` says; the model believes something else."""

    def __init__(
        self,
        policy: AdaptPolicy,
        core_ns: dict[str, float],
        believes: Believes | None = None,
        *,
        rate: float = 100_000.0,
        noise: float = 0.0,
        seed: int = 0,
        keys: int = 0,
    ) -> None:
        self.policy = policy
        self.core_ns = core_ns
        self.believes = believes or (lambda present: core_ns)
        self.rate = rate
        self.noise = noise
        self.chance = random.Random(seed)
        self.effort = Effort(keys, 100.0 * keys)
        self.plan = "a"
        self.now_s = 0.0
        self.changes: list[tuple[float, Decision]] = []

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now_s += EVERY_S
            told = self.believes(self.plan)
            believed = {name: ns * self._noisy() for name, ns in told.items()}
            best = min(believed, key=lambda name: believed[name])
            gain = believed[self.plan] / believed[best] - 1
            load = Load(self.rate, self.rate * self.core_ns[self.plan] * self._noisy() / 1e9)
            present = PLANS[self.plan]
            proposal = Proposed(PLANS[best], present, gain)
            decision = self.policy.decide(self.now_s, proposal, self.effort, load)
            if decision.plan is not None:
                self.policy.begin(self.now_s, decision, present, self.effort, load)
                self.plan = "a" if decision.plan is A else "b"
                self.policy.done(self.now_s, 0.5)
                self.changes.append((self.now_s, decision))

    def _noisy(self) -> float:
        return max(self.chance.gauss(1.0, self.noise), 0.2)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_that_is_better_is_taken_soon_and_once(seed: int) -> None:
    costs = {"a": 20_000.0, "b": 10_000.0}
    world = World(AdaptPolicy(EVERY_S), costs, noise=0.05, seed=seed)
    world.run(40)
    assert [decision.plan for _, decision in world.changes] == [B]
    assert world.changes[0][0] == 2 * EVERY_S
    assert world.policy.changes.trust("plan", world.now_s) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("seed", range(10))
def test_two_plans_that_are_as_good_do_not_swing_under_noise(seed: int) -> None:
    costs = {"a": 10_000.0, "b": 10_000.0}
    world = World(AdaptPolicy(EVERY_S), costs, noise=0.08, seed=seed)
    world.run(200)
    assert len(world.changes) <= 5  # in 100 minutes


@pytest.mark.parametrize("seed", range(10))
def test_what_turned_out_worse_is_undone_and_the_model_trusted_less(seed: int) -> None:
    truth, believed = {"a": 10_000.0, "b": 15_000.0}, {"a": 10_000.0, "b": 8_000.0}
    world = World(AdaptPolicy(EVERY_S), truth, lambda _: believed, noise=0.02, seed=seed)
    world.run(100)
    assert [decision.plan for _, decision in world.changes[:2]] == [B, A]
    assert world.changes[1][1].undo
    assert "us since the last change" in world.changes[1][1].reason
    assert world.plan == "a"
    assert len(world.changes) <= 4  # in 50 minutes; the model goes on to say the same each time


def test_a_gain_that_never_comes_in_is_believed_less_and_less() -> None:
    """Twins that each look better than the other from where the job is."""

    def believes(present: str) -> dict[str, float]:
        return {name: 12_500.0 if name == present else 10_000.0 for name in PLANS}

    world = World(AdaptPolicy(EVERY_S), {"a": 10_000.0, "b": 10_000.0}, believes)
    world.run(120)
    assert 1 <= len(world.changes) <= 6  # in an hour, in which it was proposed 120 times


def test_a_job_that_does_little_is_left_alone_if_much_would_move() -> None:
    costs = {"a": 20_000.0, "b": 10_000.0}
    idle = World(AdaptPolicy(EVERY_S), costs, rate=100.0, keys=1_000_000)
    idle.run(10)
    assert not idle.changes
    busy = World(AdaptPolicy(EVERY_S), costs, rate=100_000.0, keys=1_000_000)
    busy.run(10)
    assert [decision.plan for _, decision in busy.changes] == [B]


def test_the_plan_that_there_is_and_small_gains_are_no_reasons() -> None:
    policy = AdaptPolicy(EVERY_S)
    load = Load(1e5, 2.0)
    same = policy.decide(0.0, Proposed(A, A, 0.0), Effort(), load)
    assert (same.plan, same.reason) == (None, "the plan is the present one")
    small = policy.decide(1.0, Proposed(B, A, 0.05), Effort(), load)
    assert (small.plan, small.reason) == (None, "+5% by the model is too little")
    worse = policy.decide(2.0, Proposed(B, A, -0.5), Effort(), load)
    assert worse.plan is None


def test_a_proposal_must_come_several_times_in_a_row() -> None:
    policy = AdaptPolicy(EVERY_S, in_a_row=3)
    load = Load(1e5, 2.0)
    found = [
        policy.decide(float(i), Proposed(B, A, gain), Effort(), load).plan
        for i, gain in enumerate([0.5, 0.5, 0.0, 0.5, 0.5, 0.5])
    ]
    assert found == [None] * 5 + [B]


def test_a_change_that_failed_is_tried_again_later_each_time() -> None:
    policy = AdaptPolicy(EVERY_S, in_a_row=1)
    load = Load(1e5, 2.0)
    tried = []
    for tick in range(40):
        now_s = tick * EVERY_S
        decision = policy.decide(now_s, Proposed(B, A, 3.0), Effort(), load)
        if decision.plan is not None:
            tried.append(tick)
            policy.begin(now_s, decision, A, Effort(), load)
            policy.failed(now_s)
    gaps = [later - sooner for sooner, later in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 8


def test_a_horizon_must_be_longer_than_the_time_between_looks() -> None:
    with pytest.raises(ValueError, match="gains must have time to come in"):
        AdaptPolicy(30.0, horizon_s=30.0)
