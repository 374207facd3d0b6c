"""What the tests of several connectors need."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import closing
from typing import Any

from tailrace.runtime.source import Reader, Sink, Source
from tailrace.testing import VirtualClock


def read_all(reader: Reader, most: int = 100) -> list[Any]:
    """To the end, for a reader that never waits."""
    records: list[Any] = []
    with closing(reader):
        while (some := reader.poll(most)) is not None:
            assert 0 < len(some) <= most
            records += some
    return records


def read_share(source: Source, index: int = 0, parallelism: int = 1, most: int = 100) -> list[Any]:
    return read_all(source.open(index, parallelism, VirtualClock()), most)


def read_timed(reader: Reader, clock: VirtualClock, most: int = 100) -> list[tuple[int, Any]]:
    """To the end in virtual time: each record with the time it came at."""
    timed = []
    while (some := reader.poll(most)) is not None:
        timed += [(clock.now_ns, record) for record in some]
        if not some:
            due_ns = reader.due_ns()
            assert due_ns is not None
            assert due_ns > clock.now_ns, "it asks to be polled, but had nothing"
            clock.now_ns = due_ns
    return timed


def wait(reader: Reader) -> None:
    """Until its descriptor says that there is something to poll."""
    descriptor = reader.fileno()
    assert descriptor is not None
    select.select([descriptor], [], [])


def wait_until(reader: Reader, done: Callable[[list[Any]], bool]) -> list[Any]:
    """Poll a reader of sockets, as a worker does, until what it gave is what was waited for."""
    records: list[Any] = []
    while not done(records):
        some = reader.poll(100)
        assert some is not None, f"it ended after {records}"
        records += some
        if not some:
            assert reader.due_ns() is None
            wait(reader)
    return records


def write(sink: Sink, records: list[Any], *, finish: bool = True) -> None:
    sink.open(0, 1)
    try:
        sink.write(iter(records))
        if finish:
            sink.finish()
    finally:
        sink.close()
