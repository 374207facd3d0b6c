"""The keyed workload as a topology: each record is counted by its key."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tailrace as tr
from recovery_parts.arrivals import SOURCES, Arrivals, Due
from tailrace.runtime.sink import Sink
from tailrace.runtime.source import Reader, Source, Split


class Records(Source):
    """All records. After a failure those are due at once that would have come meanwhile.

    Without `waits_for_nobody` the pace goes on where it was left, as if no time had passed: for
    jobs that go on from a state made before.
    """

    rewinds = True

    def __init__(self, arrivals: Arrivals, waits_for_nobody: bool) -> None:
        self.arrivals = arrivals
        self.waits_for_nobody = waits_for_nobody

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        emitted, begin_ns = position or (0, 0)
        due = Due(self.arrivals, split.index, emitted, begin_ns)
        return _Reader(due, clock_ns, self.waits_for_nobody)


class _Reader(Reader):
    def __init__(self, due: Due, clock_ns: Callable[[], int], waits_for_nobody: bool) -> None:
        self._due = due
        self._clock_ns = clock_ns
        self._anew = not waits_for_nobody

    def poll(self, most: int) -> list[tuple[str, int]] | None:
        due, now_ns = self._due, self._clock_ns()
        if self._anew:
            self._anew = False
            due.resume_at(now_ns)
        self.emitted_ns = due.next_due_ns() or None
        return due.take(most, now_ns)

    def due_ns(self) -> int:
        return self._due.next_due_ns()

    def position(self) -> tuple[int, int]:
        return self._due.position


class Outside(Sink):
    """Tells a receiver on this host at once, from this process."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, index: int, parallelism: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(array("q", [os.getpid()]).tobytes())

    def write(self, records: Iterator[Any]) -> None:
        self._socket.sendall(array("q", [number for _, (_, number) in records]).tobytes())

    def close(self) -> None:
        self._socket.close()


def count(state: tuple[int, int] | None, record: tuple[str, int]) -> tuple[int, int]:
    """How many there were, and the number of the last one."""
    return (state[0] if state else 0) + 1, record[1]


def nothing(record: object) -> None:
    """A sink for those who only want to know when results are there."""


def counts(
    arrivals: Arrivals,
    *,
    waits_for_nobody: bool = False,
    port: int | None = None,
    files: Path | None = None,
) -> tr.Topology:
    """Counts by key, to a receiver and into files, exactly once; or to nobody."""
    topology = tr.Topology("keys")
    records = topology.source(
        Records(arrivals, waits_for_nobody), name="records", parallelism=SOURCES
    )
    counted = records.key_by(lambda record: record[0]).scan(count, name="count", parallelism=2)
    if port is not None:
        counted.sink(Outside(port), name="outside", parallelism=2)
    if files is not None:
        lines = counted.map(lambda one: f"{one[1][1]} {one[1][0]}", name="line", parallelism=2)
        lines.sink(tr.sinks.text(files), name="files", parallelism=2)
    if port is None and files is None:
        counted.sink(nothing, name="nobody", parallelism=2)
    return topology


def results(files: Path) -> Iterator[tuple[int, int]]:
    """What is in the files: the number of a record, and the count of its key."""
    for path in files.glob("part-*"):
        for line in path.read_text().splitlines():
            number, counted = line.split()
            yield int(number), int(counted)
