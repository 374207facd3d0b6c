"""What the tests of several connectors need."""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from tailrace.runtime.reading import SourceStep
from tailrace.runtime.sink import Sink, Writing
from tailrace.runtime.source import Reader, Source, Split
from tailrace.testing import VirtualClock


def serve(
    source: Source,
    index: int = 0,
    parallelism: int = 1,
    clock_ns: Callable[[], int] | None = None,
    positions: Mapping[Split, Any] | None = None,
    **options: Any,
) -> SourceStep:
    """One instance of a source, as a worker runs it."""
    clock_ns = clock_ns or VirtualClock()
    return SourceStep(
        source, index, parallelism, lambda records: None, clock_ns, positions, **options
    )


def read_all(reader: Reader | SourceStep, most: int = 100) -> list[Any]:
    """To the end, for a reader that never waits."""
    records: list[Any] = []
    with closing(reader):
        while (some := reader.poll(most)) is not None:
            assert 0 < len(some) <= most
            records += some
    return records


def read_share(source: Source, index: int = 0, parallelism: int = 1, most: int = 100) -> list[Any]:
    return read_all(serve(source, index, parallelism), most)


def read_timed(
    reader: Reader | SourceStep, clock: VirtualClock, most: int = 100
) -> list[tuple[int, Any]]:
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


def wait(reader: Reader | SourceStep) -> None:
    """Until its descriptor says that there is something to poll."""
    descriptors = reader.filenos() if isinstance(reader, SourceStep) else [reader.fileno()]
    select.select([one for one in descriptors if one is not None], [], [])


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


def begin(sink: Sink, index: int = 0, parallelism: int = 1, job: str = "job") -> None:
    sink.begin(Writing(job, "sink", index, parallelism))


def write(sink: Sink, records: list[Any], *, finish: bool = True, job: str = "job") -> None:
    begin(sink, job=job)
    try:
        sink.write(iter(records))
        if finish:
            sink.finish()
    finally:
        sink.close()
