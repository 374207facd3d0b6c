"""Whole jobs under simulation: killed at any moment, every result comes out exactly once.

A failing case is replayed by its seed: `World(topology, seed, ...)`. `make simulate SEEDS=100000`
runs more of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import tailrace as tr
from tailrace.checkpoint.epochs import Act
from tailrace.runtime.deployment import Deployment, changed
from tailrace.runtime.limits import Limits
from tests.checkpoint.topologies import numbers as numbers
from tests.checkpoint.world import Exact, Ledger, Stuck, World
from tests.seeds import SEEDS


def sums(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("sums")
    keyed = numbers(topology, "numbers", 60).key_by(lambda n: n % 7)
    totals = keyed.scan(lambda total, n: (total or 0) + n, parallelism=ledger.several(3))
    totals.map(str, parallelism=2).sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def lists(ledger: Ledger) -> tr.Topology:
    """States that change in place, and are forgotten now and then."""
    topology = tr.Topology("lists")

    def gather(state: list[int] | None, n: int) -> list[int] | None:
        state = state or []
        state.append(n)
        return None if len(state) > 4 else state

    keyed = numbers(topology, "numbers", 60, 1).key_by(lambda n: n % 5)
    gathered = keyed.scan(gather, parallelism=ledger.several(3))
    gathered.map(repr).sink(Exact(ledger), parallelism=1)
    return topology


def windows(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("windows")
    timed = numbers(topology, "numbers", 60).event_time(lambda n: n, max_delay_s=4)
    windowed = timed.key_by(lambda n: n % 3).window(tr.tumbling(10))
    counts = windowed.aggregate(lambda count, n: (count or 0) + 1, parallelism=ledger.several(2))
    counts.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def joined(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("join")
    left = numbers(topology, "left", 30).event_time(lambda n: n, max_delay_s=3)
    right = numbers(topology, "right", 30, 1).event_time(lambda n: n, max_delay_s=3)
    pairs = left.key_by(lambda n: n % 4).join(
        right.key_by(lambda n: n % 4), within_s=4, how="outer", parallelism=ledger.several(2)
    )
    pairs.sink(Exact(ledger), parallelism=1)
    return topology


def folded(ledger: Ledger) -> tr.Topology:
    """A bounded side that ends early, results at the end, and a broadcast between."""
    topology = tr.Topology("fold")
    few = numbers(topology, "few", 6, 1).map(lambda n: -n, parallelism=1)
    many = numbers(topology, "many", 60)
    both = many.merge(few.shuffle()).map(lambda n: n, parallelism=2, name="both")
    totals = both.key_by(lambda n: n % 5).fold(
        lambda total, n: (total or 0) + n, parallelism=ledger.several(2)
    )
    totals.sink(Exact(ledger), parallelism=2)
    return topology


class Counting(tr.Operator):
    def process(self, record: int) -> None:
        self.state = [*(self.state or []), record]
        if record % 4 == 0:
            self.set_timer(0.2, "soon")

    def timer(self, tag: str) -> None:
        self.emit((self.key, tuple(self.state or [])))
        self.state = None

    def finish_key(self) -> None:
        self.emit((self.key, tuple(self.state or [])))


def processed(ledger: Ledger) -> tr.Topology:
    """Timers in processing time: what is emitted when may differ, of each record it is once."""
    topology = tr.Topology("process")
    keyed = numbers(topology, "numbers", 60).key_by(lambda n: n % 6)
    some = keyed.process(Counting(), parallelism=ledger.several(2))
    some.flat_map(lambda pair: pair[1]).sink(Exact(ledger), parallelism=1)
    return topology


def number_in(record: Any) -> int:
    return int(re.sub(r"\D", "", repr(record)))


def stuck(ledger: Ledger) -> tr.Topology:
    """Records that are found out to be unsendable when they are sent, which may be much later."""
    topology = tr.Topology("stuck")
    made = numbers(topology, "numbers", 60).map(
        lambda n: Stuck(n) if n % 3 else n, parallelism=2, on_error="dead letter", name="made"
    )
    dead = made.dead_letters().shuffle().map(lambda one: number_in(one[0]), name="dead")
    dead.sink(Exact(ledger), parallelism=1)
    made.shuffle().map(number_in, name="got", parallelism=2).sink(Exact(ledger), parallelism=1)
    return topology


TOPOLOGIES: list[Callable[[Ledger], tr.Topology]] = [
    sums,
    lists,
    windows,
    joined,
    folded,
    processed,
    stuck,
]


@cache
def undisturbed(make: Callable[[Ledger], tr.Topology]) -> Counter[str]:
    return Counter(map(repr, World(make, 0, every_s=1e9).run()))


@pytest.mark.parametrize("part", range(20))
def test_every_result_comes_out_exactly_once_whoever_is_killed(part: int) -> None:
    for seed in range(part, SEEDS // 2, 20):  # the others lose their drivers, too
        make = TOPOLOGIES[seed % len(TOPOLOGIES)]
        world = World(
            make,
            seed,
            workers=1 + seed % 4,
            kills=seed % 5,
            changes=seed % 4 * 2,
            every_s=(0.01, 0.03, 0.2)[seed % 3],
            refusals=(0.0, 0.0, 0.02)[seed % 7 % 3],
        )
        try:
            results = world.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        assert accepted(make, results), f"seed {seed}"


def accepted(make: Callable[[Ledger], tr.Topology], results: Any) -> bool:
    """Whether results are those of an undisturbed run.

    The order in which several senders' records reach a key differs from run to run, and so do
    running sums: there the last of each key counts, and how many there are.
    """
    if make is sums:
        pairs = [eval(one) for one in results]
        last = {key: max(total for one, total in pairs if one == key) for key, _ in pairs}
        expected = {key: sum(n for n in range(60) if n % 7 == key) for key in range(7)}
        return len(pairs) == 60 and last == expected
    return Counter(map(repr, results)) == undisturbed(make)


def lagging(ledger: Ledger) -> tr.Topology:
    """Of each source, one instance is far behind the other in event time."""
    topology = tr.Topology("lag")
    left = numbers(topology, "left", 100).event_time(lambda n: n * 3, max_delay_s=3)
    times = numbers(topology, "right", 200).event_time(
        lambda n: n if n % 2 else 4 * n, max_delay_s=3
    )
    pairs = left.key_by(lambda n: n % 4).join(
        times.key_by(lambda n: n % 4), within_s=4, how="outer", parallelism=2
    )
    pairs.sink(Exact(ledger), parallelism=2)
    return topology


class Migrating(World):
    """All changes move about everything, senders with those that they send to."""

    def another(self, before: Deployment) -> Deployment:
        moved = {one: self.chance.randrange(self.workers) for one in before.workers}
        return changed(before, workers=moved)


def test_who_moves_together_with_its_senders_hears_of_no_time_ahead_of_them() -> None:
    for seed in range(20):
        world = Migrating(lagging, seed, workers=2, changes=12, every_s=(0.01, 0.2)[seed % 2])
        assert accepted(lagging, world.run()), f"seed {seed}"


class Slow(Exact):
    """Takes a millisecond for each record."""

    def __init__(self, ledger: Ledger, world: list[World]) -> None:
        super().__init__(ledger)
        self.world = world

    def write(self, records: Any) -> None:
        for record in records:
            self.world[0].clock.now_ns += 1_000_000
            self.written.append(record)


@pytest.mark.parametrize("seed", range(5))
def test_an_epoch_does_not_wait_for_all_that_a_slow_sink_could_be_sent(seed: int) -> None:
    worlds: list[World] = []

    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("slow")
        several = numbers(topology, "numbers", 20_000).map(abs, parallelism=2).shuffle()
        several.sink(Slow(ledger, worlds), parallelism=1)
        return topology

    world = World(make, seed, workers=2, every_s=0.5, limits=Limits())
    worlds.append(world)
    world.channel_messages = 1000
    world.hears = [1.0, 1.0]
    took_s = []
    written = world.epochs.written

    def note(epoch: int) -> Any:
        took_s.append(world.clock() / 1e9 - world.epochs.begun_s)
        return written(epoch)

    world.epochs.written = note  # type: ignore[method-assign]
    assert len(world.run(most=1_000_000)) == 20_000
    assert len(took_s) > 5
    # What was on its way when nobody knew yet how slow the sink is may take longer.
    assert max(took_s[2:-1]) < 0.5


@pytest.mark.parametrize("make", TOPOLOGIES)
def test_a_marker_may_be_there_before_the_word_that_the_epoch_before_counts(
    make: Callable[[Ledger], tr.Topology],
) -> None:
    for seed in range(30):
        world = World(make, seed, kills=seed % 3, every_s=0.001)
        assert accepted(make, world.run()), f"seed {seed}"


class Measured(World):
    """Notes how many sections build on each other at most."""

    longest = 0

    def write_manifest(self, anyway: bool = True) -> list[Act]:
        acts = super().write_manifest(anyway)
        sections = self.manifest.sections
        chains = Counter((one.operator, one.index) for one in sections if one.kind != "shared")
        self.longest = max([self.longest, *chains.values()])
        return acts


def test_what_it_takes_to_restore_stays_short_however_often_workers_are_killed() -> None:
    longest = 0
    for seed in range(20):
        world = Measured(many, seed, workers=2, kills=100, every_s=0.001)
        assert len(world.run()) == 1000, f"seed {seed}"
        longest = max(longest, world.longest)
    assert longest == 20


def many(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("many")
    keyed = numbers(topology, "numbers", 1000).key_by(lambda n: n % 100)
    keyed.scan(lambda total, n: (total or 0) + n, parallelism=2).sink(Exact(ledger))
    return topology


def early(parallelism: int) -> Callable[[Ledger], tr.Topology]:
    """Most keys have one record only, which comes at the beginning; all come out at the end."""

    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("early")
        keyed = numbers(topology, "numbers", 1000).key_by(lambda n: n if n < 100 else n % 3)
        counted = keyed.fold(lambda count, n: (count or 0) + 1, parallelism=parallelism)
        counted.sink(Exact(ledger), parallelism=1)
        return topology

    return make


def test_state_that_was_dealt_anew_is_kept_though_nobody_has_touched_it_since() -> None:
    whole = Counter(map(repr, World(early(2), 0, every_s=1e9).run()))
    changed = 0
    for seed in range(30):
        first = World(early(2), seed, every_s=0.01)
        first.run(stop_at=60)
        if first.manifest.finished:  # it was faster
            continue
        changed += 1
        second = World(
            early(3), seed, every_s=0.01, kills=4, folder=first.folder, ledger=first.ledger
        )
        assert Counter(map(repr, second.run())) == whole, f"seed {seed}"
    assert changed > 10


class Ending(Exact):
    """Says when its input has ended."""

    def finish(self) -> None:
        self.written.append("end")


def test_a_sink_hears_once_that_its_input_has_ended_however_often_the_job_goes_back() -> None:
    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("ends")
        numbers(topology, "few", 10).shuffle().sink(Ending(ledger), name="early", parallelism=3)
        numbers(topology, "many", 200).shuffle().sink(Exact(ledger), name="late", parallelism=2)
        return topology

    for seed in range(60):
        world = World(make, seed, workers=1 + seed % 3, kills=6, every_s=0.005)
        assert Counter(map(str, world.run()))["end"] == 3, f"seed {seed}"


class Shown(Exact):
    """Also shows what is written at once, as a console does."""

    def __init__(self, ledger: Ledger, shown: list[Any]) -> None:
        super().__init__(ledger)
        self.shown = shown

    def write(self, records: Any) -> None:
        some = list(records)
        self.shown += some
        self.written += some


def test_nothing_is_read_behind_the_last_epoch_also_where_its_marker_comes_before_the_word() -> (
    None
):
    stopped = 0
    for seed in range(40):
        shown: list[Any] = []

        def make(ledger: Ledger, shown: list[Any] = shown) -> tr.Topology:
            topology = tr.Topology("shown")
            some = numbers(topology, "numbers", 2000, 4).map(abs, parallelism=4)
            some.shuffle().sink(Shown(ledger, shown), parallelism=2)
            return topology

        first = World(make, seed, workers=4, every_s=0.01)
        first.hears = [1.0, 0.02, 0.02, 0.02]
        first.run(stop_at=20)
        stopped += not first.manifest.finished
        World(make, seed, workers=4, folder=first.folder, ledger=first.ledger).run()
        assert sorted(shown) == list(range(2000)), f"seed {seed}"
    assert stopped > 20
