"""What a job goes on from when it is started again: all of it, with other numbers, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tailrace as tr
from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.reading import read_dict
from tailrace.checkpoint.restoring import check_fits
from tailrace.connectors.memory import Items
from tailrace.runtime.source import Reader, Split, shares
from tailrace.runtime.windows import Sliding
from tests.checkpoint.world import Exact, Ledger, World

Make = Callable[[Ledger], tr.Topology]


def scanned(parallelism: int, state_version: int = 0, migrate: Any = None) -> Make:
    """The first records touch twenty keys, all later ones just one of them."""

    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("scanned")
        numbers = topology.source(tr.sources.unpaced(count=100_000), name="numbers")
        counts = numbers.key_by(lambda n: n if n < 20 else 0).scan(
            lambda count, n: (count or 0) + 1,
            parallelism=parallelism,
            name="scan",
            state_version=state_version,
            migrate=migrate,
        )
        counts.sink(Exact(ledger), parallelism=1)
        return topology

    return make


def keys(world: World) -> dict[Any, Any]:
    return read_dict(world.folder, world.manifest.of("scan"))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_keys_that_nobody_touches_survive_another_parallelism(parallelism: int) -> None:
    first = World(scanned(2), 1, every_s=0.01)
    first.run(stop_at=60)
    second = World(
        scanned(parallelism), 2, every_s=0.01, kills=2, folder=first.folder, ledger=first.ledger
    )
    results = second.run(stop_at=80)
    found = keys(second)
    assert set(found) == set(range(20))
    assert all(found[key] == 1 for key in range(1, 20))
    assert Counter(results)[0, found[0]] == 1
    assert len(results) == sum(found.values())


def test_state_of_an_earlier_version_is_migrated_or_refused() -> None:
    first = World(scanned(1), 1, every_s=0.01)
    first.run(stop_at=60)
    with pytest.raises(Exception, match="state_version 0, the operator has 3"):
        World(scanned(1, 3), 2, folder=first.folder, ledger=first.ledger)

    def migrate(key: Any, count: int, version: int) -> int:
        return count + 1000 * (version + 1)

    second = World(scanned(1, 3, migrate), 2, folder=first.folder, ledger=first.ledger)
    second.run(stop_at=20)
    sections = second.manifest.of("scan")
    assert {section.state_version for section in sections} == {0, 3}
    found = read_dict(second.folder, sections, migrate=migrate, state_version=3)
    assert all(1000 < count < 200_000 for count in found.values())
    assert found[0] == 1000 + max(count for key, count in first.ledger.results if count < 1000) + (
        sum(count > 1000 for _, count in second.ledger.results)
    )


def windowed(window: Any, version: int) -> Make:
    """Counts, in a window, of the records of each key: whole numbers, later in tuples."""

    def count(state: Any, n: int) -> Any:
        return (state or 0) + 1 if not version else ((state or (0,))[0] + 1,)

    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("windowed")
        numbers = topology.source(tr.sources.unpaced(count=300), name="numbers")
        keyed = numbers.event_time(lambda n: n, max_delay_s=0).key_by(lambda n: n % 2)
        keyed.window(window).aggregate(
            count,
            merge=lambda one, other: one + other,
            name="window",
            state_version=version,
            migrate=(lambda key, state, before: (state,)) if version else None,
        ).sink(Exact(ledger), parallelism=1)
        return topology

    return make


@pytest.mark.parametrize("window", [tr.tumbling(40), tr.sliding(40, 20), tr.session(1000)])
def test_windows_of_an_earlier_version_are_migrated_one_by_one(window: Any) -> None:
    first = World(windowed(window, 0), 1, every_s=0.01)
    first.run(stop_at=60)
    second = World(windowed(window, 1), 2, folder=first.folder, ledger=first.ledger)
    values = [result.value for result in second.run()]
    early = [value for value in values if isinstance(value, int)]
    late = [value[0] for value in values if isinstance(value, tuple)]
    assert late
    in_all = 300 * (2 if isinstance(window, Sliding) and window.every_s < window.size_s else 1)
    assert sum(early) + sum(late) == in_all


def joined(version: int) -> Make:
    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("joined")
        left, right = (
            topology.source(tr.sources.unpaced(count=200), name=name)
            .event_time(lambda n: n, max_delay_s=0)
            .map(lambda n: (n,) if version else n, name=f"{name} as it is kept")
            .event_time(lambda one: one[0] if version else one)
            .key_by(lambda one: 0)
            for name in ("left", "right")
        )
        left.join(
            right,
            within_s=5,
            name="join",
            state_version=version,
            migrate=(lambda key, record, before: (record,)) if version else None,
        ).sink(Exact(ledger), parallelism=1)
        return topology

    return make


def test_records_that_a_join_keeps_are_migrated() -> None:
    first = World(joined(0), 1, every_s=0.01)
    first.run(stop_at=60)
    second = World(joined(1), 2, folder=first.folder, ledger=first.ledger)
    pairs = second.run()
    assert all(type(left) is type(right) for left, right in pairs)
    assert any(type(left) is tuple for left, _ in pairs)
    flat = [(left, right) if type(left) is int else left + right for left, right in pairs]
    near = {(n, m) for n in range(200) for m in range(max(n - 5, 0), min(n + 6, 200))}
    assert Counter(flat) == Counter(near)


def test_state_whose_operator_is_gone_is_refused_unless_it_may_be_dropped() -> None:
    first = World(scanned(1), 1, every_s=0.01)
    first.run(stop_at=60)
    other = tr.Topology("other")
    numbers = other.source(tr.sources.unpaced(count=3), name="numbers")
    numbers.key_by().scan(lambda state, n: n, name="renamed").sink(print)
    with pytest.raises(CheckpointError, match=r"state of 'scan'.*drop_state=\['scan'\]"):
        check_fits(first.manifest, other.graph)
    check_fits(first.manifest, other.graph, drop=["scan"])


class Total(tr.Operator):
    total = 0

    def process(self, record: int) -> None:
        self.total += 1

    def finish(self) -> None:
        self.emit((self.instance.index, self.total))

    def snapshot(self) -> int:
        return self.total

    def restore(self, snapshot: int) -> None:
        self.total = snapshot


class Uneven(tr.Source):
    """Two splits, of which one ends long before the other."""

    rewinds = True

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        count = 5 if split.index == 0 else 300
        return Items(range(count)).open(Split("", 0, 1), clock_ns, position)


@pytest.mark.parametrize("seed", range(20))
def test_the_last_word_of_an_instance_that_ended_early_is_not_said_again(seed: int) -> None:
    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("totals")
        uneven = topology.source(Uneven(), parallelism=2)
        uneven.process(Total(), parallelism=2).sink(Exact(ledger), parallelism=1)
        return topology

    world = World(make, seed, workers=2, kills=3, every_s=0.01)
    assert Counter(world.run()) == Counter({(0, 5): 1, (1, 300): 1})


class Once(tr.Operator):
    def open(self) -> None:
        self.set_timer(0.05, "once")

    def process(self, record: int) -> None:
        pass

    def timer(self, tag: str) -> None:
        self.emit(tag)


@pytest.mark.parametrize("seed", range(12))
def test_a_timer_that_open_has_set_is_due_once_whoever_is_killed(seed: int) -> None:
    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("once")
        numbers = topology.source(tr.sources.unpaced(count=2000), name="numbers")
        numbers.shuffle().process(Once(), parallelism=1).sink(Exact(ledger), parallelism=1)
        return topology

    world = World(make, seed, workers=2, kills=3, every_s=(0.03, 1e9)[seed % 2])
    assert world.run() == ["once"]


class Late(tr.Source):
    """Two splits; in one of them come records whose windows are long over."""

    rewinds = True
    parts = (
        [*range(100), *[200] * 400],
        [*range(100), *[200] * 50, *[5, 6, 7] * 20, *[201] * 400],
    )

    def splits(self, parallelism: int) -> list[Split]:
        return shares(2)

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return Items(self.parts[split.index]).open(Split("", 0, 1), clock_ns, position)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_what_was_late_stays_late_with_more_instances(parallelism: int) -> None:
    def windowed(parallelism: int) -> Make:
        def make(ledger: Ledger) -> tr.Topology:
            topology = tr.Topology("late")
            timed = topology.source(Late(), parallelism=parallelism).event_time(
                float, max_delay_s=0
            )
            windows = timed.key_by(lambda n: n % 3).window(tr.tumbling(10))
            counts = windows.aggregate(lambda count, n: (count or 0) + 1, parallelism=parallelism)
            counts.sink(Exact(ledger), parallelism=1)
            return topology

        return make

    for seed in range(15):
        first = World(windowed(1), seed, every_s=0.02)
        first.run(stop_at=90)
        second = World(
            windowed(parallelism), seed, every_s=0.02, folder=first.folder, ledger=first.ledger
        )
        seen = Counter((one.key, one.start) for one in second.run())
        assert set(seen.values()) == {1}, f"seed {seed}"
