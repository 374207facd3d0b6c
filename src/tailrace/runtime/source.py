"""Where records come from: what sources implement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from zlib import crc32

from tailrace.graph.model import Record

OPEN_AT_ONCE = 1024


@dataclass(frozen=True, order=True)
class Split:
    """A part of a source with a position of its own: a file, a partition, a generator's share.

    It says all that is needed to open it, so it can be kept and sent. Which instance serves it
    follows from itself and the parallelism alone: nobody has to know of the others.

    >>> Split("", 3, 8).home(2)
    1
    """

    name: str
    """Of a file its path; empty for a share of the source as a whole."""
    index: int = 0
    of: int = 1
    """Share `index` of `of` equal ones."""

    def home(self, parallelism: int) -> int:
        """The index of the instance that serves it."""
        return (crc32(self.name.encode("utf-8", "surrogateescape")) + self.index) % parallelism

    def __str__(self) -> str:
        share = f"share {self.index + 1} of {self.of}" if self.of > 1 or not self.name else ""
        return f"{self.name} ({share})" if self.name and share else self.name or share


def shares(count: int, name: str = "") -> list[Split]:
    """So many equal splits; of the source as a whole, instance i of as many serves the i-th."""
    return [Split(name, index, count) for index in range(count)]


class _Ends(Enum):
    START = "start"
    DONE = "done"


START = _Ends.START
"""The position of a split that has not been begun, or whose reader has no positions."""
DONE = _Ends.DONE
"""The position of a split that has been read to its end."""


class Reader:
    """Reads one split. Made in the worker; called from its one thread.

    `poll` must not block. A reader that waits for something says when to ask again (`due_ns`), or
    gives a descriptor to watch (`fileno`).
    """

    emitted_ns: int | None = None
    """When the records of the last `poll` were emitted, if not now: latency counts from there."""

    def poll(self, most: int) -> list[Record] | None:
        """Up to `most` records that are there now; an empty list: none yet; None: the end.

        The list belongs to the engine from then on: a reader that wants to look at it again gives
        a copy. It may be called before its time.
        """
        raise NotImplementedError

    def due_ns(self) -> int | None:
        """When to poll again, by the worker's clock; None: when `fileno` is readable.

        A time that was past at the last poll, which nevertheless gave nothing, counts as "soon":
        after a pause of 0.1 ms that doubles with every empty poll, up to 5 ms. Without a `due_ns`
        of its own a reader is asked at once as long as it gives records, and after such pauses
        otherwise; or, if it has a descriptor, when that is readable.
        """
        return 0 if self.fileno() is None else None

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there is something to poll. May change."""
        return None

    def position(self) -> Any:
        """Where it stands, behind the last record polled: what `Source.open` needs to go on."""
        return None

    def acknowledge(self, position: Any) -> None:
        """What it gave before that position is safe: whoever sent it need not keep it.

        Called some time after the records were polled and handed on, with a position that it gave
        itself; under checkpoints, when an epoch that holds them is committed. Nothing is safe only
        because it was polled.
        """

    def handed_on(self, position: Any) -> None:
        """What it gave before that position is in the topology, and not safe yet.

        Called under checkpoints, for readers that `acknowledge`: there is room for more.
        """

    def go_back(self, position: Any) -> bool:
        """Go on from a position that it gave before; False: it must be opened anew for that.

        For readers with connections that closing them would cost.
        """
        return False

    def close(self) -> None:
        """Let go of files and sockets."""


Reply = Callable[[bytes], None]
"""Answers whoever has sent something to a source; does nothing when they have gone."""


class FedReader(Reader):
    """A reader to which others push: the worker hands it the messages that come for it."""

    def wants(self, payload: bytes | memoryview) -> bool:
        """Whether a message is for this one of several splits of an instance."""
        return True

    def receive(self, payload: bytes | memoryview, reply: Reply) -> None:
        """Take a message. The payload stays as it is for as long as somebody looks at it."""
        raise NotImplementedError


class Source:
    """A description of where records come from; shipped to the workers, so it must be picklable.

    A simple one defines `open` alone, and there gives share `split.index` of `split.of`: there is
    a share for each instance. One whose records can be read again from a position says `rewinds`,
    and its readers have a `position`.

    >>> import tailrace as tr
    >>> from tailrace.testing import run
    >>> class Countdown(Source, Reader):
    ...     left = 3
    ...     def open(self, split, clock_ns, position=None):
    ...         return self
    ...     def poll(self, most):
    ...         self.left -= 1
    ...         return [self.left] if self.left >= 0 else None
    >>> topology = tr.Topology()
    >>> topology.source(Countdown()).sink(print)
    >>> run(topology).ended
    2
    1
    0
    True
    """

    rewinds: bool = False
    """Whether `open` with a position gives exactly the records behind it, on any worker.

    As many lives later as one likes, as long as what it reads is there: exactly once needs it.
    """
    tied: bool = False
    """Whether its readers are tied to the worker they are in, though it rewinds.

    Then a running job cannot have it read elsewhere, or by another number of instances.
    """
    open_at_once: int = OPEN_AT_ONCE
    """Of the splits of an instance at most so many are read at a time, in turn; then the next."""
    look_s: float | None = None
    """How often to call `splits` again, for new ones; None: there will be none."""
    beginning: Any = None
    """The position from which splits are opened that were found later."""

    def splits(self, parallelism: int) -> Sequence[Split]:
        """All splits there are now, for a source that starts with so many instances.

        Every instance asks and serves those whose `home` it is. When a job goes on from positions,
        with however many instances, its splits are those of the positions.
        """
        return shares(parallelism)

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """The reader of a split, from a position or from the start."""
        raise NotImplementedError

    def bind(self, folder: str) -> Source:
        """What to use in its place in a job with checkpoints, before it is shipped to the workers.

        `folder` is a path or URL below that of the checkpoints, for what this source may want to
        keep beside its positions; it is its own, and the same after a restart of the job.
        """
        return self

    def unpaced(self) -> Source:
        """The same records as fast as they can be had; for measuring what they cost."""
        return self
