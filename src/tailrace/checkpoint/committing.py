"""The driver's part of checkpoints: manifests are written, old epochs swept, savepoints copied.

All of it in a thread of its own, for storage may be slow. What the manifest of an epoch says
follows from the one before and from what the workers have told.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from tailrace.checkpoint.copying import copy_epoch
from tailrace.checkpoint.epochs import Write
from tailrace.checkpoint.errors import CheckpointError, LeaseLostError, UncertainError
from tailrace.checkpoint.folder import Folder
from tailrace.checkpoint.lease import Lease
from tailrace.checkpoint.manifest import Manifest, OperatorNote, chained
from tailrace.checkpoint.sections import Section
from tailrace.checkpoint.store import Store
from tailrace.graph.model import Graph
from tailrace.runtime.deployment import Layout, with_parallelism

_LOG = logging.getLogger(__name__)
_NICE = 10
_SWEPT_TOGETHER = 8
"""So many epochs are committed before old ones are cleared away, which takes longer."""
_NO_ROUTES: Mapping[str, int] = {}
_TRIES = 5
_PAUSE_S = 0.2
"""Before the second try; each further one is twice as long."""


class Told(Protocol):
    """What a worker says of its part of an epoch."""

    @property
    def sections(self) -> tuple[Section, ...]:
        """What it has written."""

    @property
    def handles(self) -> Sequence[tuple[str, bytes]]:
        """What its sinks have prepared."""

    @property
    def finished(self) -> Sequence[tuple[str, int]]:
        """Operators and indices whose input had ended."""


def next_manifest(
    previous: Manifest,
    write: Write,
    graph: Graph,
    versions: Mapping[str, int],
    *,
    attempt: int = 0,
    created_s: float = 0.0,
    routes: Mapping[str, int] = _NO_ROUTES,
    rescaled: bool = False,
) -> Manifest:
    """The manifest of an epoch, by the one before it and what the workers have told.

    `routes` are fingerprints, by operators. If operators had other numbers of instances in the one
    before, they were `rescaled` while they ran, or begun anew with others.
    """
    told: Sequence[Told] = write.parts
    finished = {one for part in told for one in part.finished}
    operators = {}
    for one in graph.operators:
        before = previous.operators.get(one.name)
        ended = {index for name, index in finished if name == one.name}
        if before is not None and (rescaled or before.parallelism == one.parallelism):
            ended.update(index for index in before.finished_in if index < one.parallelism)
        over = len(ended) == one.parallelism or (before is not None and before.finished)
        operators[one.name] = OperatorNote(
            type(one.logic).__name__,
            one.parallelism,
            versions.get(one.name, 0),
            over,
            tuple(sorted(ended)),
            routes.get(one.name, 0),
        )
    parallelism = {one.name: one.parallelism for one in graph.operators}
    sections = [section for part in told for section in part.sections]
    return replace(
        previous,
        epoch=write.epoch,
        attempt=attempt,
        created_s=created_s,
        finished=write.ended,
        operators=operators,
        sections=chained(previous, sections, parallelism),
        handles=tuple(handle for part in told for handle in part.handles),
    )


@dataclass(frozen=True)
class Written:
    """An epoch counts: what is known of it."""

    manifest: Manifest
    new_bytes: int
    """Written for it, by all workers."""


class Committer:
    """The thread. Its methods may be called from any other."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        manifest: Manifest,
        graph: Graph,
        versions: Mapping[str, int],
        keep: int,
    ) -> None:
        self.manifest = manifest
        """The newest that counts."""
        self._store = store
        self._lease = lease
        self._graph = graph
        self._versions = versions
        self._keep = keep
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._unswept = 0
        self._wrote = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailrace-epochs", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the manifests are."""
        return self._store.folder.url

    @property
    def closed(self) -> bool:
        """Whether it has ended: what is asked of it now is not done."""
        return self._closed.is_set()

    def write(
        self,
        write: Write,
        attempt: int,
        done: Callable[[Written], None],
        failed: Callable[[str], None],
        layout: Layout | None = None,
    ) -> None:
        """Write a manifest, and then call `done`; `failed` with a reason, if it cannot be.

        With the `layout` that it was cut under, if that may not be the graph's any more.
        """

        def ask() -> None:
            try:
                self._write(write, attempt, done, failed, layout)
            except Exception as error:  # or the thread ends, and no epoch would ever again
                _LOG.exception("epoch %d is not committed, or nobody was told", write.epoch)
                failed(
                    f"what commits epochs has failed with epoch {write.epoch}: {error!r}. Whether"
                    " that one counts is found when the job is started again"
                )

        self._asked.put(ask)

    def savepoint(self, folder: Folder, done: Callable[[Manifest | CheckpointError], None]) -> None:
        """Copy the newest epoch that counts to another folder."""
        self._asked.put(lambda: self._copy(folder, done))

    def close(self, timeout_s: float = 10.0) -> None:
        """End, when all that was asked is done, and let go of the folder."""
        self._asked.put(None)
        self._thread.join(timeout_s)
        self._closed.set()
        self._lease.release()

    def _run(self) -> None:
        # The driver may share its cores with workers, who have something better to do.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while (ask := self._asked.get()) is not None:
            ask()  # none of these raises: whoever asked is told what went wrong
        if self._unswept:
            self._sweep(self.manifest.attempt)

    def _write(
        self,
        write: Write,
        attempt: int,
        done: Callable[[Written], None],
        failed: Callable[[str], None],
        layout: Layout | None,
    ) -> None:
        manifest = next_manifest(
            self.manifest,
            write,
            self._graph if layout is None else with_parallelism(self._graph, layout.parallelism),
            self._versions,
            attempt=attempt,
            created_s=time.time(),
            routes=_NO_ROUTES if layout is None else layout.routed(self._graph),
            rescaled=self._wrote,
        )
        pause_s = _PAUSE_S
        for tried in range(1, _TRIES + 1):
            try:
                self._store.commit(manifest)
                break
            except LeaseLostError as error:
                failed(str(error))
                return
            except CheckpointError as error:
                if tried == _TRIES or self._closed.is_set():
                    cannot = f"epoch {write.epoch} cannot be committed: "
                    what = "" if isinstance(error, UncertainError) else cannot
                    failed(f"{what}{error}; tried {tried} times")
                    return
                _LOG.warning("epoch %d is not committed yet: %s", write.epoch, error)
                self._closed.wait(pause_s)
                pause_s *= 2
        self.manifest = manifest
        self._wrote = True
        new = {section.file for part in write.parts for section in part.sections}
        size = sum(section.length for section in manifest.sections if section.file in new)
        done(Written(manifest, size))
        self._unswept += 1
        if self._unswept == _SWEPT_TOGETHER:
            self._sweep(attempt)

    def _sweep(self, attempt: int) -> None:
        self._unswept = 0
        try:
            self._store.sweep(self._keep, (self.manifest.generation, attempt))
        except Exception as error:
            _LOG.warning("old epochs are not cleared away: %s", error)

    def _copy(self, folder: Folder, done: Callable[[Manifest | CheckpointError], None]) -> None:
        try:
            done(copy_epoch(self._store.folder, self.manifest, folder))
        except Exception as error:
            done(error if isinstance(error, CheckpointError) else CheckpointError(repr(error)))


def operators_with_versions(graph: Graph) -> dict[str, int]:
    """The state_version of those operators that have one."""
    return {one.name: one.state_version for one in graph.operators if one.state_version}
