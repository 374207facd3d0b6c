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


Reply = Callable[[bytes], None]
"""Answers whoever has sent something to a source; does nothing when they have gone."""


class FedReader(Reader):
    """A reader to which others push: the worker hands it the messages that come for it."""

    def receive(self, payload: bytes | memoryview, reply: Reply) -> None:
        """Take a message. The payload stays as it is for as long as somebody looks at it."""
        raise NotImplementedError


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

    every_s: float | None = None
    """How often to call `tick`; None: never."""

    def open(self, index: int, parallelism: int) -> None:
        """Called once in the worker, before anything is written."""

    def write(self, records: Iterator[Record]) -> None:
        """Take all records of the iterator."""
        raise NotImplementedError

    def tick(self) -> None:
        """Called every `every_s`, also when no records come: time to show what has been written."""

    def finish(self) -> None:
        """Called once when the input has ended and all is written, so not after a failure.

        Until then, or until a `tick`, nothing may be visible that must not be seen after a failure.
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
            if type(records) is not list:  # guards take nothing else
                records = list(records)
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

    def __init__(self, sink: Sink, context: Any) -> None:
        self._sink = sink
        self._context = context
        self._wait()

    def _wait(self) -> None:
        if self._sink.every_s is not None:
            at_ns = self._context.clock_ns() + int(self._sink.every_s * 1e9)
            self._context.set_timer(at_ns, None)

    def on_timer(self, time: float, tag: Any) -> None:
        """Let the sink tick."""
        self._sink.tick()
        self._wait()

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
        return SinkStep(sink, context)
