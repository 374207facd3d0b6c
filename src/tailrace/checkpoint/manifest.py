"""What an epoch consists of, as one JSON object with a checksum; written last of all its files."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tailrace.checkpoint.errors import DamagedError, VersionError
from tailrace.checkpoint.sections import Section, chains

MANIFEST_VERSION = 1
_HEAD = re.compile(rb'\{"checksum":"([0-9a-f]{8})",')
_EPOCH_NAME = re.compile(r"epochs/(\d{8,})-(\d+)\.json")
_DATA_NAME = re.compile(r"data/(\d{8,})-(\d+)\.(\d+)-(\d+)\.bin")


@dataclass(frozen=True)
class OperatorNote:
    """What a manifest says about an operator beside its state."""

    kind: str
    parallelism: int
    state_version: int = 0
    finished: bool = False
    finished_in: tuple[int, ...] = ()
    """The instances whose input had ended, by index."""
    routes: int = 0
    """Which keys were whose, as `Routes.fingerprint` tells it."""


@dataclass(frozen=True)
class Manifest:
    """An epoch that was committed. It names all files that it needs, also those of older epochs."""

    epoch: int
    generation: int
    """Of the lease under which it was written."""
    attempt: int
    job: str
    """An id that stays the same over restarts from the same folder."""
    name: str
    """Of the topology."""
    created_s: float
    """By the wall clock."""
    finished: bool = False
    """The input has ended and this is all: there is nothing to go on with."""
    operators: Mapping[str, OperatorNote] = field(default_factory=dict)
    plan: Any = None
    """Who ran where, as JSON; opaque here."""
    sections: tuple[Section, ...] = ()
    """For each operator and instance its chain, oldest first, and its newest shared one."""
    handles: tuple[tuple[str, bytes], ...] = ()
    """Pairs of a sink and a pickled handle, prepared in this epoch: to be committed with it."""
    version: int = MANIFEST_VERSION

    @classmethod
    def beginning(cls, job: str, name: str, created_s: float) -> Manifest:
        """The epoch before the first: nothing has happened."""
        return cls(0, 0, 0, job, name, created_s)

    @property
    def file(self) -> str:
        """Its name in the folder."""
        return epoch_name(self.epoch, self.generation)

    @property
    def files(self) -> set[str]:
        """The data files that it needs."""
        return {section.file for section in self.sections}

    def of(self, operator: str, index: int | None = None) -> tuple[Section, ...]:
        """The sections of an operator, or of one instance of it."""
        return tuple(
            section
            for section in self.sections
            if section.operator == operator and index in (None, section.index)
        )


def epoch_name(epoch: int, generation: int) -> str:
    """Where the manifest of an epoch is.

    >>> epoch_name(12, 3)
    'epochs/00000012-3.json'
    """
    return f"epochs/{epoch:08}-{generation}.json"


def parse_epoch_name(name: str) -> tuple[int, int] | None:
    """(generation, epoch) of a manifest's name, which is how they are ordered; None: it is none."""
    found = _EPOCH_NAME.fullmatch(name)
    return (int(found[2]), int(found[1])) if found else None


def data_name(epoch: int, generation: int, attempt: int, rank: int) -> str:
    """What a worker writes for an epoch.

    Attempts are counted anew by every driver, so the generation belongs to the name: workers whose
    driver was killed may still write while those of the next one do.

    >>> data_name(12, 3, 1, 0)
    'data/00000012-3.1-0.bin'
    """
    return f"data/{epoch:08}-{generation}.{attempt}-{rank}.bin"


def parse_data_name(name: str) -> tuple[int, tuple[int, int], int] | None:
    """(epoch, (generation, attempt), rank) of a data file; None: it is none."""
    found = _DATA_NAME.fullmatch(name)
    if not found:
        return None
    epoch, generation, attempt, rank = (int(part) for part in found.groups())
    return epoch, (generation, attempt), rank


def chained(
    previous: Manifest | None,
    sections: Iterable[Section],
    parallelism: Mapping[str, int] | None = None,
) -> tuple[Section, ...]:
    """The sections of a manifest that goes on from another, with what was written since.

    A full section replaces what there was of the keyed state of its operator and instance, a delta
    goes behind it, a shared one replaces the shared one. With the last part of a sweep, what was
    there before the first one is needed no more. Deltas without entries are left out.
    Instances of which nothing new has come keep what they had, unless by `parallelism` they are no
    more.
    """
    merged = chains(
        section
        for section in (previous.sections if previous else ())
        if parallelism is None or section.index < parallelism.get(section.operator, 0)
    )
    for section in sections:
        chain = merged.setdefault((section.operator, section.index), [])
        if section.kind == "delta" and not section.entries:
            continue
        if section.kind == "rest":
            chain[:] = _since_sweep(chain)
        elif section.kind in ("full", "shared"):
            shared = section.kind == "shared"
            chain[:] = [one for one in chain if (one.kind == "shared") is not shared]
        chain.append(section)
    return tuple(section for chain in merged.values() for section in chain)


def _since_sweep(chain: list[Section]) -> list[Section]:
    """Without what the sweep that ends now has written anew; one that was broken off stays."""
    kinds = [one.kind for one in chain]
    whole = max((at for at, kind in enumerate(kinds) if kind in ("full", "rest")), default=-1)
    parts = (at for at, kind in enumerate(kinds) if kind == "part" and at > whole)
    first = next(parts, len(chain))
    return [one for at, one in enumerate(chain) if at >= first or one.kind == "shared"]


def to_json(manifest: Manifest) -> bytes:
    """One JSON object in one line; its first member is the crc of all the others."""
    files = sorted(manifest.files)
    number = {file: place for place, file in enumerate(files)}
    sections: dict[str, list[list[Any]]] = {}
    for one in manifest.sections:
        sections.setdefault(one.operator, []).append(
            [
                one.index,
                one.kind,
                number[one.file],
                one.offset,
                one.length,
                one.crc,
                one.entries,
                one.keys,
                one.state_version,
            ]
        )
    body = {
        "version": manifest.version,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "attempt": manifest.attempt,
        "job": manifest.job,
        "name": manifest.name,
        "created": manifest.created_s,
        "finished": manifest.finished,
        "operators": {
            name: {
                "kind": note.kind,
                "parallelism": note.parallelism,
                "state_version": note.state_version,
                "finished": note.finished,
                "finished_in": note.finished_in,
                "routes": note.routes,
            }
            for name, note in manifest.operators.items()
        },
        "plan": manifest.plan,
        "files": files,
        "sections": sections,
        "handles": [[name, b64encode(handle).decode()] for name, handle in manifest.handles],
    }
    rest = json.dumps(body, separators=(",", ":")).encode()[1:]
    return b'{"checksum":"%08x",%s\n' % (crc32(rest), rest)


def _note(body: dict[str, Any]) -> OperatorNote:
    return OperatorNote(**{**body, "finished_in": tuple(body.get("finished_in", ()))})


def from_json(data: bytes, where: str) -> Manifest:
    """What `to_json` made; raises a DamagedError or VersionError that names `where` it is from."""
    head = _HEAD.match(data)
    if head is None or not data.endswith(b"}\n"):
        raise DamagedError(f"{where!r} is damaged: {len(data)} bytes that are no manifest, or half")
    rest = data[head.end() : -1]
    crc = crc32(rest)
    if crc != int(head[1], 16):
        raise DamagedError(
            f"{where!r} is damaged: it has the crc {crc:08x}; {head[1].decode()} was expected"
        )
    body = json.loads(b"{" + rest)
    version = body["version"]
    if version != MANIFEST_VERSION:
        raise VersionError(
            f"{where!r} is a manifest of version {version}; this tailrace reads version"
            f" {MANIFEST_VERSION}. Use the one that wrote it"
        )
    files = body["files"]
    return Manifest(
        epoch=body["epoch"],
        generation=body["generation"],
        attempt=body["attempt"],
        job=body["job"],
        name=body["name"],
        created_s=body["created"],
        finished=body["finished"],
        operators={name: _note(note) for name, note in body["operators"].items()},
        plan=body["plan"],
        sections=tuple(
            Section(files[file], offset, length, crc, operator, index, kind, entries, keys, state)
            for operator, rows in body["sections"].items()
            for index, kind, file, offset, length, crc, entries, keys, state in rows
        ),
        handles=tuple((name, b64decode(handle)) for name, handle in body["handles"]),
        version=version,
    )
