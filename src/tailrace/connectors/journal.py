"""A journal for sources that cannot be read again: what they give is logged before it is processed.

Beside the worker's loop a thread writes what has come meanwhile, all of it together, and lets it go
on when it is on disk: a record waits for about two writes, and many share one. After a failure the
log is read from the position on, and then the source goes on as it comes.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.folder import folder_at
from tailrace.connectors.journal_log import BEGINNING, Group, JournalLog, Place
from tailrace.graph.model import Record
from tailrace.runtime.source import Reader, Source, Split

_MOST_WAITING = 1 << 15
"""Records that have come and were not handed on; then the source is left alone."""
KEPT_EPOCHS = 3
"""The journal goes back as far as checkpoints are kept by default."""


@dataclass(frozen=True)
class Journaled(Source):
    """Another source, with a journal in the folder of the job's checkpoints.

    A record that was logged is never lost and, with the state, counts exactly once; it comes again
    in the order in which it came. What a connection has brought that was not yet logged when a
    worker died is lost, for whoever sent it: nobody had confirmed it. Records must be picklable.
    Without checkpoints there is no journal, and the source is what it is.
    """

    source: Source
    folder: str | None = None
    rewinds = True
    tied = True

    def __post_init__(self) -> None:
        if self.source.rewinds:
            raise ValueError(
                f"{type(self.source).__name__} can be read again from any position, so it needs no"
                " journal; use it as it is"
            )

    @property
    def open_at_once(self) -> int:  # type: ignore[override]
        """As many as the source says."""
        return self.source.open_at_once

    @property
    def look_s(self) -> float | None:  # type: ignore[override]
        """As often as the source says."""
        return self.source.look_s

    @property
    def beginning(self) -> Any:
        """From where the source says; a log that is there is read first."""
        return self.source.beginning

    def splits(self, parallelism: int) -> Sequence[Split]:
        """Those of the source."""
        return self.source.splits(parallelism)

    def bind(self, folder: str) -> Source:
        """Have the journal there."""
        return replace(self, source=self.source.bind(folder), folder=folder)

    def unpaced(self) -> Source:
        """The source without its journal."""
        return self.source.unpaced()

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """A position is a `Place` in the log of the split; or one of the source, if that is new."""
        place = position if isinstance(position, Place) else BEGINNING
        other = None if isinstance(position, Place) else position
        reader = self.source.open(split, clock_ns, other)
        if self.folder is None:
            return reader
        try:
            under = f"{crc32(split.name.encode()):08x}-{split.index}-of-{split.of}"
            log = JournalLog(folder_at(self.folder), f"journal/{under}", place)
            return JournalReader(reader, log, clock_ns, place)
        except BaseException:
            reader.close()
            raise


class JournalReader(Reader):
    """What a reader gives, behind a log of it."""

    def __init__(
        self, reader: Reader, log: JournalLog, clock_ns: Callable[[], int], place: Place
    ) -> None:
        self._reader = reader
        self._log = log
        self._clock_ns = clock_ns
        self._place = place
        self._replay: Iterator[Group] = log.groups(place, log.before)
        self._replaying = True
        self._group: Group | None = None  # the one that is being given out
        self._given = 0  # how many of its records
        self._ended = False
        self._acknowledged: deque[Place] = deque(maxlen=KEPT_EPOCHS)
        # What both threads use, under the lock:
        self._changed = threading.Condition()
        self._come: list[tuple[list[Record], int]] = []
        self._writing = 0  # records on their way to the disk
        self._logged: deque[Group] = deque()
        self._end = log.before  # behind the last that was logged
        self._waiting = 0  # all that have come and were not given out
        self._delete_before = 0
        self._failure: BaseException | None = None
        self._closing = False
        self._deleted = 0  # known to the thread alone
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._event, select.EPOLLIN)
        self._watched: int | None = None
        self._thread = threading.Thread(target=self._write, name="tailrace-journal", daemon=True)
        self._thread.start()

    # ---- in the worker's thread ----

    def poll(self, most: int) -> list[Record] | None:
        """What is logged; and what has come goes to be logged."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        self._take_in(most)
        if self._group is None:
            self._group, self._given = self._next_group(), 0
        group = self._group
        if group is None:
            with self._changed:
                over = self._ended and not (self._come or self._writing or self._logged)
            return None if over else []
        records = group.records[self._given : self._given + most]
        self._given += len(records)
        self._place = group.place._replace(count=group.place.count + self._given)
        self.emitted_ns = group.emitted_ns
        if self._given == len(group.records):
            self._group = None
        return records

    def _take_in(self, most: int) -> None:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            full = self._waiting >= _MOST_WAITING
        if not full and not self._ended:
            records = self._reader.poll(most)
            self._ended = records is None
            if records:
                emitted_ns = self._reader.emitted_ns
                emitted_ns = self._clock_ns() if emitted_ns is None else emitted_ns
                with self._changed:
                    self._come.append((list(records), emitted_ns))
                    self._waiting += len(records)
                    self._changed.notify()
        self._watch(not full and not self._ended)

    def _watch(self, wanted: bool) -> None:
        """Be woken by the source's descriptor only while it may give something."""
        descriptor = self._reader.fileno() if wanted else None
        if descriptor != self._watched:
            if self._watched is not None:
                with suppress(OSError):  # it was closed, which took it out
                    self._epoll.unregister(self._watched)
            if descriptor is not None:
                self._epoll.register(descriptor, select.EPOLLIN)
            self._watched = descriptor

    def _next_group(self) -> Group | None:
        if self._replaying:
            group = next(self._replay, None)
            if group is not None:
                return group
            self._replaying = False
        with self._changed:
            if not self._logged:
                return None
            group = self._logged.popleft()
            self._waiting -= len(group.records)
            return group

    def due_ns(self) -> int | None:
        """At once if something is logged; or when the source says."""
        with self._changed:
            idle = not (self._come or self._writing)
            if self._group or self._replaying or self._logged or self._failure is not None:
                return 0
            if self._ended:
                return 0 if idle else None
            if self._waiting >= _MOST_WAITING:
                return None
        return self._reader.due_ns()

    def fileno(self) -> int:
        """Readable when something is logged, or when the source has something."""
        return self._epoll.fileno()

    def position(self) -> Place:
        """The place in the log behind the last record polled."""
        return self._place

    def acknowledge(self, position: Any) -> None:
        """Delete segments that are needed no more, beside the loop."""
        self._acknowledged.append(position)
        if len(self._acknowledged) == KEPT_EPOCHS:
            with self._changed:
                self._delete_before = self._acknowledged[0].segment
                self._changed.notify()

    def go_back(self, position: Any) -> bool:
        """Read the log again, and stay connected."""
        with self._changed:
            if self._failure is not None or self._closing:
                return False
            # What is logged will be read from the log; what is not yet comes behind it.
            self._waiting -= sum(len(group.records) for group in self._logged)
            self._logged.clear()
            end = self._end
        start = BEGINNING if position is None else position
        self._replay = self._log.groups(start, end)
        self._replaying, self._group, self._place = True, None, start
        return True

    def close(self) -> None:
        """Log what has come, and let go."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._reader.close()
        self._log.close()
        self._epoll.close()
        os.close(self._event)

    # ---- in a thread of its own ----

    def _write(self) -> None:
        more = True
        while more:
            with self._changed:
                while not (self._come or self._closing or self._delete_before > self._deleted):
                    self._changed.wait()
            more = self._work()

    def _work(self) -> bool:
        """Log what has come, and delete what is needed no more; False: that was the last."""
        with self._changed:
            come, self._come = self._come, []
            self._writing = sum(len(records) for records, _ in come)
            delete_before = self._delete_before
        if self._closing and not come and delete_before <= self._deleted:
            return False
        try:
            if come:
                self._log_together(come)
            if delete_before > self._deleted:
                with suppress(CheckpointError):  # they will be tried again with the next
                    self._log.delete_before(delete_before)
                self._deleted = delete_before
        except BaseException as error:
            with self._changed:
                self._failure, self._writing = error, 0
            os.eventfd_write(self._event, 1)
            return False
        return True

    def _log_together(self, come: list[tuple[list[Record], int]]) -> None:
        records = [record for some, _ in come for record in some]
        place = self._log.append(records)
        group = Group(place, records, come[0][1])
        with self._changed:
            self._writing = 0
            self._logged.append(group)
            self._end = group.end
        os.eventfd_write(self._event, 1)
