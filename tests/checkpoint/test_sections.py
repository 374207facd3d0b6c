"""State as bytes and back: blocks, chains, forgotten keys, versions."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.checkpoint import reading
from tailrace.checkpoint.errors import CheckpointError, DamagedError, MissingError, VersionError
from tailrace.checkpoint.folder import Buffer, Folder, folder_at
from tailrace.checkpoint.manifest import Manifest, chained
from tailrace.checkpoint.reading import read_dict, read_shared, verify
from tailrace.checkpoint.sections import (
    FORGOTTEN,
    MAGIC,
    Encoded,
    EpochFile,
    Kind,
    Section,
    encode_block,
    encode_shared,
    framed,
)
from tests.checkpoint.memory import Memory


def written(
    folder: Folder,
    name: str,
    pairs: Iterable[tuple[Any, Any]],
    kind: Kind = "full",
    index: int = 0,
    version: int = 0,
    block_entries: int = 3,
) -> Section:
    file, pairs = EpochFile(name), list(pairs)
    blocks: list[Buffer] = [
        encode_block(pairs[start : start + block_entries])
        for start in range(0, len(pairs), block_entries)
    ]
    file.add("count", index, kind, blocks, len(pairs), state_version=version)
    (section,) = file.write(folder)
    return section


def test_entries_come_back() -> None:
    folder = Memory()
    pairs = [(number, {"n": number}) for number in range(10)]
    section = written(folder, "data/1", pairs)
    assert read_dict(folder, [section]) == dict(pairs)
    assert (section.entries, section.keys) == (10, 10)
    assert section.length == len(folder.files["data/1"])


def test_several_sections_share_a_file(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    file = EpochFile("data/1")
    file.add("a", 0, "full", [encode_block([("x", 1)])], 1)
    file.add_shared("a", 0, encode_shared([1, 2]))
    file.add("b", 1, "delta", [encode_block([("x", 2)]), encode_block([("y", 3)])], 2, keys=9)
    sections = file.write(folder)
    by_operator = {one: [s for s in sections if s.operator == one] for one in "ab"}
    assert read_dict(folder, by_operator["a"]) == {"x": 1}
    assert read_dict(folder, by_operator["b"]) == {"x": 2, "y": 3}
    assert read_shared(folder, sections) == [(0, [1, 2])]
    assert [section.keys for section in sections] == [1, None, 9]


@pytest.mark.parametrize(
    "sizes", [[], [0], [1] * 5, [60_000] * 9, [1 << 17], [(1 << 17) - 4, 1, 1], [1, 400_000, 1]]
)
def test_blocks_are_written_as_they_are_in_few_buffers(sizes: list[int]) -> None:
    blocks = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    buffers: list[Buffer] = []

    class Kept(Memory):
        def write(self, name: str, data: Any) -> None:
            buffers.extend(data)
            super().write(name, buffers)

    file, folder = EpochFile("data/1"), Kept()
    file.add("a", 0, "full", blocks, 1)
    (section,) = file.write(folder)
    whole = MAGIC + b"".join(blocks)
    assert folder.files["data/1"] == whole
    assert (section.length, section.crc) == (len(whole), crc32(whole))
    assert len(buffers) <= 1 + 2 * len(whole) // (1 << 17)
    assert max(map(len, buffers)) <= max([1 << 17, *sizes])


def test_the_checksum_of_a_block_may_be_known_already() -> None:
    assert framed(b"block", crc32(b"block")) == framed(b"block")
    assert framed(b"", crc32(b"")) == framed(b"")


def test_a_worker_with_nothing_to_write_writes_nothing() -> None:
    folder = Memory()
    assert EpochFile("data/1").write(folder) == ()
    assert not folder.files


def test_forgotten_is_one_object_for_ever() -> None:
    assert pickle.loads(pickle.dumps(FORGOTTEN, 5)) is FORGOTTEN
    assert repr(FORGOTTEN) == "FORGOTTEN"


def test_a_value_that_was_encoded_before_comes_back_as_itself() -> None:
    folder = Memory()
    early = Encoded(pickle.dumps([1, {"a": 2}], 5))
    section = written(folder, "data/1", [("k", early), ("l", 3)])
    assert read_dict(folder, [section]) == {"k": [1, {"a": 2}], "l": 3}
    block = encode_shared(Encoded(pickle.dumps("shared", 5)))
    file = EpochFile("data/2")
    file.add_shared("count", 0, block)
    assert read_shared(folder, file.write(folder)) == [(0, "shared")]


def test_the_word_forgotten_in_users_data_means_nothing() -> None:
    folder = Memory()
    pairs = [("FORGOTTEN", 1), ("b", "FORGOTTEN"), ("c", b"FORGOTTEN")]
    section = written(folder, "data/1", pairs)
    assert read_dict(folder, [section]) == dict(pairs)


def test_in_a_delta_the_later_entry_of_a_key_counts() -> None:
    folder = Memory()
    full = written(folder, "data/1", [("a", 1), ("b", 1), ("c", 1)])
    changes = [("a", 2), ("b", FORGOTTEN), ("a", 3), ("b", 4), ("c", 5), ("c", FORGOTTEN)]
    delta = written(folder, "data/2", changes, "delta", block_entries=2)
    assert read_dict(folder, [full, delta]) == {"a": 3, "b": 4}


def test_what_one_instance_forgot_another_may_have() -> None:
    """A key that moved: its old instance forgets it in the epoch in which the new one has it."""
    folder = Memory()
    sections = [
        written(folder, "data/1", [("k", 1)], index=1),
        written(folder, "data/2", [("k", 2)], "delta", index=0),
        written(folder, "data/3", [("k", FORGOTTEN)], "delta", index=1),
    ]
    assert read_dict(folder, sections) == {"k": 2}


def test_only_some_keys_can_be_read() -> None:
    folder = Memory()
    section = written(
        folder, "data/1", [(number, FORGOTTEN if number == 4 else 0) for number in range(9)]
    )
    assert read_dict(folder, [section], keep=lambda key: key in (0, 2, 4, 6, 8)) == {
        0: 0,
        2: 0,
        6: 0,
        8: 0,
    }


def test_old_state_goes_through_the_migration() -> None:
    folder = Memory()
    chain = [
        written(folder, "data/1", [("a", 1), ("b", 1), ("c", 1)], version=1),
        written(folder, "data/2", [("b", 2), ("c", FORGOTTEN)], "delta", version=2),
        written(folder, "data/3", [("d", 3)], "delta", version=3),
    ]
    found = read_dict(
        folder, chain, state_version=3, migrate=lambda key, value, version: (key, value, version)
    )
    assert found == {"a": ("a", 1, 1), "b": ("b", 2, 2), "d": 3}
    with pytest.raises(CheckpointError, match="'count' has state_version 1, the operator has 3"):
        read_dict(folder, chain, state_version=3)
    assert read_dict(folder, chain) == {"a": 1, "b": 2, "d": 3}


def test_all_instances_can_be_read_at_once() -> None:
    folder = Memory()
    sections = [
        written(folder, f"data/{index}", [(index, "x"), (index + 10, "y")], index=index, version=1)
        for index in range(3)
    ]
    found = read_dict(
        folder,
        sections,
        keep=lambda key: key != 11,
        migrate=lambda key, value, version: f"{value}{version}",
        state_version=2,
    )
    assert found == {0: "x1", 10: "y1", 1: "x1", 2: "x1", 12: "y1"}
    assert read_dict(folder, []) == {}


def test_the_garbage_collector_is_as_it_was_after_reading() -> None:
    folder = Memory()
    section = written(folder, "data/1", [("a", 1)])
    assert gc.isenabled()
    read_dict(folder, [section])
    assert gc.isenabled()
    folder.delete("data/1")
    with pytest.raises(MissingError):
        read_dict(folder, [section])
    assert gc.isenabled()
    gc.disable()
    try:
        with pytest.raises(MissingError):
            read_dict(folder, [section])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_class_that_is_gone_is_no_damage() -> None:
    folder = Memory()
    pickled = pickle.dumps(Section, 0).replace(b"Section", b"NoClass")
    section = written(folder, "data/1", [("a", Encoded(pickled))])
    with pytest.raises(
        CheckpointError, match="'count' cannot be unpickled: AttributeError"
    ) as caught:
        read_dict(folder, [section])
    assert not isinstance(caught.value, DamagedError)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_a_section_is_read_in_pieces(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CHUNK_BYTES", max(chunk_bytes, 4))
    folder = Memory()
    pairs = [(number, "x" * (number * 5 % 90)) for number in range(40)]
    section = written(folder, "data/1", pairs)
    assert read_dict(folder, [section]) == dict(pairs)
    whole = folder.files["data/1"]
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x40
        folder.files["data/1"] = bytes(changed)
        with pytest.raises(DamagedError, match="'data/1' in 'memory' is damaged"):
            verify(folder, section)
    for length in range(len(whole)):
        folder.files["data/1"] = whole[:length]
        with pytest.raises(DamagedError):
            verify(folder, section)


def test_a_section_of_another_version_is_refused() -> None:
    folder = Memory()
    section = written(folder, "data/1", [("a", 1)])
    changed = bytearray(folder.files["data/1"])
    changed[3] = 9
    folder.files["data/1"] = bytes(changed)
    with pytest.raises(VersionError, match="sections of version 9; this tailrace reads version 1"):
        verify(folder, replace(section, crc=crc32(changed)))


def test_a_section_that_is_another_one_is_seen() -> None:
    """All crcs of its blocks are right, and it is not the one that was meant."""
    folder = Memory()
    meant = written(folder, "data/1", [("a", 1)])
    written(folder, "data/1", [("a", 2)])
    with pytest.raises(DamagedError, match="has the crc"):
        verify(folder, meant)


def section(kind: Kind, length: int) -> Section:
    return Section("data/1", 0, length, 0, "count", 0, kind, 1)


def test_instances_that_are_no_more_leave_the_chain() -> None:
    sections = tuple(
        replace(section("full", 10), operator=operator, index=index)
        for operator, index in (("a", 0), ("a", 1), ("b", 0))
    )
    before = Manifest(1, 1, 0, "job", "name", 0.0, sections=sections)
    assert chained(before, ()) == sections
    assert chained(before, (), {"a": 1}) == sections[:1]


keys = st.integers(0, 12) | st.text(max_size=2) | st.tuples(st.integers(0, 3))
changes = st.lists(
    st.tuples(keys, st.just(FORGOTTEN) | st.none() | st.integers() | st.lists(st.integers())),
    max_size=12,
)


@given(
    epochs=st.lists(st.tuples(changes, st.booleans(), st.booleans(), st.integers(0, 1)), max_size=8)
)
def test_any_history_comes_back_as_the_state_it_left(
    epochs: list[tuple[list[tuple[Any, Any]], bool, bool, int]],
) -> None:
    """Fulls, deltas and forgetting, in two instances; values as they are or encoded early."""
    folder = Memory()
    states: list[dict[Any, Any]] = [{}, {}]
    last: Manifest | None = None
    for number, (changed, full, early, index) in enumerate(epochs, 1):
        state = states[index]
        for key, value in changed:
            if value is FORGOTTEN:
                state.pop(key, None)
            else:
                state[key] = value
        pairs = list(state.items()) if full else changed
        if early:
            pairs = [(k, v if v is FORGOTTEN else Encoded(pickle.dumps(v, 5))) for k, v in pairs]
        new = written(folder, f"data/{number}", pairs, "full" if full else "delta", index)
        sections = chained(last, [new])
        last = Manifest(number, 1, 0, "job", "name", 0.0, sections=sections)
        for one in (0, 1):
            assert read_dict(folder, last.of("count", one)) == states[one]
