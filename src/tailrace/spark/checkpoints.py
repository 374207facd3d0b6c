"""A job's checkpoints, as its driver has them: the folder, and what it goes on from."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tailrace.checkpoint.committing import Committer, operators_with_versions
from tailrace.checkpoint.copying import copy_epoch, copy_notes
from tailrace.checkpoint.epochs import Epochs
from tailrace.checkpoint.errors import CheckpointError, LeaseHeldError
from tailrace.checkpoint.folder import Folder, folder_at
from tailrace.checkpoint.lease import held_by, take_lease
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.restoring import check_fits
from tailrace.checkpoint.store import Store
from tailrace.connectors.journal import Journaled
from tailrace.control.coordinator import Coordinator
from tailrace.graph.model import Graph
from tailrace.runtime.reading import SourceLogic
from tailrace.spark.dataframe import DataFrameSource

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.005


class Checkpoints:
    """The folder of a job that makes checkpoints, taken for as long as it lives."""

    def __init__(
        self,
        graph: Graph,
        where: Path | str,
        restore: Path | str | None = None,
        drop: Collection[str] = (),
        keep: int = 3,
    ) -> None:
        """Take a folder, and find what to go on from: its newest epoch, or a savepoint."""
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise ValueError(f"retain is {keep!r}; it must be a whole number, at least 1")
        folder = folder_at(where)
        self._lease = lease = take_lease(folder, graph.name)
        try:
            store = Store(folder, lease)
            beginning = Manifest.beginning(str(uuid.uuid4()), graph.name, time.time())
            found = store.resume(beginning, verify=True)
            for damaged in store.passed_over:
                _LOG.warning("%s", damaged)
            self.kept_in = folder.url
            self.going_on = found
            if restore is not None:
                if found.epoch:
                    raise CheckpointError(
                        f"restore={str(restore)!r} was given, and checkpoint={str(where)!r} has"
                        f" epoch {found.epoch} to go on from: leave restore out, or give another"
                        " folder for the checkpoints"
                    )
                self.kept_in, self.going_on = savepoint_at(restore)
                copy_notes(folder_at(restore), folder)
                check_notes(graph, folder)
                # What lies in another folder is no part of the epochs in this one.
                found = replace(
                    self.going_on,
                    sections=(),
                    handles=(),
                    job=found.job,
                    generation=found.generation,
                )
            check_fits(self.going_on, graph, drop=drop)
            self.committer = Committer(
                store, lease, found, graph, operators_with_versions(graph), keep
            )
        except BaseException:
            lease.release()
            raise
        self._epochs: Epochs | None = None
        self.ended = False
        """Whether the job has ended behind an epoch; known when it is over."""
        self.job = found.job
        self.url = folder.url
        self.generation = lease.generation

    def begin(self, coordinator: Coordinator, workers: int, every_s: float) -> None:
        """Have a job make checkpoints."""
        self._epochs = epochs = Epochs(workers, every_s, committed=self.going_on.epoch)
        coordinator.checkpoint(self.committer, epochs, self.going_on, self.kept_in)

    def savepoint(self, coordinator: Coordinator, where: Path | str, timeout_s: float) -> Manifest:
        """Make an epoch now, and copy it. One that is under way lacks what came since it began."""
        target = new_folder(where)
        deadline_s = time.monotonic() + timeout_s
        counts = coordinator.ask_epoch()
        while not counts():
            if coordinator.roster.over:
                raise CheckpointError("the job ended before there was an epoch to copy")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no epoch was committed within {timeout_s} s")
            time.sleep(_LOOK_S)
        copied = threading.Event()
        results: list[Manifest | CheckpointError] = []

        def done(result: Manifest | CheckpointError) -> None:
            results.append(result)
            copied.set()

        self.committer.savepoint(target, done)
        while not copied.wait(_LOOK_S):
            if self.committer.closed and not copied.is_set():
                raise CheckpointError("the job ended before its epoch was copied")
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"the epoch was not copied to {target.url!r} within {timeout_s} s"
                )
        if isinstance(results[0], CheckpointError):
            raise results[0]
        return results[0]

    def copy_last(self, where: Path | str) -> Manifest:
        """When the job has ended behind an epoch: copy that."""
        last = self.committer.manifest
        if not self.ended:
            raise CheckpointError(
                f"the job has ended without a last epoch, so nothing was copied to {str(where)!r};"
                f" the newest in {self.url!r} is {last.epoch}"
            )
        folder = folder_at(self.url)
        with take_lease(folder, last.name):  # whoever goes on from it waits until that is done
            found = Store(folder).latest()
            if found is None or found.file != last.file:
                raise CheckpointError(
                    f"epoch {last.epoch} in {self.url!r} was not copied to {str(where)!r}: it is"
                    f" no longer the newest that counts, which is {found.file if found else None!r}"
                )
            return copy_epoch(folder, last, new_folder(where))

    def close(self) -> None:
        """Let go of the folder."""
        self.ended = self._epochs is not None and self._epochs.over
        self.committer.close()


def check_notes(graph: Graph, folder: Folder | None, restore: Path | str = "") -> None:
    """Raise if a source goes on from a position in notes that are not there.

    Those of a job without a folder of checkpoints never are.
    """
    for operator in graph.operators:
        source = operator.logic.source if isinstance(operator.logic, SourceLogic) else None
        streams = isinstance(source, DataFrameSource) and source.df.isStreaming
        if folder is None and (isinstance(source, Journaled) or streams):
            raise CheckpointError(
                f"restore={str(restore)!r} was given without checkpoint=, and the source"
                f" {operator.name!r} goes on in notes that belong to a folder of checkpoints: give"
                " one, which may be new"
            )
        if folder is not None and streams:
            here = f"{folder.url.rstrip('/')}/"
            notes = str(getattr(source, "checkpoint", None) or "")
            if notes.startswith(here) and not folder.names(notes.removeprefix(here)):
                raise CheckpointError(
                    f"the savepoint has nothing of what Spark notes of {operator.name!r}, so nobody"
                    f" knows where to go on. Spark keeps that in {notes!r}, by its own default"
                    " filesystem: give checkpoint= as a URL that names one, such as hdfs://"
                )


def savepoint_at(where: Path | str) -> tuple[str, Manifest]:
    """The folder of a savepoint, or of checkpoints, and its newest epoch."""
    folder = folder_at(where)
    store = Store(folder)
    found = store.latest(verify=True)
    for damaged in store.passed_over:
        _LOG.warning("%s", damaged)
    if found is None or not found.epoch:
        raise CheckpointError(f"there is no epoch in {folder.url!r} to restore")
    if who := held_by(folder):
        raise LeaseHeldError(
            f"restore={str(where)!r} is the folder of {who}, which clears away old epochs as it"
            " goes. Let that job make a savepoint, job.savepoint(folder), and restore that; or stop"
            " it first"
        )
    return folder.url, found


def new_folder(where: Path | str) -> Folder:
    """A folder for a savepoint, in which there is none yet."""
    folder = folder_at(where)
    if names := folder.names("epochs"):
        raise CheckpointError(
            f"{folder.url!r} has {names[-1]!r} already; give a savepoint a folder of its own"
        )
    return folder
