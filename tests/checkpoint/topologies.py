"""Topologies to be disturbed: between them, all kinds of state that a job has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.parquet

import tailrace as tr
from tests.checkpoint.beside import logged_in
from tests.checkpoint.world import Exact, Ledger

COUNT = 60


def numbers(topology: tr.Topology, name: str, count: int, parallelism: int = 2) -> Any:
    return topology.source(tr.sources.unpaced(count=count), name=name, parallelism=parallelism)


async def itself(n: int) -> int:
    return n


def awaited(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("awaited")
    same = numbers(topology, "numbers", COUNT).async_map(
        itself, concurrency=4, parallelism=2, name="same"
    )
    timed = same.event_time(lambda n: n, max_delay_s=4)
    windowed = timed.key_by(lambda n: n % 3).window(tr.tumbling(10))
    sums = windowed.aggregate(lambda total, n: (total or 0) + n, parallelism=ledger.several(2))
    sums.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def overtaking(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("overtaking")
    some = numbers(topology, "numbers", COUNT).shuffle()
    same = some.async_map(
        itself, concurrency=3, ordered=False, parallelism=ledger.several(2), name="same"
    )
    same.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def sessions(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("sessions")
    timed = numbers(topology, "numbers", 80).event_time(lambda n: n + n // 10 * 20, max_delay_s=25)
    windowed = timed.key_by(lambda n: n % 3).window(tr.session(6))
    sums = windowed.aggregate(
        lambda total, n: (total or 0) + n,
        merge=lambda one, other: one + other,
        parallelism=ledger.several(2),
    )
    sums.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def sliding(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("sliding")
    timed = numbers(topology, "numbers", 80).event_time(lambda n: n, max_delay_s=4)
    windowed = timed.key_by(lambda n: n % 3).window(tr.sliding(10, 5))
    sums = windowed.aggregate(lambda total, n: (total or 0) + n, parallelism=ledger.several(2))
    sums.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def count_up(count: int | None, n: int) -> int:
    return (count or 0) + 1


def long_lived(ledger: Ledger) -> tr.Topology:
    """Keys that are watched for their age, and get none."""
    topology = tr.Topology("long lived")
    keyed = numbers(topology, "numbers", COUNT).key_by(lambda n: n % 7)
    counts = keyed.scan(count_up, parallelism=ledger.several(3), ttl_s=3600)
    counts.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def short_lived(ledger: Ledger) -> tr.Topology:
    """Keys that are forgotten and begin anew, when depends on the run."""
    topology = tr.Topology("short lived")
    keyed = numbers(topology, "numbers", COUNT).key_by(lambda n: n % 7)
    counts = keyed.scan(count_up, parallelism=ledger.several(3), ttl_s=0.01)
    counts.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


class Gathering(tr.Operator):
    """Has all that it has seen in an attribute."""

    def open(self) -> None:
        self.seen: list[int] = []

    def process(self, record: int) -> None:
        self.seen.append(record)
        self.emit(len(self.seen))

    def snapshot(self) -> Any:
        return self.seen

    def restore(self, snapshot: Any) -> None:
        self.seen = [*snapshot]

    def finish(self) -> None:
        self.emit(sorted(self.seen))


def gathered(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("gathered")
    some = numbers(topology, "numbers", COUNT).shuffle()
    some.process(Gathering(), parallelism=1).sink(Exact(ledger), parallelism=1)
    return topology


class Later(tr.Operator):
    """Keeps what comes until a timer is due, which belongs to no key."""

    def open(self) -> None:
        self.kept: list[int] = []

    def process(self, record: int) -> None:
        self.kept.append(record)
        self.set_timer(0.05)

    def timer(self, tag: Any) -> None:
        self.finish()

    def finish(self) -> None:
        kept, self.kept = self.kept, []
        for record in kept:
            self.emit(record)

    def snapshot(self) -> Any:
        return self.kept

    def restore(self, snapshot: Any) -> None:
        self.kept = [*self.kept, *snapshot]


def delayed(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("delayed")
    some = numbers(topology, "numbers", COUNT).shuffle()
    later = some.process(Later(), parallelism=ledger.several(2))
    later.sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def heard(ledger: Ledger) -> tr.Topology:
    """What cannot be read again, and is logged."""
    topology = tr.Topology("heard")
    some = topology.source(logged_in(ledger, COUNT), name="numbers", parallelism=1)
    keyed = some.key_by(lambda n: n % 7)
    seen = keyed.scan(lambda seen, n: [*(seen or []), n], parallelism=ledger.several(2))
    seen.map(lambda pair: pair[1][-1]).sink(Exact(ledger), parallelism=ledger.several(2))
    return topology


def counted(ledger: Ledger, topology: tr.Topology) -> Any:
    keyed = numbers(topology, "numbers", COUNT).key_by(lambda n: n % 7)
    counts = keyed.scan(count_up, parallelism=ledger.several(2))
    return counts.map(lambda pair: {"key": pair[0], "count": pair[1]}, parallelism=2)


def as_lines(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("lines")
    sink = tr.sinks.ndjson(str(ledger.place))
    counted(ledger, topology).sink(sink, name="files", parallelism=ledger.several(2))
    return topology


def as_tables(ledger: Ledger) -> tr.Topology:
    topology = tr.Topology("tables")
    sink = tr.sinks.parquet(str(ledger.place))
    counted(ledger, topology).sink(sink, name="files", parallelism=ledger.several(2))
    return topology


KINDS: list[Callable[[Ledger], tr.Topology]] = [
    awaited,
    overtaking,
    sessions,
    sliding,
    long_lived,
    short_lived,
    gathered,
    delayed,
    heard,
    as_lines,
    as_tables,
]


def results_of(make: Callable[[Ledger], tr.Topology], ledger: Ledger) -> Sequence[Any]:
    """What can be seen of a job by everybody."""
    files = sorted(ledger.place.glob("part-*")) if make in (as_lines, as_tables) else []
    if make is as_lines:
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
    if make is as_tables:
        return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    return ledger.results


def fit(make: Callable[[Ledger], tr.Topology], ledger: Ledger, expected: Counter[str]) -> bool:
    """Whether the results are those of a run that nobody has disturbed, or as good."""
    results = results_of(make, ledger)
    if make is heard:
        return len(set(results)) == len(results) and set(ledger.logged) <= set(results)
    if make is short_lived:  # who counts n has counted all before that
        counts = Counter(results)
        return counts.total() == COUNT and all(
            count <= counts[key, number - 1]
            for (key, number), count in counts.items()
            if number > 1
        )
    return Counter(map(repr, results)) == expected
