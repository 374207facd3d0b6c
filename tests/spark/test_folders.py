"""What a job is refused that its folder, or a savepoint, cannot give; without a Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace as tr
from tailrace.checkpoint.errors import CheckpointError, LeaseHeldError
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.store import Store
from tailrace.runtime.guarantees import bound
from tailrace.spark.checkpoints import Checkpoints


def counting() -> tr.Topology:
    topology = tr.Topology("counting")
    topology.source([1, 2]).key_by().scan(lambda count, n: (count or 0) + 1).sink(print)
    return topology


def epoch_in(folder: Path) -> Path:
    manifest = Manifest(3, 1, 0, "job", "counting", 0.0)
    Store(folder_at(folder)).commit(manifest)
    return folder / manifest.file


def test_a_folder_with_nothing_but_damaged_epochs_is_refused_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    file = epoch_in(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"no epoch in .* can be gone on from: epoch 3"):
            Checkpoints(counting().graph, tmp_path)
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_folder_is_free_again_after_a_refusal_and_only_then(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="retain is 0; it must be a whole number, at least 1"):
        Checkpoints(counting().graph, tmp_path, keep=0)
    with pytest.raises(CheckpointError, match="there is no epoch in"):
        Checkpoints(counting().graph, tmp_path / "new", restore=tmp_path / "nothing")
    first = Checkpoints(counting().graph, tmp_path / "new")
    with pytest.raises(LeaseHeldError, match="is in use by job 'counting'"):
        Checkpoints(counting().graph, tmp_path / "new")
    first.close()
    Checkpoints(counting().graph, tmp_path / "new").close()


def test_a_journal_is_not_in_a_savepoint(tmp_path: Path) -> None:
    epoch_in(tmp_path / "saved")
    topology = tr.Topology("journal")
    topology.source(tr.sources.listen(0, journal=True), name="orders").sink(print)
    graph = bound(topology.graph, str(tmp_path / "new"))
    with pytest.raises(CheckpointError, match="the journal of 'orders' are kept with"):
        Checkpoints(graph, tmp_path / "new", restore=tmp_path / "saved")
