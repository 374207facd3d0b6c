"""Savepoints: what is copied is what was written."""

from __future__ import annotations

import re

import pytest

from tailrace.checkpoint.copying import copy_epoch
from tailrace.checkpoint.errors import DamagedError
from tailrace.checkpoint.store import Store
from tests.checkpoint.memory import Memory
from tests.checkpoint.writing import cut, flip, state, write_epoch


def test_a_copy_has_the_state_of_the_epoch(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1, "b": 2})
    second = write_epoch(store, 2, {"b": 3}, "delta", first)
    copy = Store(Memory())
    copy_epoch(store.folder, second, copy.folder)
    assert copy.latest(verify=True) == second
    assert state(copy, second) == {"a": 1, "b": 3}


def test_no_changed_byte_is_copied_into_a_savepoint(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    second = write_epoch(store, 2, {"b": 2}, "delta", first)
    for name in sorted(second.files):
        whole = store.folder.read(name)
        parts = [one for one in second.sections if one.file == name]
        for place in range(parts[0].offset, parts[-1].offset + parts[-1].length):
            flip(store.folder, name, place)
            target = Memory()
            with pytest.raises(DamagedError, match=re.escape(name)):
                copy_epoch(store.folder, second, target)
            assert Store(target).latest() is None
            store.folder.write(name, whole)


def test_a_file_that_is_short_or_gone_is_named(store: Store) -> None:
    first = write_epoch(store, 1, {"a": 1})
    (name,) = first.files
    cut(store.folder, name, 9)
    with pytest.raises(DamagedError, match=f"{name}.*ends after"):
        copy_epoch(store.folder, first, Memory())
    store.folder.delete(name)
    with pytest.raises(DamagedError, match=f"cannot read .*{name}"):
        copy_epoch(store.folder, first, Memory())
