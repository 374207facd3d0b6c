"""The keyed workload with a sink that notes when each result was there."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tailrace as tr
from recovery_parts.arrivals import SOURCES, Arrivals, Due
from recovery_parts.keyed import count
from tailrace.runtime.sink import Sink
from tailrace.runtime.source import Reader, Source, Split

_BUFFERED = 3 * 2048
WORDS = 3
"""Of a result in the log: when it was there, the number of its record, the count of its key."""


class Scheduled(Source):
    """All records, due when they are due whatever happens; a file says when each pace began."""

    rewinds = True

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        emitted, begin_ns = position or (0, 0)
        due = Due(self.arrivals, split.index, emitted, begin_ns)
        return _Reader(due, clock_ns, began_file(self.arrivals, split.index))


class _Reader(Reader):
    def __init__(self, due: Due, clock_ns: Callable[[], int], began: Path) -> None:
        self._due = due
        self._clock_ns = clock_ns
        self._began = began

    def poll(self, most: int) -> list[tuple[str, int]] | None:
        due, begun = self._due, bool(self._due.begin_ns)
        self.emitted_ns = due.next_due_ns() or None
        records = due.take(most, self._clock_ns())
        if not begun and due.begin_ns:
            self._began.write_text(str(due.begin_ns))
        return records

    def due_ns(self) -> int:
        return self._due.next_due_ns()

    def position(self) -> tuple[int, int]:
        return self._due.position


def began_file(arrivals: Arrivals, index: int) -> Path:
    """Where a source says when its pace began, in ns of the job's clock."""
    return Path(arrivals.folder) / f"began-{index}"


class Log(Sink):
    """Notes results, with the time, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, index: int, parallelism: int) -> None:
        self._path = Path(self.folder) / f"{index}-{os.getpid()}-{time.monotonic_ns()}.log"
        self._words = array("q")

    def write(self, records: Iterator[Any]) -> None:
        words, at_ns = self._words, time.monotonic_ns()
        for _, (counted, number) in records:
            words.extend((at_ns, number, counted))
        if len(words) >= _BUFFERED:
            self._flush()

    def _flush(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(self._words.tobytes())
        self._words = array("q")

    def close(self) -> None:
        self._flush()


def logged(arrivals: Arrivals, folder: Path) -> tr.Topology:
    """Counts by key, and when each was there."""
    topology = tr.Topology("keys")
    records = topology.source(Scheduled(arrivals), name="arrivals", parallelism=SOURCES)
    counted = records.key_by(lambda record: record[0]).scan(count, name="count", parallelism=2)
    counted.sink(Log(folder), name="log", parallelism=2)
    return topology
