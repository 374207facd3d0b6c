"""Jobs whose driver dies, besides all else that fails: the same program goes on from the folder.

The next driver may have other numbers of workers and instances; the one before may live for a while
yet, and not know that it was replaced. `make simulate SEEDS=100000` runs more of them.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import tailrace as tr
from tests.checkpoint.beside import in_one_thread
from tests.checkpoint.test_simulation import TOPOLOGIES, accepted
from tests.checkpoint.topologies import KINDS, as_lines, as_tables, fit, gathered, heard, results_of
from tests.checkpoint.world import Ledger, Refusing, World
from tests.seeds import SEEDS

Make = Callable[[Ledger], tr.Topology]
ALL_KINDS: list[Make] = [*TOPOLOGIES, *KINDS]
ALONE: list[Make] = [gathered, heard]
"""Of which one instance must stay one."""
WITH_FILES: list[Make] = [as_lines, as_tables]


@cache
def undisturbed(make: Make) -> Counter[str]:
    chance = random.Random(0)
    with TemporaryDirectory() as place:
        ledger = Ledger(place=Path(place) / "out")
        with in_one_thread(chance, ledger) as beside:
            world = World(make, 0, every_s=1e9, ledger=ledger)
            world.beside = beside
            world.run()
        return Counter(map(repr, results_of(make, ledger)))


def live(make: Make, seed: int, ledger: Ledger, beside: Callable[[], bool]) -> int:
    """A job to its end, whatever it takes; returns how many drivers that were."""
    chance = random.Random(seed)
    folder = Refusing()
    dying = seed // len(ALL_KINDS) % 4
    before: World | None = None
    for driver in range(dying + 1):
        if driver:
            ledger.several = lambda usual: chance.choice([usual, 1, 2, 3])
        world = World(
            make,
            chance.randrange(1 << 30),
            workers=chance.randint(1, 4),
            kills=chance.choice([0, 0, 2, 4]),
            changes=0 if make in ALONE else chance.choice([0, 0, 4]),
            every_s=chance.choice([0.005, 0.01, 0.03, 0.2]),
            refusals=chance.choice([0.0, 0.0, 0.02]),
            folder=folder,
            ledger=ledger,
        )
        world.beside = beside
        if world.manifest.finished:
            return driver + 1
        if before is not None and make not in WITH_FILES:
            haunt(before, chance)
        world.run(dies_at=chance.randint(1, 160) if driver < dying else None)
        if world.over:
            return driver + 1
        before = world
    raise AssertionError("the last driver lives")


def haunt(world: World, chance: random.Random) -> None:
    """One that was replaced goes on for a while; it may start no workers any more."""
    world.kills = world.changes = 0
    world.refusals = 0.0
    counted = len(world.ledger.committed)
    world.run(dies_at=chance.randint(1, 60))
    assert len(world.ledger.committed) == counted, "who was replaced has let results be seen"


@pytest.fixture
def gone() -> Iterator[None]:
    """Who is killed closes no files: the collector does, here and not in somebody else's test."""
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize("part", range(20))
def test_every_result_comes_out_exactly_once_whoever_dies(part: int) -> None:
    drivers, of_part = 0, range(part, SEEDS // 2, 20)
    for seed in of_part:
        make = ALL_KINDS[seed % len(ALL_KINDS)]
        with TemporaryDirectory() as place:
            ledger = Ledger(place=Path(place) / "out")
            try:
                with in_one_thread(random.Random(seed), ledger) as beside:
                    drivers += live(make, seed, ledger, beside)
            except BaseException as error:
                raise AssertionError(f"seed {seed} ({make.__name__}): {error!r}") from error
            if make in TOPOLOGIES:
                good = accepted(make, ledger.results)
            else:
                good = fit(make, ledger, undisturbed(make))
            assert good, f"seed {seed} ({make.__name__})"
    assert SEEDS < 1000 or drivers > 1.1 * len(of_part)
