"""Epochs for tests: written, looked at, damaged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tailrace.checkpoint.errors import LeaseLostError
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.manifest import Manifest, chained, data_name
from tailrace.checkpoint.reading import read_dict
from tailrace.checkpoint.sections import EpochFile, Kind, encode_block, encode_shared
from tailrace.checkpoint.store import Store


def manifest(epoch: int, generation: int = 1, **others: Any) -> Manifest:
    return replace(Manifest(epoch, generation, 0, "4f2a", "words", 1_700_000_000.5), **others)


def write_epoch(
    store: Store,
    epoch: int,
    pairs: dict[Any, Any],
    kind: Kind = "full",
    previous: Manifest | None = None,
    generation: int = 1,
    attempt: int = 0,
) -> Manifest:
    """Data of one operator and instance, and the manifest."""
    file = EpochFile(data_name(epoch, generation, attempt, 0))
    file.add("count", 0, kind, [encode_block(list(pairs.items()))], len(pairs))
    file.add_shared("count", 0, encode_shared({"epoch": epoch}))
    sections = chained(previous, file.write(store.folder))
    made = manifest(epoch, generation, attempt=attempt, sections=sections)
    store.commit(made)
    return made


def state(store: Store, found: Manifest | None) -> dict[Any, Any]:
    assert found is not None
    return read_dict(store.folder, found.of("count"))


def flip(folder: Folder, name: str, place: int) -> None:
    data = bytearray(folder.read(name))
    data[place] ^= 0x10
    folder.write(name, bytes(data))


def cut(folder: Folder, name: str, length: int) -> None:
    folder.write(name, folder.read(name)[:length])


@dataclass
class Lease:
    generation: int = 1
    checks: int = 1_000_000
    """How often it is still held."""

    def check(self) -> None:
        self.checks -= 1
        if self.checks < 0:
            raise LeaseLostError("lost")
