"""Tables are made when they pay, under drift that follows from seeds."""

from __future__ import annotations

from itertools import islice

import pytest

from locality_parts.drift import REGION, TAG, Drift
from tailrace.adapt.changelog import ChangeLog
from tailrace.adapt.halves import halves
from tailrace.adapt.locality import LocalityPolicy
from tailrace.routing.forecast import forecast
from tailrace.routing.homes import side_by_side
from tailrace.routing.pairs import PairCounts
from tailrace.routing.slots import Routes
from tailrace.routing.tables import Tables
from tests.seeds import seeds

WORKERS = 4
HOMES = side_by_side([REGION, TAG], WORKERS)
WEEK_S = 100.0


def small(seed: int, **changes: float) -> Drift:
    given = {"regions": 60, "tags": 1000, "posts": 20_000, **changes}
    return Drift(seed=seed, **given)  # type: ignore[arg-type]


class World:
    """A job whose tables follow a policy, week by week."""

    def __init__(self, policy: LocalityPolicy, rate: float) -> None:
        self.policy = policy
        self.rate = rate
        self.routes: dict[str, Routes] = {}
        self.now_s = 0.0
        self.changed = 0
        self.reasons: list[str] = []
        self.locality: list[float] = []

    def week(self, pairs: PairCounts) -> None:
        self.now_s += WEEK_S
        self.locality.append(forecast([pairs], self.routes, HOMES).local)
        decision = self.policy.decide(self.now_s, [pairs], HOMES, self.routes, self.rate)
        self.reasons.append(decision.reason)
        if decision.tables is not None:
            self.changed += 1
            self.policy.begin(self.now_s, decision)
            self.take(decision.tables)
            self.policy.done(self.now_s, 0.05 + decision.keys / 300_000, decision.keys)

    def take(self, tables: Tables) -> None:
        self.routes = {name: tables[name].routes(self.routes.get(name)) for name in tables}


@pytest.mark.parametrize("seed", range(seeds(5)))
def test_tables_follow_the_drift_and_keep_locality_where_one_table_loses_it(seed: int) -> None:
    world = World(LocalityPolicy(), rate=200_000)
    once: dict[str, Routes] = {}
    old = []
    for pairs in islice(small(seed).weeks(), 10):
        old.append(forecast([pairs], once, HOMES).local)
        world.week(pairs)
        once = once or world.routes
    assert world.locality[0] < 0.4
    assert min(world.locality[2:]) > 0.45
    assert sum(world.locality[6:]) > sum(old[6:]) + 4 * 0.03
    # What tables bring for the week they are made of, they do not for the next.
    assert world.policy.changes.trust("tables", world.now_s) < 1


@pytest.mark.parametrize("seed", range(seeds(5)))
def test_what_stays_as_it_is_is_changed_once(seed: int) -> None:
    still = small(seed, stable=1.0, swell=0.0)
    world = World(LocalityPolicy(), rate=100_000)
    for pairs in islice(still.weeks(), 12):
        world.week(pairs)
    assert 1 <= world.changed <= 2, world.reasons
    assert min(world.locality[2:]) > world.locality[0] + 0.2


def test_few_records_are_not_worth_a_change() -> None:
    world = World(LocalityPolicy(), rate=50)
    for pairs in islice(small(1).weeks(), 3):
        world.week(pairs)
    assert world.changed == 0
    assert "too little for any change" in world.reasons[0]


def test_noise_without_any_association_is_left_alone() -> None:
    """No table can know what comes next; those that were tried teach that."""
    world = World(LocalityPolicy(), rate=20_000)
    for pairs in islice(small(2, faithful=0.0, near=0.0, fade=1.0, stable=0.0).weeks(), 12):
        world.week(pairs)
    assert world.changed <= 4, world.reasons


def test_nothing_is_decided_before_enough_was_counted_or_soon_after_a_change() -> None:
    policy = LocalityPolicy(pause_s=50.0)
    pairs = next(small(3).weeks())
    few = PairCounts(REGION, TAG, dict(list(pairs.counts.items())[:5]), 9.0)
    assert "9 records were counted" in policy.decide(0.0, [few], HOMES, {}, 1e6).reason
    decision = policy.decide(1.0, [pairs], HOMES, {}, 1e6)
    assert decision.tables is not None
    assert decision.predicted_gain > 1.5 * decision.predicted_cost > 0
    policy.begin(1.0, decision)
    policy.done(2.0, 1.0)
    assert "the last change was 40 s ago" in policy.decide(42.0, [pairs], HOMES, {}, 1e6).reason


def test_moving_many_keys_must_pay_within_the_horizon() -> None:
    pairs = next(small(4).weeks())
    slow = ChangeLog(keys_per_s=10.0)
    hasty = LocalityPolicy(changes=slow, horizon_s=20.0)
    patient = LocalityPolicy(changes=slow, horizon_s=1e5)
    assert hasty.decide(0.0, [pairs], HOMES, {}, 20_000).tables is None
    assert patient.decide(0.0, [pairs], HOMES, {}, 20_000).tables is not None


def test_what_moves_less_stays_where_it_is_when_that_costs_nothing() -> None:
    """Dear moves leave keys that save little where they are."""
    pairs = next(small(5).weeks())
    keys = [
        LocalityPolicy(changes=ChangeLog(keys_per_s=rate), horizon_s=600.0)
        .decide(0.0, [pairs], HOMES, {}, 20_000)
        .keys
        for rate in (1e6, 300.0)
    ]
    assert keys[1] < 0.85 * keys[0]


def test_a_small_sample_is_believed_less() -> None:
    """Keys have nothing to do with each other; counted exactly or scaled up, that is seen."""
    noise = next(small(7, faithful=0.0, near=0.0, posts=2_000).weeks())
    scaled = [noise.scaled(50.0)]
    policy = LocalityPolicy()
    told = [policy.decide(0.0, scaled, HOMES, {}, 1e5, scale=scale) for scale in (1.0, 50.0)]
    assert told[0].predicted_gain > 4 * max(told[1].predicted_gain, 0.0)


def test_halves_are_as_different_as_records_are_few() -> None:
    week = next(small(8).weeks())
    for scale in (1.0, 10.0):
        one, other = (half[0] for half in halves([week.scaled(scale)], seed=1, scale=scale))
        assert one.total + other.total == pytest.approx(scale * week.total)
        assert abs(one.total - other.total) < 0.05 * one.total
        heavy = max(week.counts, key=lambda pair: week.counts[pair])
        apart = abs(one.counts[heavy] - other.counts[heavy]) / scale
        assert 0 < apart < 5 * week.counts[heavy] ** 0.5
        assert halves([week.scaled(scale)], seed=1, scale=scale)[0][0] == one


def test_an_uneven_load_is_a_reason_too() -> None:
    """All in one worker is all local, and no way to live."""
    counts = {(f"r{i}", f"t{i}"): 100.0 for i in range(40)}
    pairs = [PairCounts(REGION, TAG, counts, 20_000.0)]
    all_here = {
        REGION: Routes(Routes.even(4).owners, {f"r{i}": 0 for i in range(40)}),
        TAG: Routes(Routes.even(4).owners, {f"t{i}": 0 for i in range(40)}),
    }
    decision = LocalityPolicy().decide(0.0, pairs, HOMES, all_here, 100_000)
    assert decision.tables is not None
    after = {name: decision.tables[name].routes() for name in decision.tables}
    assert forecast(pairs, after, HOMES).worst_imbalance < 1.1


def test_a_failed_change_is_not_tried_again_at_once() -> None:
    policy = LocalityPolicy(pause_s=30.0)
    pairs = next(small(6).weeks())
    decision = policy.decide(0.0, [pairs], HOMES, {}, 1e5)
    policy.begin(0.0, decision)
    policy.failed(5.0)
    assert policy.decide(20.0, [pairs], HOMES, {}, 1e5).tables is None
    assert policy.changes.trust("tables", 20.0) < 0.6
    assert policy.decide(40.0, [pairs], HOMES, {}, 1e5).tables is not None
