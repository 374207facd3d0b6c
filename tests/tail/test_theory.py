"""Policies under virtual time against what queueing theory says. Seeds, and no clocks."""

from __future__ import annotations

from math import factorial
from random import Random

import numpy as np
import pytest

from tailrace.tail.soonest import Soonest
from tests.tail.simulation import AtRandom, InTurn, Known, simulate

MEAN_MS = 2.0


def mm1_wait_ms(utilisation: float) -> float:
    return MEAN_MS * utilisation / (1 - utilisation)


def mmc_wait_ms(servers: int, utilisation: float) -> float:
    """Erlang's C formula."""
    offered = servers * utilisation
    last = offered**servers / factorial(servers) / (1 - utilisation)
    waits = last / (sum(offered**k / factorial(k) for k in range(servers)) + last)
    return waits * MEAN_MS / servers / (1 - utilisation)


def jsq2_wait_ms(utilisation: float, most: int = 40) -> float:
    """Join the shortest of two queues: the chain (n, m), n <= m, where as much comes as goes."""
    arrive, serve = 2 * utilisation, 1.0
    states = [(n, m) for m in range(most + 1) for n in range(m + 1)]
    place_of = {state: place for place, state in enumerate(states)}
    flows = np.zeros((len(states), len(states)))
    for (n, m), here in place_of.items():
        grown = (min(n + 1, m), max(n + 1, m)) if m < most else (n, m)
        fewer_in_one = (max(n - 1, 0), m)
        fewer_in_other = (min(n, max(m - 1, 0)), max(n, m - 1))
        for to, rate in ((grown, arrive), (fewer_in_one, serve), (fewer_in_other, serve)):
            flows[place_of[to], here] += rate
            flows[here, here] -= rate
    flows[0] = 1.0  # one of the equations follows from the others; that shares sum to 1 does not
    shares = np.linalg.solve(flows, np.eye(len(states))[0])
    in_system = sum(share * (n + m) for share, (n, m) in zip(shares, states, strict=True))
    return float(in_system / arrive - 1) * MEAN_MS  # Little's law, in units of the service


@pytest.mark.parametrize("utilisation", [0.5, 0.78])
def test_independent_queues_are_mm1(utilisation: float) -> None:
    found = simulate(
        AtRandom, means_ms=[MEAN_MS] * 4, utilisation=utilisation, records=150_000, seed=3
    )
    assert found.mean_wait_ms == pytest.approx(mm1_wait_ms(utilisation), rel=0.06)


@pytest.mark.parametrize("servers", [2, 4])
@pytest.mark.parametrize("utilisation", [0.5, 0.78])
def test_a_shared_queue_is_mmc(servers: int, utilisation: float) -> None:
    found = simulate(
        None, means_ms=[MEAN_MS] * servers, utilisation=utilisation, records=150_000, seed=1
    )
    assert found.mean_wait_ms == pytest.approx(mmc_wait_ms(servers, utilisation), rel=0.06)


class Shortest(Soonest):
    """Balancing where all are known to be equally fast: join the shortest queue."""

    def choose(self, receivers, now_ns: int) -> int:  # type: ignore[no-untyped-def]
        for one in receivers:
            one.service_ns, one.spread_ns, one.way_ns = 1000, 0, 0
        return super().choose(receivers, now_ns)


@pytest.mark.parametrize("utilisation", [0.5, 0.78])
def test_balancing_among_equals_is_join_the_shortest_queue(utilisation: float) -> None:
    found = simulate(
        lambda sender: Shortest(Random(sender)),
        means_ms=[MEAN_MS] * 2,
        utilisation=utilisation,
        records=150_000,
        seed=1,
    )
    assert found.mean_wait_ms == pytest.approx(jsq2_wait_ms(utilisation), rel=0.06)


def test_service_times_that_have_to_be_learnt_cost_little() -> None:
    found = simulate(
        lambda sender: Soonest(Random(sender)), means_ms=[MEAN_MS] * 4, utilisation=0.78, seed=2
    )
    assert mmc_wait_ms(4, 0.78) < found.mean_wait_ms < 1.4 * mmc_wait_ms(4, 0.78)


@pytest.mark.parametrize("shared", [False, True])
def test_slow_servers_get_what_they_can_do_in_time(shared: bool) -> None:
    """One of four is five times as slow: in turn, its queue would grow for ever."""
    policy = None if shared else lambda sender: Soonest(Random(sender))
    found = simulate(
        policy, means_ms=[2, 2, 2, 10], utilisation=0.75, records=60_000, way_ms=0.1, seed=4
    )
    in_turn = simulate(
        lambda sender: InTurn(), means_ms=[2, 2, 2, 10], utilisation=0.75, records=60_000, seed=4
    )
    assert 0.0 < found.shares[3] < 0.1
    assert found.percentile_ms(99) < in_turn.percentile_ms(90) / 10


@pytest.mark.parametrize("shared", [False, True])
def test_several_senders_do_not_herd(shared: bool) -> None:
    policy = None if shared else lambda sender: Soonest(Random(sender))
    found = simulate(
        policy, means_ms=[2.0] * 4, utilisation=0.7, senders=8, way_ms=0.2, records=60_000, seed=5
    )
    assert max(found.shares) - min(found.shares) < 0.05
    assert found.mean_wait_ms < mm1_wait_ms(0.7)


@pytest.mark.parametrize("senders", [3, 8])
@pytest.mark.parametrize("shared", [False, True])
def test_senders_of_one_node_are_as_good_as_one(shared: bool, senders: int) -> None:
    """They see at once what each of them has given to whom."""
    policy = None if shared else lambda sender: Soonest(Random(sender))

    def wait_ms(senders: int, live: bool) -> float:
        return simulate(
            policy,
            means_ms=[MEAN_MS] * 4,
            utilisation=0.78,
            senders=senders,
            way_ms=0.1,
            records=60_000,
            seed=2,
            live=live,
        ).mean_wait_ms

    assert wait_ms(senders, live=True) < 1.15 * wait_ms(1, live=False)
    assert wait_ms(senders, live=True) < 0.75 * wait_ms(senders, live=False)


@pytest.mark.parametrize("shared", [False, True])
def test_who_is_slow_for_a_while_is_left_within_a_second_and_comes_back(shared: bool) -> None:
    """Server 0 takes twenty times as long from second 2 to second 4."""

    def slower(server: int, now_ns: int) -> float:
        return 20.0 if server == 0 and 2e9 < now_ns < 4e9 else 1.0

    policy = None if shared else lambda sender: Soonest(Random(sender))
    found = simulate(
        policy,
        means_ms=[2.0] * 4,
        utilisation=0.5,
        records=8_000,
        way_ms=0.1,
        seed=6,
        slower=slower,
        warm_s=0.0,
    )
    # A thousand records per second; at most some tens may have met the slow one.
    late = sum(latency > 30 for latency in found.latencies_ms)
    assert late < 150
    assert found.shares[0] > 0.12, "it is used again afterwards"


def test_of_many_receivers_elsewhere_two_are_looked_at() -> None:
    looked: set[int] = set()

    class Seen(Known):
        @property
        def fill(self) -> float:
            return 0.0

        def __getattribute__(self, name: str) -> object:
            if name == "way_ns":
                looked.add(object.__getattribute__(self, "peer"))
            return object.__getattribute__(self, name)

    receivers = [Seen(peer, near=peer < 2, service_ns=1000) for peer in range(50)]
    Soonest(Random(1)).choose(receivers, 0)
    assert len(looked) == 2 + 2
    assert {0, 1} <= looked
