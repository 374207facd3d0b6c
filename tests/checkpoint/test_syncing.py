"""What sinks have prepared is on the disk before its epoch counts, and nobody else waits for it."""

from __future__ import annotations

import threading
from collections import Counter
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
    """It tries three times."""
    told, seen = threading.Event(), Counter[str]()

    def sync() -> None:
        seen[threading.current_thread().name] += 1
        if seen.total() <= fails:
            raise OSError("not now")

    part = Part(1, [], [], ended=False, syncs=[sync])
    settings = Settings(1, ("", 0), b"", b"", checkpoint=str(tmp_path))
    checkpointing = Checkpointing(settings, 0, told.set)
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
    finally:
        checkpointing.close()
