"""A worker's checkpoints: what its core has cut is written by a thread beside the loop."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.checkpoint.committing import operators_with_versions
from tailrace.checkpoint.folder import Folder, folder_at
from tailrace.checkpoint.manifest import data_name, from_json
from tailrace.checkpoint.parts import write_part
from tailrace.checkpoint.restoring import Restoring
from tailrace.checkpoint.sections import Section
from tailrace.control.protocol import Peers, Settings, Snapshotted
from tailrace.control.slices import USUAL_NS, set_slice
from tailrace.runtime.core import Core
from tailrace.runtime.cuts import Part
from tailrace.runtime.deployment import Deployment

_PAUSES_S = (0.1, 0.3)
"""Before the second try to write a part, and the third."""
_NICE = 10
"""The loop, which has the same core, goes first."""


@dataclass(frozen=True)
class _Done:
    attempt: int
    part: Part
    sections: tuple[Section, ...] = ()
    error: Exception | None = None


class Checkpointing:
    """See above. All methods are called from the worker's thread."""

    def __init__(
        self,
        settings: Settings,
        rank: int,
        wake: Callable[[], None],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`wake` ends a wait of the loop's; `pause` is called in the thread that writes."""
        self._settings = settings
        self._rank = rank
        self._wake = wake
        self._pause = pause
        self._folder = folder_at(settings.checkpoint)
        self._asked: queue.SimpleQueue[tuple[int, Part, dict[str, int]] | None] = (
            queue.SimpleQueue()
        )
        self._done: deque[_Done] = deque()
        self._thread: threading.Thread | None = None

    def look(self, core: Core, attempt: int) -> Snapshotted | None:
        """Have written what is ready to be; what was written, for the coordinator to know.

        Raises if something cannot be written, mostly a CheckpointError.
        """
        assert core.cuts is not None
        if (part := core.cuts.take()) is not None:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write, name="tailrace-epochs", daemon=True
                )
                self._thread.start()
            versions = operators_with_versions(core.deployment.graph)
            self._asked.put((attempt, part, versions))
        while self._done and self._done[0].attempt != attempt:
            self._done.popleft()
        if not self._done:
            return None
        done = self._done.popleft()
        if done.error is not None:
            raise done.error
        part = done.part
        return Snapshotted(
            self._rank,
            part.epoch,
            done.sections,
            tuple(part.handles),
            tuple((piece.operator, piece.index) for piece in part.pieces if piece.finished),
            part.ended,
            attempt,
        )

    def _write(self) -> None:
        set_slice(USUAL_NS, _NICE)
        while (asked := self._asked.get()) is not None:
            attempt, part, versions = asked
            name = data_name(part.epoch, self._settings.generation, attempt, self._rank)
            for pause_s in (*_PAUSES_S, None):
                try:
                    sections = write_part(self._folder, name, part, versions)
                    self._done.append(_Done(attempt, part, sections))
                    break
                except Exception as error:
                    if pause_s is None:
                        self._done.append(_Done(attempt, part, error=error))
                    else:
                        self._pause(pause_s)
            self._wake()

    def close(self) -> None:
        """End the thread, when it has written what it was asked for."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(5.0)


def restoring(peers: Peers, deployment: Deployment, checkpoint: str) -> Restoring | None:
    """What workers go on from, who write to the folder `checkpoint`; None: the beginning."""
    if not peers.manifest:
        return None
    folder: Folder = folder_at(peers.kept_in)
    where = f"{folder.url.rstrip('/')}/{peers.manifest}"
    manifest = from_json(folder.read(peers.manifest), where)
    versions = operators_with_versions(deployment.graph)
    migrations = {
        one.name: one.migrate for one in deployment.graph.operators if one.migrate is not None
    }
    elsewhere = peers.kept_in != checkpoint
    return Restoring(folder, manifest, deployment, versions, migrations, elsewhere)
