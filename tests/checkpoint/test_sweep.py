"""What is kept of a folder, and what is swept away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.checkpoint.manifest import Manifest, data_name
from tailrace.checkpoint.sections import Kind
from tailrace.checkpoint.store import Store
from tests.checkpoint.writing import flip, state, write_epoch


def test_sweeping_keeps_the_last_epochs_and_what_they_need(store: Store) -> None:
    last: Manifest | None = None
    for epoch in range(1, 8):
        kind: Kind = "full" if epoch in (1, 4) else "delta"
        last = write_epoch(store, epoch, {epoch: epoch}, kind, last)
    deleted = store.sweep(keep=2)
    assert store.folder.names("epochs") == ["epochs/00000006-1.json", "epochs/00000007-1.json"]
    assert store.folder.names("data") == [data_name(epoch, 1, 0, 0) for epoch in (4, 5, 6, 7)]
    assert len(deleted) == 5 + 3
    assert state(store, store.latest(verify=True)) == {4: 4, 5: 5, 6: 6, 7: 7}
    assert store.sweep(keep=2) == []


def test_sweeping_removes_what_no_manifest_names(store: Store, tmp_path: Path) -> None:
    write_epoch(store, 5, {"a": 1}, attempt=2)
    orphan, late, progress = (data_name(*one, 1) for one in ((5, 1, 1), (6, 1, 1), (6, 1, 2)))
    hidden = "data/.00000004-1.0-0.bin.0123abcd.tmp"
    busy = "data/.00000006-1.2-0.bin.0123abcd.tmp"
    for name in (orphan, late, progress, hidden, busy, "data/notes.txt", "epochs/notes.txt"):
        path = tmp_path / "state" / name
        path.write_bytes(b"something")
    assert sorted(store.sweep(current=(1, 2))) == sorted([orphan, late, hidden])
    left = store.folder.sizes("data", hidden=True).keys()
    assert left == {data_name(5, 1, 2, 0), progress, busy, "data/notes.txt"}
    assert store.folder.exists("epochs/notes.txt")


def test_without_knowing_the_attempt_sweeping_leaves_all_newer_files(store: Store) -> None:
    write_epoch(store, 5, {"a": 1})
    store.folder.write(data_name(6, 1, 0, 0), b"in progress")
    assert store.sweep() == []


def test_damaged_epochs_do_not_count_as_kept(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    for epoch in (2, 3):
        write_epoch(store, epoch, {"a": epoch})
        flip(store.folder, f"epochs/0000000{epoch}-1.json", 50)
    fourth = write_epoch(store, 4, {"a": 4})
    fresh = Store(store.folder)
    fresh.sweep(keep=2)
    assert {fourth.file, first.file} == set(store.folder.names("epochs"))


def test_with_no_good_epoch_nothing_is_swept(store: Store) -> None:
    store.folder.write(data_name(1, 1, 0, 0), b"data")
    store.folder.write("epochs/00000001-1.json", b"{}")
    assert store.sweep() == []
    with pytest.raises(ValueError, match="keep is 0"):
        store.sweep(keep=0)
