"""Epochs in a folder: what is found, what is passed over, what is swept away."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.checkpoint.errors import (
    CheckpointError,
    DamagedError,
    LeaseLostError,
    UncertainError,
    VersionError,
)
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.manifest import (
    Manifest,
    OperatorNote,
    data_name,
    from_json,
    to_json,
)
from tailrace.checkpoint.reading import read_shared
from tailrace.checkpoint.sections import EpochFile, encode_block
from tailrace.checkpoint.store import Store
from tests.checkpoint.memory import Memory
from tests.checkpoint.writing import Lease, cut, flip, manifest, state, write_epoch


def test_a_folder_that_is_not_there_has_no_epoch(store: Store) -> None:
    assert store.latest() is None
    assert not store.passed_over


def test_the_newest_epoch_is_found_with_its_state(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1, "b": 2})
    write_epoch(store, 2, {"b": 3}, "delta", first)
    found = store.latest(verify=True)
    assert found is not None
    assert found.epoch == 2
    assert state(store, found) == {"a": 1, "b": 3}
    assert read_shared(store.folder, found.of("count")) == [(0, {"epoch": 2})]
    assert state(store, store.at(1)) == {"a": 1, "b": 2}


def test_a_manifest_is_the_same_after_json() -> None:
    file = EpochFile(data_name(3, 1, 0, 0))
    file.add("count", 1, "full", [encode_block([("ü", 1)])], 1, keys=1, state_version=2)
    made = manifest(
        3,
        operators={"count": OperatorNote("scan", 2, 2, True)},
        plan={"workers": [0, 1]},
        sections=file.write(Memory()),
        handles=(("to files", b"\x80\x00\xff"),),
        finished=True,
    )
    assert from_json(to_json(made), "here") == made


def test_no_byte_of_a_manifest_can_change_unseen() -> None:
    data = to_json(manifest(7, handles=(("sink", b"handle"),)))
    for place in range(len(data)):
        for bit in (0x01, 0x10, 0x80):
            changed = bytearray(data)
            changed[place] ^= bit
            with pytest.raises(DamagedError):
                from_json(bytes(changed), "here")
    for length in range(len(data)):
        with pytest.raises(DamagedError):
            from_json(data[:length], "here")


def test_no_byte_of_a_data_file_can_change_unseen(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    second = write_epoch(store, 2, {"b": 2}, "delta", first)
    name = data_name(2, 1, 0, 0)
    size = store.folder.sizes("data")[name]
    assert size < 300
    for place in range(size):
        flip(store.folder, name, place)
        found = store.latest(verify=True)
        assert found == first, place
        (over,) = store.passed_over
        assert over.epoch == 2
        assert name in over.cause
        flip(store.folder, name, place)
    assert store.latest(verify=True) == second


def test_a_file_cut_anywhere_is_seen_without_reading_it(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    write_epoch(store, 2, {"b": 2}, "delta", first)
    name = data_name(2, 1, 0, 0)
    whole = store.folder.read(name)
    for length in range(len(whole)):
        store.folder.write(name, whole[:length])
        assert store.latest() == first
        assert f"it has {length} bytes" in store.passed_over[0].cause


DAMAGES: dict[str, Callable[[Store], object]] = {
    "manifest flipped": lambda store: flip(store.folder, "epochs/00000002-1.json", 60),
    "manifest cut": lambda store: cut(store.folder, "epochs/00000002-1.json", 40),
    "manifest empty": lambda store: cut(store.folder, "epochs/00000002-1.json", 0),
    "data missing": lambda store: store.folder.delete(data_name(2, 1, 0, 0)),
    "data short": lambda store: cut(store.folder, data_name(2, 1, 0, 0), 5),
    "data empty": lambda store: cut(store.folder, data_name(2, 1, 0, 0), 0),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_epoch_is_passed_over_and_named(store: Store, damage: str) -> None:
    first = write_epoch(store, 1, {"a": 1})
    write_epoch(store, 2, {"b": 2}, "delta", first)
    DAMAGES[damage](store)
    assert store.latest() == first
    (over,) = store.passed_over
    assert (over.epoch, over.name) == (2, "epochs/00000002-1.json")
    assert over.cause.count("\n") == 0
    assert "00000002-1" in over.cause


def test_damage_below_a_chain_takes_all_epochs_that_need_it(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    second = write_epoch(store, 2, {"b": 2})
    third = write_epoch(store, 3, {"b": 3}, "delta", second)
    flip(store.folder, data_name(2, 1, 0, 0), 20)
    assert store.latest() == third, "the cheap look does not read"
    with pytest.raises(DamagedError, match="another crc"):
        state(store, third)
    assert store.latest(verify=True) == first
    assert [over.epoch for over in store.passed_over] == [3, 2]


def test_a_missing_manifest_is_an_epoch_that_never_was(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    write_epoch(store, 2, {"b": 2}, "delta", first)
    store.folder.delete("epochs/00000002-1.json")
    assert store.latest() == first
    assert not store.passed_over


def test_a_manifest_under_another_name_does_not_count(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    store.folder.write("epochs/00000009-1.json", store.folder.read(first.file))
    assert store.latest() == first
    assert "is a copy of 'epochs/00000001-1.json'" in store.passed_over[0].cause


def test_an_unknown_version_is_refused_and_not_passed_over(store: Store) -> None:
    write_epoch(store, 1, {"a": 1})
    store.commit(manifest(2, version=7))
    with pytest.raises(VersionError, match=r"of version 7; this tailrace reads version 1"):
        store.latest()


def test_who_lost_the_lease_writes_nothing(store: Store) -> None:
    writer = Store(store.folder, Lease(checks=0))
    with pytest.raises(LeaseLostError):
        writer.commit(manifest(1))
    with pytest.raises(LeaseLostError):
        writer.sweep()
    assert store.latest() is None


def test_who_loses_the_lease_while_committing_is_told(store: Store) -> None:
    """Whether the epoch counts is for the new holder to say; no sink may hear of it."""
    with pytest.raises(LeaseLostError):
        Store(store.folder, Lease(checks=1)).commit(manifest(1))


def test_a_manifest_of_another_generation_than_the_leases_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="is of generation 1; the lease is of 2"):
        Store(store.folder, Lease(2)).commit(manifest(1))


def test_what_a_cut_off_driver_commits_after_a_takeover_never_counts(store: Store) -> None:
    old = Store(store.folder, Lease(1))
    write_epoch(old, 1, {"a": 1})
    new = Store(store.folder, Lease(2))
    resumed = new.resume(Manifest.beginning("job", "words", 0.0))
    assert (resumed.epoch, resumed.generation) == (1, 2)
    zombie = write_epoch(old, 2, {"a": 2})
    assert store.latest() == resumed
    # Even if the manifest that the new driver made its own is damaged.
    flip(store.folder, resumed.file, 50)
    found = store.latest()
    assert found is not None
    assert (found.epoch, found.generation) == (1, 1)
    assert [over.name for over in store.passed_over] == [resumed.file, zombie.file]
    assert "after another had gone on from epoch 1" in store.passed_over[1].cause


def test_a_takeover_before_the_first_epoch_counts_as_well(store: Store) -> None:
    beginning = Manifest.beginning("job", "words", 0.0)
    resumed = Store(store.folder, Lease(2)).resume(beginning)
    assert (resumed.epoch, resumed.generation, resumed.sections) == (0, 2, ())
    write_epoch(Store(store.folder, Lease(1)), 1, {"a": 1})
    assert store.latest() == resumed


def test_an_epoch_that_is_not_there_is_told_with_those_that_are(store: Store) -> None:
    write_epoch(store, 3, {})
    with pytest.raises(CheckpointError, match=r"there is no epoch 4 in '.*'; there are \[3\]"):
        store.at(4)


def test_no_permission_is_an_error_and_no_reason_to_pass_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_epoch(store, 1, {"a": 1})
    write_epoch(store, 2, {"a": 2})

    def refuse(self: Folder, name: str, *_: int) -> bytes:
        raise CheckpointError(f"cannot read {name!r}: {os.strerror(13)}")

    monkeypatch.setattr(type(store.folder), "read", refuse)
    with pytest.raises(CheckpointError, match=r"cannot read 'epochs/00000002-1\.json'"):
        Store(store.folder).latest()


class Failing:
    """A folder whose writes fail once they are done, and whose deletes may fail, too."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.deletes = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def write(self, name: str, data: bytes) -> None:
        self._folder.write(name, data)
        raise CheckpointError("no answer")

    def delete(self, name: str) -> None:
        if not self.deletes:
            raise CheckpointError("no answer again")
        self._folder.delete(name)


def test_a_commit_that_fails_has_not_happened_unless_it_says_so(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    failing: Any = Failing(store.folder)
    with pytest.raises(CheckpointError, match="no answer") as caught:
        Store(failing).commit(manifest(2))
    assert not isinstance(caught.value, UncertainError)
    assert store.latest() == first
    failing.deletes = False
    with pytest.raises(UncertainError, match="epoch 2 may be committed or not: no answer; then"):
        Store(failing).commit(manifest(2))


def test_to_commit_an_epoch_again_changes_nothing(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    store.folder.delete(first.file)
    store.commit(first)
    assert not store.folder.exists(first.file)


def test_an_epoch_that_is_swept_while_it_is_looked_at_is_not_called_damaged(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    second = write_epoch(store, 2, {"a": 2})
    looking = Store(store.folder).epochs(verify=True)
    assert next(looking)[1] == second
    for name in (first.file, *first.files):
        store.folder.delete(name)
    assert list(looking) == []


def test_an_epoch_counts_or_not_if_the_lease_cannot_be_asked_behind_it(store: Store) -> None:
    class Unsure(Lease):
        errors = 3

        def check(self) -> None:
            super().check()
            if self.checks < 9 and self.errors:
                self.errors -= 1
                raise CheckpointError("no answer")

    unsure = Store(store.folder, Unsure(checks=10))
    with pytest.raises(UncertainError, match=r"epoch 1 may be committed or not: .*no answer"):
        unsure.commit(manifest(1))
    assert store.latest() == manifest(1)
    with pytest.raises(UncertainError):  # which no try that comes less far makes certain
        unsure.commit(manifest(1))
    with pytest.raises(CheckpointError) as caught:
        unsure.commit(manifest(2))
    assert not isinstance(caught.value, UncertainError)
    unsure.commit(manifest(1))
