"""The throughput test: random items, shuffled to an operator that hands them on, then counted.

TurboStream compares latencies at 1,000 to 40,000 items per second with it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter

from tailrace import Stream, Topology
from tailrace.runtime.source import Source
from tailrace.sources import rate

PRODUCERS = 100
ITEM_BYTES = 100

Item = tuple[int, bytes]
"""Who made it, and what."""


def items(
    seed: int = 0,
    size_bytes: int = ITEM_BYTES,
    producers: int = PRODUCERS,
    distinct: int = 1000,
) -> Callable[[int], Item]:
    """The i-th item, from a random producer; they repeat after `distinct`."""
    chance = random.Random(seed)
    prepared = [
        (chance.randrange(producers), chance.randbytes(size_bytes)) for _ in range(distinct)
    ]
    return lambda i: prepared[i % distinct]


def hand_on(item: Item) -> Item:
    """Do nothing."""
    return item


def count(seen: int | None, item: Item) -> int:
    """One more."""
    return (seen or 0) + 1


def throughput(source: Source, parallelism: int = 2) -> tuple[Topology, Stream]:
    """The topology, and its stream of (producer, count) for every item that comes."""
    topology = Topology("throughput test")
    handed = (
        topology.source(source, name="items")
        .shuffle()
        .map(hand_on, name="identity", parallelism=parallelism)
    )
    return topology, handed.key_by(itemgetter(0)).scan(count, name="count")


def expected(items: Iterable[Item]) -> list[tuple[int, int]]:
    """The same in plain Python, in any order."""
    totals = Counter(producer for producer, _ in items)
    return [(producer, n) for producer, total in totals.items() for n in range(1, total + 1)]


def topology(per_s: float = 40_000, seconds: float | None = None) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.throughput:topology`."""
    built, counts = throughput(rate(per_s, items(), seconds=seconds))
    counts.sink(lambda counted: None, name="sink")
    return built
