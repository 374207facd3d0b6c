"""Exclamation: names that get louder with every operator, in a line of four.

The thesis on tail latency runs five instances of each, source included, with shuffles between.
To compare ways of balancing load it makes every operator do 200,000 additions per record.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tailrace import Stream, Topology
from tailrace.apps.work import with_work
from tailrace.runtime.source import Source
from tailrace.sources import rate

NAMES = ("ada", "barbara", "edsger", "grace", "leslie", "tony")
EXCLAIMERS = 3


def names(seed: int = 0, distinct: int = 1000) -> Callable[[int], str]:
    """The i-th name; they repeat after `distinct`."""
    prepared = random.Random(seed).choices(NAMES, k=distinct)
    return lambda i: prepared[i % distinct]


def exclaim(name: str) -> str:
    """Louder."""
    return name + "!!!"


def exclamation(
    source: Source, parallelism: int = 5, operations: int = 0
) -> tuple[Topology, Stream]:
    """The topology, and its stream of loud names; each operator does so many `operations` first."""
    topology = Topology("exclamation")
    stream = topology.source(source, name="names", parallelism=parallelism)
    for number in range(1, EXCLAIMERS + 1):
        stream = stream.shuffle().map(with_work(exclaim, operations), name=f"exclaim {number}")
    return topology, stream


def expected(names: Iterable[str]) -> list[str]:
    """The same in plain Python, in any order."""
    return [name + "!!!" * EXCLAIMERS for name in names]


def topology(per_s: float = 1200, seconds: float | None = None, operations: int = 0) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.exclamation:topology`."""
    built, loud = exclamation(rate(per_s, names(), seconds=seconds), operations=operations)
    loud.sink(lambda name: None, name="sink")
    return built
