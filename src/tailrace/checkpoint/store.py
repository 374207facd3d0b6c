"""The epochs in a folder: commit one, find the newest good one, clear away what nobody needs.

Manifests are ordered by generation, then epoch. Whoever takes a folder over makes the epoch that it
goes on from its own (`resume`): it writes that manifest again, of its generation. What the one
before writes after that, because it does not know yet, is older and never found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from tailrace.checkpoint.errors import (
    CheckpointError,
    DamagedError,
    LeaseLostError,
    MissingError,
    UncertainError,
)
from tailrace.checkpoint.folder import Folder, is_hidden, shown_name
from tailrace.checkpoint.manifest import (
    Manifest,
    from_json,
    parse_data_name,
    parse_epoch_name,
    to_json,
)
from tailrace.checkpoint.reading import verify as verify_section
from tailrace.checkpoint.sections import Section

_MOST_KNOWN = 16
"""Manifests to remember, so that sweeping does not read them."""


class Fence(Protocol):
    """What a store needs of a lease."""

    @property
    def generation(self) -> int:
        """Higher than that of all who held it before."""

    def check(self) -> None:
        """Raise a LeaseLostError if somebody else has the folder."""


@dataclass(frozen=True)
class PassedOver:
    """An epoch that cannot be used, and why."""

    name: str
    epoch: int
    cause: str

    def __str__(self) -> str:
        return f"epoch {self.epoch} is passed over: {self.cause}"


class Store:
    """The epochs in a folder.

    Without a lease nothing keeps others from writing there: for readers, and for folders that
    nobody else knows, such as a savepoint's.
    """

    def __init__(self, folder: Folder, lease: Fence | None = None) -> None:
        self.folder = folder
        self.passed_over: list[PassedOver] = []
        """What the last `latest` found damaged, newest first."""
        self._lease = lease
        self._known: dict[str, Manifest] = {}
        self._doubtful: set[str] = set()
        """Manifests of ours that may be there, though nobody was told that they count."""

    def commit(self, manifest: Manifest) -> None:
        """Let an epoch be the newest; its data files must be there already.

        When this returns it is committed, and sinks may be told. If it raises a LeaseLostError it
        may be or not: that is up to whoever has the folder now, and nobody may be told. The same is
        true of an UncertainError, and the next `latest` says it. With any other CheckpointError it
        is not.
        """
        if self._known.get(manifest.file) == manifest:
            return
        if self._lease is not None and manifest.generation != self._lease.generation:
            raise ValueError(
                f"the manifest of epoch {manifest.epoch} is of generation {manifest.generation};"
                f" the lease is of {self._lease.generation}"
            )
        self._check_for(manifest)
        try:
            self.folder.write(manifest.file, to_json(manifest))
        except CheckpointError as error:
            self._retract(manifest, error)
            raise
        # Who took the folder over before this line may have looked before the manifest was there;
        # who does so after it finds the manifest.
        self._doubtful.add(manifest.file)
        self._check_for(manifest)
        self._doubtful.discard(manifest.file)
        self._known[manifest.file] = manifest
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _check_for(self, manifest: Manifest) -> None:
        """Ask the lease, for an epoch whose manifest may be there already."""
        try:
            self._check()
        except LeaseLostError:
            raise
        except CheckpointError as error:
            if manifest.file not in self._doubtful:
                raise
            raise UncertainError(
                f"epoch {manifest.epoch} may be committed or not: its manifest is written, and who"
                f" has the folder cannot be found out: {error}"
            ) from error

    def _retract(self, manifest: Manifest, cause: CheckpointError) -> None:
        """Have a manifest that could not be written not be there, whatever became of it."""
        try:
            self.folder.delete(manifest.file)
        except CheckpointError as error:
            self._doubtful.add(manifest.file)
            raise UncertainError(
                f"epoch {manifest.epoch} may be committed or not: {cause}; then: {error}"
            ) from cause
        self._doubtful.discard(manifest.file)

    def latest(self, verify: bool = False) -> Manifest | None:
        """The newest epoch that is whole; those passed over are in `passed_over`.

        An epoch counts if its manifest is good and its data files are there with enough bytes;
        with `verify`, if all sections have their crcs, which reads everything.
        """
        self.passed_over = []
        for name, manifest, cause in self.epochs(verify=verify):
            if manifest is not None and not cause:
                return manifest
            place = parse_epoch_name(name)
            assert place is not None
            self.passed_over.append(PassedOver(name, place[1], cause))
        return None

    def resume(self, beginning: Manifest, verify: bool = False) -> Manifest:
        """Take the folder over: the newest epoch, or the `beginning` if there is none, is ours now.

        What is returned has this lease's generation and is committed. Raises a CheckpointError, and
        leaves all as it is, if there are epochs and none is whole: nobody wants to begin anew
        unasked.
        """
        found = self.latest(verify)
        if self._lease is None:
            raise CheckpointError(f"taking over {self.folder.url!r} needs a lease")
        if found is None and self.passed_over:
            causes = "; ".join(map(str, self.passed_over))
            raise CheckpointError(
                f"no epoch in {self.folder.url!r} can be gone on from: {causes}. Bring back what is"
                " missing, restore a savepoint, or give the job a new folder to begin anew"
            )
        ours = replace(found or beginning, generation=self._lease.generation)
        self.commit(ours)
        return ours

    def epochs(
        self, *, verify: bool = False, remembered: bool = False
    ) -> Iterator[tuple[str, Manifest | None, str]]:
        """All manifests, newest first: name, the manifest if it can be read, what is wrong.

        Those that were read or written before are read again unless they may be `remembered`.
        """
        if not remembered:
            self._known.clear()
        names = self._names()
        # After the names: what a manifest needs was there before it.
        sizes = self.folder.sizes("data")
        verified: set[Section] | None = set() if verify else None
        lowest: int | None = None  # epoch of the generations above
        above: tuple[int, int | None] = (-1, None)
        for (generation, epoch), name in sorted(names.items(), reverse=True):
            if generation != above[0]:
                above = (generation, lowest)
            lowest = epoch if lowest is None else min(lowest, epoch)
            fence = above[1]
            try:
                manifest = self._manifest(name)
            except MissingError:
                continue  # swept away by its owner since the names were listed
            except DamagedError as error:
                yield name, None, str(error)
                continue
            if fence is not None and epoch > fence:
                yield (
                    name,
                    manifest,
                    (
                        f"{name!r} was written by a driver of generation {generation} after another"
                        f" had gone on from epoch {fence}"
                    ),
                )
                continue
            damage = self._damage(manifest, sizes, verified)
            if not damage or self.folder.exists(name):  # else its owner sweeps it away just now
                yield name, manifest, damage

    def at(self, epoch: int) -> Manifest:
        """The manifest of an epoch; raises a CheckpointError if it is damaged or not there."""
        names = self._names()
        for _, name in sorted(
            ((place, name) for place, name in names.items() if place[1] == epoch), reverse=True
        ):
            return self._manifest(name)
        there = sorted({one for _, one in names})
        raise CheckpointError(
            f"there is no epoch {epoch} in {self.folder.url!r}; there are {there}"
        )

    def sweep(self, keep: int = 3, current: tuple[int, int] | None = None) -> list[str]:
        """Keep the last so many good epochs and all that they need; returns what it has deleted.

        Files of epochs after the newest one stay, for they may be of the one in progress; with
        `current`, a pair of generation and attempt, only if they are not of an earlier one.
        """
        if keep < 1:
            raise ValueError(f"keep is {keep}; it must be at least 1")
        self._check()
        data = self.folder.sizes("data", hidden=True)
        kept: dict[int, Manifest] = {}
        for _, manifest, cause in self.epochs(remembered=True):
            if manifest is not None and not cause:
                kept.setdefault(manifest.epoch, manifest)
            if len(kept) == keep:
                break
        if not kept:
            return []  # nothing is safe, so nothing is superfluous
        newest = next(iter(kept.values()))
        order = (newest.generation, newest.epoch)
        named = {manifest.file for manifest in kept.values()}
        doomed = [
            name
            for name in sorted(self.folder.sizes("epochs", hidden=True))
            if name not in named
            and (place := parse_epoch_name(_shown(name))) is not None
            and place < order
        ]
        needed = set[str]().union(*(manifest.files for manifest in kept.values()))
        doomed += [
            name
            for name in sorted(data)
            if name not in needed and _superfluous(_shown(name), newest.epoch, current)
        ]
        # Manifests first: whoever is interrupted leaves data without a manifest, not the reverse.
        for name in doomed:
            self.folder.delete(name)
            self._known.pop(name, None)
        return doomed

    def _names(self) -> dict[tuple[int, int], str]:
        names = self.folder.names("epochs")
        return {place: name for name in names if (place := parse_epoch_name(name)) is not None}

    def _manifest(self, name: str) -> Manifest:
        if name not in self._known:
            where = f"{self.folder.url.rstrip('/')}/{name}"
            manifest = from_json(self.folder.read(name), where)
            if manifest.file != name:
                raise DamagedError(f"{where!r} is damaged: it is a copy of {manifest.file!r}")
            self._known[name] = manifest
        return self._known[name]

    def _damage(
        self, manifest: Manifest, sizes: dict[str, int], verified: set[Section] | None
    ) -> str:
        """What is wrong with the data of an epoch; empty: nothing that was looked at."""
        for section in manifest.sections:
            size, end = sizes.get(section.file), section.offset + section.length
            if size is None:
                return f"{section.file!r} is missing in {self.folder.url!r}"
            if size < end:
                return (
                    f"{section.file!r} in {self.folder.url!r} is damaged: it has {size} bytes;"
                    f" {end} were expected"
                )
            if verified is not None and section not in verified:
                try:
                    verify_section(self.folder, section)
                except DamagedError as error:
                    return str(error)
                verified.add(section)
        return ""

    def _check(self) -> None:
        if self._lease is not None:
            self._lease.check()


def _shown(name: str) -> str:
    """The name that a file has, or was to get."""
    return (shown_name(name) or "") if is_hidden(name) else name


def _superfluous(name: str, newest: int, current: tuple[int, int] | None) -> bool:
    """Whether a data file that no manifest needs can go."""
    place = parse_data_name(name)
    if place is None:
        return False  # not ours
    epoch, attempt, _ = place
    return epoch <= newest or (current is not None and attempt < current)
