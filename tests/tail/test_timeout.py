"""When a run is late, under virtual time."""

import random

import pytest

from tailrace.tail.replay import BUDGET, Replication, SelectiveReplay, replay_named
from tailrace.tail.timeout import AdaptiveTimeout, published, quantile

MS = 1_000_000
S = 1_000_000_000


def samples(chance: random.Random, count: int, late: float, late_ms: float) -> list[int]:
    """Latencies about 1 ms, of which a share is late."""
    return [
        round(MS * (late_ms if chance.random() < late else chance.uniform(0.8, 1.2)))
        for _ in range(count)
    ]


def fed(timeout: AdaptiveTimeout, latencies: list[int], now_s: int) -> int | None:
    timeout.look((now_s - 1) * S)
    for one in latencies:
        timeout.note(one)
    return timeout.look(now_s * S)


@pytest.mark.parametrize(
    ("late", "percentile"), [(0.02, 0.90), (0.0015, 0.95), (0.0, 0.999)], ids=str
)
def test_the_longer_the_tail_the_more_eager_as_published(late: float, percentile: float) -> None:
    for seed in range(20):
        ordered = sorted(samples(random.Random(seed), 100_000, late, 20))
        assert published(ordered) == quantile(ordered, percentile), f"seed {seed}"


def test_nothing_is_known_before_there_is_enough_to_go_by() -> None:
    timeout = AdaptiveTimeout()
    assert fed(timeout, [MS] * 99, 1) is None
    assert fed(timeout, [MS], 2) == 2 * MS, "a period lasts until there are enough"


def test_what_is_too_old_is_forgotten() -> None:
    timeout = AdaptiveTimeout()
    assert fed(timeout, [MS] * 100, 1) is not None
    assert timeout.look(20 * S) is None


def test_an_ordinary_tail_does_not_use_up_the_budget() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        timeout = AdaptiveTimeout(budget=0.05, least_ns=0)
        latencies = [round(MS * chance.expovariate(1)) for _ in range(5000)]
        found = fed(timeout, latencies, 1)
        assert found is not None
        assert sum(one > found for one in latencies) <= 0.025 * 5000, f"seed {seed}"


def test_the_timeout_stays_though_replays_make_the_tail_that_is_seen_short() -> None:
    """It is fed with what originals take; by what comes out it would go up and down."""
    for seed in range(20):
        chance, timeout = random.Random(seed), AdaptiveTimeout(least_ns=0)
        found = []
        for second in range(1, 11):
            latencies = samples(chance, 2000, 0.02, 20)
            known = timeout.timeout_ns
            for one in latencies:
                if known is not None and one > known:
                    timeout.tried(max(one - known - MS, 0))
            found.append(fed(timeout, latencies, second))
        assert all(one is not None and one < 4 * MS for one in found), f"seed {seed}: {found}"


def test_where_another_try_does_not_help_fewer_are_made() -> None:
    """Late for a reason that copies share: they come no sooner."""
    timeout, chance = AdaptiveTimeout(least_ns=0), random.Random(1)
    tries = []
    for second in range(1, 21):
        latencies = [round(MS * chance.expovariate(1)) for _ in range(1000)]
        known = timeout.timeout_ns
        late = [one for one in latencies if known is not None and one > known]
        for _ in late:
            timeout.tried(0)
        tries.append(len(late))
        fed(timeout, latencies, second)
    assert sum(tries[10:]) < sum(tries[:5])
    assert max(tries[10:]) <= 5


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_the_budget_is_sent_again(seed: int) -> None:
    chance, policy = random.Random(seed), SelectiveReplay()
    begun = sent = 0
    for _ in range(5000):
        policy.begun()
        begun += 1
        for _ in range(chance.choice([0, 0, 0, 1, 5])):  # everything is late
            sent += policy.allow(busy=0.1)
            assert sent <= BUDGET * begun + 1
    assert sent > 0.9 * BUDGET * begun


def test_a_worker_that_is_always_busy_sends_nothing_again() -> None:
    policy = SelectiveReplay()
    for _ in range(1000):
        policy.begun()
    assert not policy.allow(busy=0.9)
    assert policy.allow(busy=0.5)


def test_replication_sends_its_share_twice_evenly() -> None:
    policy = Replication(0.2)
    sent = [policy.begun() for _ in range(1000)]
    assert sum(sent) == 200
    assert all(sum(sent[i : i + 5]) == 1 for i in range(0, 1000, 5))


def test_names_that_mean_nothing_are_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match='\'reply\'; it must be "off" or "replay"'):
        replay_named("reply")
