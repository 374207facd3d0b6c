"""Large states are written in parts: all comes back from them, and they are small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.checkpoint.epochs import Act
from tailrace.checkpoint.manifest import Manifest, chained
from tailrace.checkpoint.reading import read_dict
from tailrace.checkpoint.sections import EpochFile, Kind, encode_block
from tailrace.runtime import chains
from tests.checkpoint import test_simulation
from tests.checkpoint.memory import Memory
from tests.checkpoint.test_simulation import (
    folded,
    joined,
    lists,
    many,
    numbers,
    processed,
    windows,
)
from tests.checkpoint.world import Exact, Ledger, World
from tests.seeds import SEEDS


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any state is large enough, and jobs go on for some epochs."""
    monkeypatch.setattr(chains, "SWEPT_BYTES", 0)
    monkeypatch.setattr(chains, "PARTS", 3)

    def more(topology: tr.Topology, name: str, count: int, parallelism: int = 2) -> Any:
        return numbers(topology, name, max(count, 300), parallelism)

    monkeypatch.setattr(test_simulation, "numbers", more)


class Noted(World):
    """Notes the kinds of sections, and how many build on each other at most."""

    kinds: frozenset[str] = frozenset()
    longest = 0

    def write_manifest(self, anyway: bool = True) -> list[Act]:
        acts = super().write_manifest(anyway)
        keyed = [one for one in self.manifest.sections if one.kind != "shared"]
        self.kinds = self.kinds.union(one.kind for one in keyed)
        lengths = Counter((one.operator, one.index) for one in keyed)
        self.longest = max([self.longest, *lengths.values()])
        return acts


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("make", [lists, windows, joined, folded, processed])
def test_a_job_whose_state_is_swept_gives_every_result_exactly_once(
    make: Callable[[Ledger], tr.Topology],
) -> None:
    whole = Counter(map(repr, World(make, 0, every_s=1e9).run()))
    kinds = frozenset[str]()
    for seed in range(max(SEEDS // 100, 10)):
        world = Noted(make, seed, workers=1 + seed % 3, kills=seed % 4, every_s=0.002)
        assert Counter(map(repr, world.run())) == whole, f"seed {seed}"
        kinds |= world.kinds
    assert kinds >= {"full", "rest", "delta"}


@pytest.mark.usefixtures("swept")
def test_a_swept_chain_stays_short_however_often_workers_are_killed() -> None:
    longest, kinds = 0, frozenset[str]()
    for seed in range(20):
        world = Noted(many, seed, workers=2, kills=100, every_s=0.001)
        assert len(world.run()) == 1000, f"seed {seed}"
        longest = max(longest, world.longest)
        kinds |= world.kinds
    assert kinds == {"full", "part", "rest", "delta"}
    assert longest <= chains._LONGEST_SWEPT


def written(folder: Memory, number: int, pieces: list[tuple[Kind, dict[int, int]]]) -> Any:
    file = EpochFile(f"data/{number}")
    for kind, pairs in pieces:
        file.add("count", 0, kind, [encode_block(list(pairs.items()))], len(pairs))
    return file.write(folder)


@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 20), st.integers()), st.booleans())))
def test_whenever_a_sweep_is_broken_off_nothing_is_dropped_that_is_needed(
    epochs: list[tuple[dict[int, int], bool]],
) -> None:
    folder, state = Memory(), dict[int, int]()
    last = Manifest(1, 1, 0, "job", "name", 0.0)
    last = replace(last, sections=chained(last, written(folder, 0, [("full", {})])))
    left: list[int] = []
    for number, (changed, lost) in enumerate(epochs, 1):
        state.update(changed)
        part, left = left[:5], left[5:]
        kind: Kind = "part" if left else "rest"
        again = {key: state[key] for key in part if key not in changed}
        pieces: list[tuple[Kind, dict[int, int]]] = [(kind, again)] if part else []
        sections = chained(last, written(folder, number, [*pieces, ("delta", changed)]))
        last = replace(last, epoch=number, sections=sections)
        if lost or not left:
            left = list(state)
        assert read_dict(folder, last.sections) == state
        assert not part or kind == "part" or len(sections) <= 2 * number


class Weighed(World):
    """Notes how many keys are written for each epoch."""

    def write_manifest(self, anyway: bool = True) -> list[Act]:
        before = self.manifest.files
        acts = super().write_manifest(anyway)
        new = [one for one in self.manifest.of("sums") if one.file not in before]
        self.sizes: list[int] = getattr(self, "sizes", [])
        self.sizes.append(sum(one.entries for one in new if one.kind != "shared"))
        return acts


def large(ledger: Ledger) -> tr.Topology:
    """Of a thousand keys three change again and again."""
    topology = tr.Topology("large")
    numbers = topology.source(tr.sources.unpaced(count=12000), name="numbers", parallelism=1)
    keyed = numbers.key_by(lambda n: n if n < 1000 else n % 3)
    keyed.scan(lambda total, n: (total or 0) + n, name="sums", parallelism=1).sink(Exact(ledger))
    return topology


@pytest.mark.parametrize("swept_bytes", [1000, 1 << 30])
def test_no_epoch_of_a_large_state_is_much_larger_than_another(
    swept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "SWEPT_BYTES", swept_bytes)
    world = Weighed(large, 0, workers=1, every_s=0.05)
    assert len(world.run()) == 12000
    full = world.sizes.index(next(size for size in world.sizes if size >= 500))
    later = world.sizes[full + 10 : -1]
    assert len(later) > 30
    assert max(later) == (53 if swept_bytes == 1000 else 1000)
