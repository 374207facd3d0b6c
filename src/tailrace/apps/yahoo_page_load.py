"""Yahoo's PageLoad topology: what page loads cost, from log lines, by six operators in a line.

Transform, filter, join with the table of pages, filter again, aggregate, output: stateless, and
shuffled at each step. The thesis on tail latency runs five instances of each; a source emits 240,
530 or 600 lines per second in each instance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tailrace import Stream, Topology
from tailrace.apps.work import with_work
from tailrace.runtime.source import Source
from tailrace.sources import rate

INSTANCES = 5
PER_INSTANCE_PER_S = 240
PAGES = 1000
SITE_OF = {f"/page/{n}": f"site{n % 20}" for n in range(PAGES) if n % 10}
"""The table of pages. One page in ten belongs to no site."""


def lines(seed: int = 0, distinct: int = 10_000) -> Callable[[int], str]:
    """The i-th line of the log: page, user, status, milliseconds of each phase.

    One load in ten fails. Lines repeat after `distinct`.
    """
    chance = random.Random(seed)
    prepared = []
    for _ in range(distinct):
        status = 200 if chance.random() < 0.9 else 500
        phases = (str(chance.randrange(1, 200)) for _ in range(4))
        page, user = chance.randrange(PAGES), chance.randrange(100_000)
        prepared.append(f"/page/{page} user{user} {status} {' '.join(phases)}")
    return lambda i: prepared[i % distinct]


class Load(NamedTuple):
    """One page load; the site is known once it is joined."""

    page: str
    user: str
    status: int
    phases_ms: tuple[int, ...]
    site: str | None = None


class Cost(NamedTuple):
    """What a user waited for a site, all phases together."""

    site: str | None
    user: str
    total_ms: int


def transform(line: str) -> Load:
    """A page load from its line."""
    page, user, status, *phases_ms = line.split()
    return Load(page, user, int(status), tuple(map(int, phases_ms)))


def succeeded(load: Load) -> bool:
    """Whether the page came."""
    return load.status == 200


def join(load: Load) -> Load:
    """With the site of the page."""
    return load._replace(site=SITE_OF.get(load.page))


def has_site(load: Load) -> bool:
    """Whether the page was in the table."""
    return load.site is not None


def aggregate(load: Load) -> Cost:
    """All phases together."""
    return Cost(load.site, load.user, sum(load.phases_ms))


def output(cost: Cost) -> str:
    """The line that is written."""
    return f"{cost.site} {cost.user} {cost.total_ms}"


def yahoo_page_load(
    source: Source, parallelism: int = INSTANCES, operations: int = 0, delay_s: float = 0.0
) -> tuple[Topology, Stream]:
    """The topology, and its stream of output lines.

    Each operator does `operations` additions and then waits for `delay_s`.
    """
    topology = Topology("yahoo page load")
    return topology, (
        topology.source(source, name="log", parallelism=parallelism)
        .shuffle()
        .map(with_work(transform, operations, delay_s), name="transform")
        .shuffle()
        .filter(with_work(succeeded, operations, delay_s), name="filter")
        .shuffle()
        .map(with_work(join, operations, delay_s), name="join")
        .shuffle()
        .filter(with_work(has_site, operations, delay_s), name="filter 2")
        .shuffle()
        .map(with_work(aggregate, operations, delay_s), name="aggregate")
        .shuffle()
        .map(with_work(output, operations, delay_s), name="output")
    )


def expected(lines: Iterable[str]) -> list[str]:
    """The same in plain Python, in any order."""
    results = []
    for line in lines:
        page, user, status, *phases_ms = line.split()
        if status == "200" and page in SITE_OF:
            results.append(f"{SITE_OF[page]} {user} {sum(map(int, phases_ms))}")
    return results


def topology(
    per_s: float = INSTANCES * PER_INSTANCE_PER_S,
    seconds: float | None = None,
    operations: int = 0,
) -> Topology:
    """Ready to run: `tailrace run tailrace.apps.yahoo_page_load:topology`."""
    built, costs = yahoo_page_load(rate(per_s, lines(), seconds=seconds), operations=operations)
    costs.sink(lambda line: None, name="sink")
    return built
