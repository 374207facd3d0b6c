"""Which key led to which is counted exactly where it can be, and counting changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace import testing
from tailrace.graph.wiring import InstanceId
from tailrace.routing.pairs import PairCounts, merged
from tailrace.runtime.core import Core
from tailrace.runtime.deployment import changed
from tailrace.runtime.keypairs import PairCounter
from tailrace.testing import VirtualClock, collect
from tests.meaning.random_topologies import Way, outcome_of
from tests.runtime.posts import core_of

Tweet = tuple[str, tuple[str, ...]]
"""A region, and tags."""


def region_of(tweet: Tweet) -> str:
    return tweet[0]


def tweets(count: int, seed: int = 1) -> list[Tweet]:
    chance = random.Random(seed)
    return [
        (
            f"region{chance.randrange(5)}",
            tuple(f"tag{chance.randrange(20)}" for _ in range(chance.randrange(4))),
        )
        for _ in range(count)
    ]


def true_pairs(some: list[Tweet]) -> Counter[tuple[str, str]]:
    return Counter((region, tag) for region, tags in some for tag in tags)


def by_region_and_tag(
    some: list[Tweet], parallelism: int = 2
) -> tuple[tr.Topology, list[tuple[str, int]]]:
    """Tweets are counted by region; each then gives its tags, which are counted, too."""
    topology = tr.Topology()
    counted = (
        topology.source(some)
        .key_by(region_of)
        .process(Keeping(), parallelism=parallelism, name="region")
        .flat_map(lambda tweet: tweet[1])
    )
    by_tag = counted.key_by().scan(lambda n, _: (n or 0) + 1, parallelism=parallelism, name="tag")
    return topology, collect(by_tag)


class Keeping(tr.Operator):
    """Has a state, and hands on what it got."""

    def process(self, tweet: Tweet) -> None:
        self.state = (self.state or 0) + 1
        self.emit(tweet)


def running(**options: Any) -> tuple[Callable[..., Core], list[Core]]:
    """Cores that count, to be made in the place of others; and those that were."""
    made: list[Core] = []

    def make(*arguments: Any, **named: Any) -> Core:
        core = Core(*arguments, **named)
        core.count_pairs(**options)
        made.append(core)
        return core

    return make, made


def counted_by(
    topology: tr.Topology, workers: int = 1, limits: tr.Limits | None = None, **options: Any
) -> list[PairCounts]:
    make, cores = running(**options)
    with patch.object(testing, "Core", make):
        testing.run(topology, workers=workers, limits=limits or tr.Limits())
    return merged(one for core in cores if core.pairs for one in core.pairs.counted())


@given(st.integers(0, 1000), st.integers(1, 3), st.sampled_from([1, 3, 4096]))
@settings(max_examples=25, deadline=None)
def test_all_pairs_are_counted_exactly_if_all_records_are(
    seed: int, workers: int, poll_records: int
) -> None:
    some = tweets(200, seed)
    topology, _ = by_region_and_tag(some)
    (found,) = counted_by(topology, workers, tr.Limits(poll_records=poll_records), every=1)
    assert (found.source, found.target) == ("region", "tag")
    assert found.counts == true_pairs(some)
    assert found.total == sum(true_pairs(some).values())


def test_a_sample_stands_for_all() -> None:
    some = tweets(40_000)
    topology, results = by_region_and_tag(some)
    (found,) = counted_by(topology, every=8)
    true = true_pairs(some)
    assert found.total == pytest.approx(sum(true.values()), rel=0.05)
    for pair, count in true.most_common(10):
        assert found.counts[pair] == pytest.approx(count, rel=0.3)
    assert len(results) == sum(true.values())


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), every=st.integers(1, 4), workers=st.integers(1, 3))
def test_counting_changes_nothing_in_what_a_topology_means(
    seed: int, every: int, workers: int
) -> None:
    way = Way(most=3, workers=workers)
    plain = outcome_of(seed, way)
    make, _ = running(every=every)
    with patch.object(testing, "Core", make):
        counted = outcome_of(seed, way)
    assert counted == plain


def test_order_per_key_stays_as_it_was() -> None:
    topology = tr.Topology()
    numbers = topology.source(range(3000)).key_by(lambda n: n % 7).process(Echo(), name="a")
    results = collect(numbers.key_by(lambda n: n % 3).process(Echo(), name="b"))
    counted_by(topology, every=3)
    for key in range(21):
        own = [n for n in results if n % 21 == key]
        assert own == sorted(own)
    assert len(results) == 3000


class Echo(tr.Operator):
    def process(self, record: Any) -> None:
        self.emit(record)


def test_what_follows_later_is_nobodys() -> None:
    """Windows hand on results when time goes on, not for a record."""
    topology = tr.Topology()
    events = topology.source([(f"k{i % 3}", i) for i in range(100)]).event_time(
        lambda e: e[1], max_delay_s=0
    )
    windows = events.key_by(lambda e: e[0]).window(tr.tumbling(10)).collect(name="window")
    collect(windows.key_by(lambda w: len(w)).scan(lambda n, _: (n or 0) + 1, name="size"))
    (found,) = counted_by(topology, every=1)
    assert not found.counts


def test_instances_whose_records_wait_for_coroutines_count_nothing() -> None:
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    topology = tr.Topology()
    waiting = topology.source(range(50)).key_by(lambda n: n % 7).process(Echo(), name="a")
    collect(waiting.async_map(later).key_by(lambda n: n % 3).process(Echo(), name="b"))
    assert counted_by(topology, every=1) == []


def test_only_those_reached_by_key_that_send_by_key_count() -> None:
    topology = tr.Topology()
    plain = topology.source(range(50)).map(lambda n: n + 1)
    keyed = plain.key_by(lambda n: n % 7).process(Echo(), name="a")
    collect(keyed.shuffle().map(lambda n: n, name="b"))
    assert counted_by(topology, every=1) == []


def test_two_operators_that_are_reached_share_the_room_and_are_told_apart() -> None:
    topology = tr.Topology()
    first = topology.source(range(60)).key_by(lambda n: n % 7).process(Echo(), name="a")
    collect(first.key_by(lambda n: n % 3).process(Echo(), name="b"))
    collect(first.key_by(lambda n: n % 5).process(Echo(), name="c"))
    found = {one.target: one for one in counted_by(topology, every=1)}
    assert found["b"].counts == Counter((n % 7, n % 3) for n in range(60))
    assert found["c"].counts == Counter((n % 7, n % 5) for n in range(60))


def test_keys_that_cannot_be_told_count_for_nothing_and_go_by_the_policy() -> None:
    topology = tr.Topology()
    first = topology.source(range(60)).key_by(lambda n: n % 7).process(Echo(), name="a")
    by_ten = first.key_by(lambda n: 10 // (n % 10))
    results = collect(by_ten.process(Echo(), name="b", on_error="skip"))
    (found,) = counted_by(topology, every=1)
    assert found.total == len(results) == 54


def counters(core: Core) -> list[PairCounter]:
    found = [instance.queue.counter for instance in core.instances]
    return [counter for counter in found if counter is not None]


def test_nobody_counts_unless_asked_and_statistics_begin_anew() -> None:
    topology, _ = by_region_and_tag(tweets(500))
    core = core_of(topology, (0,) * 5, clock=VirtualClock())
    assert not counters(core)
    core.count_pairs(every=1)
    while core.round():
        pass
    pairs = core.pairs
    assert pairs is not None
    assert sum(one.total for one in pairs.counted()) == sum(true_pairs(tweets(500)).values())
    pairs.clear()
    assert all(not one.counts and not one.total for one in pairs.counted())
    core.count_pairs(False)
    assert not counters(core)
    assert not pairs.counted()
    core.close()


def test_another_deployment_begins_anew_and_new_instances_count_too() -> None:
    topology, _ = by_region_and_tag(tweets(2000))
    core = core_of(topology, (0,) * 5, VirtualClock(), limits=tr.Limits(poll_records=100))
    core.count_pairs(every=1)
    for _ in range(3):
        core.round()
    assert core.pairs is not None
    assert core.pairs.sampled
    after = changed(
        core.deployment, parallelism={"tag": 3, "sink": 3}, workers={InstanceId("tag", 2): 0}
    )
    core.prepare(1, after)
    core.switch()
    while core.moved() is None:
        core.round()
        core.move()
    assert core.pairs.sampled == 0
    while core.round():
        pass
    (found,) = merged(core.pairs.counted())
    assert 0 < found.total < sum(true_pairs(tweets(2000)).values())
    core.close()
