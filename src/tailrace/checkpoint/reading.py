"""Sections back to state. Nothing is unpickled before its crc has been checked."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from tailrace.checkpoint.errors import CheckpointError, DamagedError, VersionError
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.sections import (
    BLOCK,
    FORGOTTEN,
    MAGIC,
    SECTION_VERSION,
    Section,
    chains,
)

Migrate = Callable[[Hashable, Any, int], Any]
"""(key, value, version it was written in) -> value for the operator as it is now."""
Loads = Callable[[memoryview], Any]
_CHUNK_BYTES = 8 << 20
_FORGOTTEN_NAME = b"FORGOTTEN"


def read_dict(
    folder: Folder,
    sections: Iterable[Section],
    *,
    keep: Callable[[Hashable], bool] | None = None,
    migrate: Migrate | None = None,
    state_version: int | None = None,
    loads: Loads = pickle.loads,
) -> dict[Hashable, Any]:
    """The keyed state in these sections: of a key the newest counts, forgotten ones are left out.

    Sections of several instances are merged each on its own; shared ones are passed over. `keep`
    says of which keys, before anything is merged. What was written in another version than
    `state_version` goes through `migrate`, and raises a CheckpointError without one.
    """
    found: dict[Hashable, Any] = {}
    for chain in chains(sections).values():
        with _collector_off():
            merged = _merge(folder, chain, keep, migrate, state_version, loads)
            if found:
                found.update(merged)
            else:
                found = merged
    return found


@contextmanager
def _collector_off() -> Iterator[None]:
    """What is read stays; to look through it for garbage over and over takes twice as long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _merge(
    folder: Folder,
    chain: Iterable[Section],
    keep: Callable[[Hashable], bool] | None,
    migrate: Migrate | None,
    state_version: int | None,
    loads: Loads,
) -> dict[Hashable, Any]:
    merged: dict[Hashable, Any] = {}
    forgotten: set[Hashable] = set()
    for section in chain:
        if section.kind == "shared":
            continue
        if section.kind == "full":
            merged.clear()
        other = state_version is not None and section.state_version != state_version
        if other and migrate is None:
            raise CheckpointError(
                f"the state of {section.operator!r} has state_version {section.state_version}, the"
                f" operator has {state_version}; give it a migration, or the old state_version"
            )
        for payload in read_blocks(folder, section):
            pairs = _loaded(section, payload, loads)
            if keep is not None:
                pairs = [pair for pair in pairs if keep(pair[0])]
            # The name is in the pickle if the value is: cheaper than to look at each of them.
            if _FORGOTTEN_NAME in bytes(payload):
                forgotten.update(key for key, value in pairs if value is FORGOTTEN)
            if other and migrate is not None:
                version = section.state_version
                pairs = [
                    (key, value if value is FORGOTTEN else migrate(key, value, version))
                    for key, value in pairs
                ]
            merged.update(pairs)
    for key in forgotten:
        if merged.get(key) is FORGOTTEN:
            del merged[key]
    return merged


def read_shared(
    folder: Folder, sections: Iterable[Section], loads: Loads = pickle.loads
) -> list[tuple[int, Any]]:
    """The shared states in these sections: pairs of the instance's index and the value."""
    return [
        (section.index, _loaded(section, payload, loads))
        for section in sections
        if section.kind == "shared"
        for payload in read_blocks(folder, section)
    ]


def verify(folder: Folder, section: Section) -> None:
    """Read a section and check all crcs; raises DamagedError or VersionError. Unpickles nothing."""
    for _ in read_blocks(folder, section):
        pass


def check_crc(folder: Folder, section: Section, data: bytes) -> None:
    """Raise a DamagedError if a section is not whole in what was read of all its file."""
    found = memoryview(data)[section.offset : section.offset + section.length]
    if len(found) < section.length:
        raise _damaged(folder, section, f"ends after {len(found)} bytes")
    if (crc := crc32(found)) != section.crc:
        raise _damaged(folder, section, f"has the crc {crc:08x}; {section.crc:08x} was expected")


def read_blocks(folder: Folder, section: Section) -> Iterator[memoryview]:
    """The pickles of a section, each once its crc has been checked; at the end that of all.

    Holds some 8 MB, or one block if that is larger.
    """
    data = folder.read(section.file, section.offset, min(_CHUNK_BYTES, section.length))
    crc = crc32(data)
    if data[: len(MAGIC)] != MAGIC:
        raise _unknown(folder, section, data)
    read, place = len(data), len(MAGIC)  # `place` is in `data`, which ends at `read`
    while True:
        view = memoryview(data)
        wanted = BLOCK.size
        while place + BLOCK.size <= len(data):
            length, block_crc = BLOCK.unpack_from(view, place)
            wanted = BLOCK.size + length
            if place + wanted > len(data):
                break
            payload = view[place + BLOCK.size : place + wanted]
            if crc32(payload) != block_crc:
                where = section.offset + read - len(data) + place
                raise _damaged(folder, section, f"the block at byte {where} has another crc")
            place += wanted
            wanted = BLOCK.size
            yield payload
        rest = len(data) - place
        left = section.length - read
        if not left and not rest:
            break
        if wanted - rest > left:
            raise _damaged(folder, section, f"a block of {wanted} bytes has {rest + left} left")
        more_bytes = min(left, max(_CHUNK_BYTES, wanted - rest))
        more = folder.read(section.file, section.offset + read, more_bytes)
        if len(more) < more_bytes:
            raise _damaged(folder, section, f"ends after {read + len(more)} bytes")
        crc = crc32(more, crc)
        data, place, read = data[place:] + more, 0, read + more_bytes
    if crc != section.crc:
        raise _damaged(folder, section, f"has the crc {crc:08x}; {section.crc:08x} was expected")


def _loaded(section: Section, payload: memoryview, loads: Loads) -> Any:
    try:
        return loads(payload)
    except Exception as error:  # whatever the user's classes raise
        raise CheckpointError(
            f"the state of {section.operator!r} cannot be unpickled: {error!r}; it needs the"
            " classes that it was written with"
        ) from error


def _unknown(folder: Folder, section: Section, data: bytes) -> CheckpointError:
    """The error for a section that does not begin as one of ours."""
    if len(data) < min(_CHUNK_BYTES, section.length):
        return _damaged(folder, section, f"ends after {len(data)} bytes")
    whole = folder.read(section.file, section.offset, section.length)
    if whole[:3] == MAGIC[:3] and crc32(whole) == section.crc:
        return VersionError(
            f"{section.file!r} in {folder.url!r} has sections of version {whole[3]}; this"
            f" tailrace reads version {SECTION_VERSION}. Use the one that wrote it"
        )
    return _damaged(folder, section, f"begins with {whole[:4]!r}; {MAGIC!r} was expected")


def _damaged(folder: Folder, section: Section, what: str) -> DamagedError:
    return DamagedError(
        f"{section.file!r} in {folder.url!r} is damaged: the section of {section.operator!r}"
        f" (instance {section.index}, {section.kind}, {section.length} bytes from byte"
        f" {section.offset}) {what}"
    )
