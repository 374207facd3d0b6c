"""What sinks have prepared is on the disk before its epoch counts, and nobody else waits for it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import tailrace as tr
from tailrace.checkpoint.epochs import Act
from tailrace.control.checkpointing import Checkpointing
from tailrace.control.protocol import Settings
from tailrace.runtime.cuts import Part
from tests.checkpoint.test_simulation import numbers
from tests.checkpoint.world import Exact, Ledger, World


class Synced(Exact):
    """Notes which handles are safe on the disk: as prepared, and once committed as seen."""

    safe: ClassVar[set[tuple[Any, bool]]] = set()

    def sync(self, handle: Any) -> None:
        self.safe.add((handle, handle in self.ledger.committed))


class Watched(World):
    """Looks at that whenever a manifest is written."""

    def write_manifest(self, anyway: bool = True) -> list[Act]:
        epoch = self.manifest.epoch
        acts = super().write_manifest(anyway)
        if self.manifest.epoch != epoch:
            for handle in self.ledger.prepared:
                assert handle[0] > epoch + 1 or (handle, False) in Synced.safe, handle
            for handle in self.ledger.committed:
                assert (handle, True) in Synced.safe or handle[0] > epoch, handle
        return acts


def test_no_epoch_counts_before_all_that_it_shows_is_on_the_disk() -> None:
    def make(ledger: Ledger) -> tr.Topology:
        topology = tr.Topology("synced")
        keyed = numbers(topology, "numbers", 100).key_by(lambda n: n % 7)
        keyed.scan(lambda total, n: (total or 0) + n, parallelism=2).sink(
            Synced(ledger), parallelism=2
        )
        return topology

    for seed in range(50):
        Synced.safe = set()
        world = Watched(make, seed, workers=1 + seed % 3, kills=seed % 4, every_s=0.01)
        assert len(world.run()) == 100, f"seed {seed}"
        assert Synced.safe


@pytest.mark.parametrize("fails", [0, 2, 3])
def test_a_worker_waits_for_the_disk_in_another_thread(tmp_path: Path, fails: int) -> None:
    """It tries three times, with pauses in which the loop goes on."""
    told, seen, pauses = threading.Event(), Counter[str](), list[tuple[str, float]]()

    def pause(seconds: float) -> None:
        pauses.append((threading.current_thread().name, seconds))

    def sync() -> None:
        seen[threading.current_thread().name] += 1
        if seen.total() <= fails:
            raise OSError("not now")

    part = Part(1, [], [], ended=False, syncs=[sync])
    settings = Settings(1, ("", 0), b"", b"", checkpoint=str(tmp_path))
    checkpointing = Checkpointing(settings, 0, told.set, pause)
    core: Any = SimpleNamespace(
        cuts=SimpleNamespace(take=[None, part].pop),
        deployment=SimpleNamespace(graph=SimpleNamespace(operators=())),
    )
    try:
        assert checkpointing.look(core, 0) is None
        assert told.wait(30)
        if fails == 3:
            with pytest.raises(OSError, match="not now"):
                checkpointing.look(core, 0)
        else:
            snapshotted = checkpointing.look(core, 0)
            assert snapshotted is not None and snapshotted.epoch == 1
        assert seen == {"tailrace-epochs": min(fails + 1, 3)}
        assert pauses == [("tailrace-epochs", 0.1), ("tailrace-epochs", 0.3)][:fails]
    finally:
        checkpointing.close()


def test_a_part_of_an_attempt_that_is_over_hides_no_other(tmp_path: Path) -> None:
    written = threading.Semaphore(0)
    parts = [Part(epoch, [], [], ended=False) for epoch in (1, 2)]
    settings = Settings(1, ("", 0), b"", b"", checkpoint=str(tmp_path))
    checkpointing = Checkpointing(settings, 0, written.release)
    core: Any = SimpleNamespace(
        cuts=SimpleNamespace(take=[None, *reversed(parts)].pop),
        deployment=SimpleNamespace(graph=SimpleNamespace(operators=())),
    )
    try:
        assert checkpointing.look(core, 0) is None
        assert written.acquire(timeout=30)
        done, checkpointing._done = checkpointing._done, deque()
        assert checkpointing.look(core, 1) is None
        assert written.acquire(timeout=30)
        checkpointing._done.extendleft(done)  # nobody had looked yet
        found = checkpointing.look(core, 1)
        assert found is not None
        assert (found.epoch, found.attempt) == (2, 1)
    finally:
        checkpointing.close()
