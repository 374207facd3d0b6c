"""Where records come from, and where they go in the end: what connectors implement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from tailrace.graph.model import MAIN, Record
from tailrace.runtime.step import Put, Step


class Reader:
    """One instance's share of a source. Made in the worker; called from its one thread.

    `poll` must not block. A reader that waits for something says when to ask again (`due_ns`), or
    gives a descriptor to watch (`fileno`).
    """

    emitted_ns: int | None = None
    """When the records of the last `poll` were emitted, if not now: latency counts from there."""

    def poll(self, most: int) -> list[Record] | None:
        """Up to `most` records that are there now; an empty list: none yet; None: the end."""
        raise NotImplementedError

    def due_ns(self) -> int | None:
        """When to poll again, by the worker's clock; None: when `fileno` is readable."""
        return 0

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there is something to poll."""
        return None

    def position(self) -> Any:
        """Where it stands: what `Source.open` needs to go on from here."""
        return None

    def close(self) -> None:
        """Let go of files and sockets."""


class Source:
    """A description of where records come from; shipped to the workers, so it must be picklable."""

    def open(
        self, index: int, parallelism: int, clock_ns: Callable[[], int], position: Any = None
    ) -> Reader:
        """The reader of one instance's share, from a position or from the start."""
        raise NotImplementedError

    def unpaced(self) -> Source:
        """The same records as fast as they can be had; for measuring what they cost."""
        return self


class Sink:
    """A description of where records go; shipped to the workers, so it must be picklable."""

    def open(self, index: int, parallelism: int) -> None:
        """Called once in the worker, before anything is written."""

    def write(self, records: Iterator[Record]) -> None:
        """Take all records of the iterator."""
        raise NotImplementedError

    def finish(self) -> None:
        """Called once when the input has ended and all is written, so not after a failure.

        Until then nothing may be visible that must not be seen after a failure.
        """

    def close(self) -> None:
        """Called at the end: after `finish`, or without it after a failure."""


class SourceStep(Step):
    """A running source."""

    def __init__(self, reader: Reader, put: Put, clock_ns: Callable[[], int]) -> None:
        self.reader = reader
        self.put = put
        self.emitted_ns = 0
        self._clock_ns = clock_ns
        self._stopped = False

    def poll(self, most: int) -> list[Record] | None:
        """What the reader has now; None at its end, or once stopped."""
        if self._stopped:
            return None
        records = self.reader.poll(most)
        if records:
            emitted_ns = self.reader.emitted_ns
            self.emitted_ns = self._clock_ns() if emitted_ns is None else emitted_ns
        return records

    def due_ns(self) -> int | None:
        """When to poll next."""
        return 0 if self._stopped else self.reader.due_ns()

    def stop(self) -> None:
        """End at the next poll."""
        self._stopped = True

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()


class SinkStep(Step):
    """A running sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def process(self, records: Iterator[Record], port: int) -> None:
        """Write them."""
        self._sink.write(records)

    def finish(self) -> None:
        """Let the sink make visible what it has."""
        self._sink.finish()

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


class SourceLogic:
    """Makes the steps of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def start(self, context: Any) -> Step:
        """Open this instance's share."""
        reader = self.source.open(context.index, context.parallelism, context.clock_ns)
        return SourceStep(reader, context.put(MAIN), context.clock_ns)


class SinkLogic:
    """Makes the steps of a sink."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def start(self, context: Any) -> Step:
        """Open it for this instance."""
        sink = copy(self.sink)  # instances of one worker do not share its files
        sink.open(context.index, context.parallelism)
        return SinkStep(sink)
