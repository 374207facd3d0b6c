"""A DataFrame as a source: Spark's tasks push its rows to the instances."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.connectors.memory import Items
from tailrace.control.feed import GapError, Intake, Note, Say, unpack
from tailrace.graph.model import Record
from tailrace.runtime.rows import records_of
from tailrace.runtime.source import FedReader, Reader, Reply, Source, Split
from tailrace.transport.codec import ArrowCodec

RowFunction = Callable[[dict[str, Any]], Record]
_WHOLE = Split("")
Position = tuple[int, tuple[tuple[int, int], ...]]
"""A batch, and pairs of a partition and its rows that were polled."""


@dataclass(frozen=True, eq=False)
class DataFrameSource(Source):
    """The rows of a bounded or streaming DataFrame; see `tailrace.sources.dataframe`.

    Partition p belongs to split p modulo their number, in the order of its rows. There are as many
    splits as instances at the start.
    """

    df: Any
    """Stays in the driver: in the workers this is None."""
    record: RowFunction | None = None
    trigger: Mapping[str, Any] | None = None
    checkpoint: str | None = None
    output_mode: str = "append"
    rewinds = True
    tied = True

    def __post_init__(self) -> None:
        if not hasattr(self.df, "isStreaming"):
            raise TypeError(f"a Spark DataFrame was expected; this is {type(self.df).__name__}")
        if not self.df.isStreaming and (self.trigger or self.checkpoint):
            raise ValueError(
                f"trigger is {self.trigger!r} and checkpoint {self.checkpoint!r}, but the"
                " DataFrame is not a streaming one; leave them out"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "df": None}

    def bind(self, folder: str) -> Source:
        """Have Spark note there how far a streaming query got, unless it does so elsewhere.

        For rows are known by the number of their micro-batch: a query that began anew would count
        from 0.
        """
        if not self.df.isStreaming or self.checkpoint is not None:
            return self
        return replace(self, checkpoint=f"{folder}/spark")

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """Wait for rows. In the driver's own process (a test), collect a bounded DataFrame.

        A position says how many rows of each partition are in the topology: a task that runs again
        pushes only the others.
        """
        if self.df is None:
            return PushedReader(self.record, clock_ns, split, position)
        if self.df.isStreaming:
            raise ValueError("a streaming DataFrame needs Spark to run it: topology.start(spark)")
        batches = self.df.toArrow().to_batches()
        records = [one for batch in batches for one in records_of(batch, self.record)]
        return Items(records).open(split, clock_ns, position)


@dataclass
class _Piece:
    """Rows that have come together."""

    note: Note
    rows: Any
    arrived_ns: int
    next: int = 0


class PushedReader(FedReader):
    """One split's end of the pushing. What it holds is bounded by the pushers' windows."""

    def __init__(
        self,
        record: RowFunction | None,
        clock_ns: Callable[[], int],
        split: Split = _WHOLE,
        position: Position | None = None,
    ) -> None:
        self._record = record
        self._clock_ns = clock_ns
        self._split = split
        self._codec = ArrowCodec()
        self._intake: Intake[Reply] = Intake()
        self._batch, self._polled = 0, dict[int, int]()  # rows polled, by partition of the batch
        if position is not None:
            self._batch, polled = position
            self._polled = dict(polled)
            self._intake.restore(self._batch, self._polled)
        self._waiting: deque[_Piece] = deque()
        self._ended = False

    def wants(self, payload: bytes | memoryview) -> bool:
        """Whether it is about a partition of this split, or about all of them."""
        note, _ = unpack(payload)
        return note.say is Say.END or note.partition % self._split.of == self._split.index

    def receive(self, payload: bytes | memoryview, reply: Reply) -> None:
        """Take rows, or hear of a partition that begins or is done, or of the end."""
        note, behind = unpack(payload)
        if note.say is Say.BEGIN:
            taken, safe = self._intake.begin(note.batch, note.partition, reply)
            reply(note._replace(say=Say.TAKEN, row=taken).pack())
            reply(note._replace(say=Say.SAFE, row=safe).pack())
        elif note.say is Say.ROWS:
            for rows in self._codec.decode(behind):
                self._take(note, rows, reply)
        elif note.say is Say.DONE:
            self._intake.done(note.batch, note.partition)
        elif note.say is Say.END:
            self._ended = True
            reply(note._replace(say=Say.HANDED).pack())

    def _take(self, note: Note, rows: Any, reply: Reply) -> None:
        try:
            known = self._intake.take(note.batch, note.partition, note.row, rows.num_rows, reply)
        except GapError:  # of one who began with the reader before this
            reply(note._replace(say=Say.AGAIN).pack())
            return
        if known < rows.num_rows:
            self._waiting.append(_Piece(note, rows.slice(known), self._clock_ns()))

    def poll(self, most: int) -> list[Record] | None:
        """Rows in the order in which they came; their latency counts from then."""
        if not self._waiting:
            return None if self._ended else []
        self.emitted_ns = self._waiting[0].arrived_ns
        records: list[Record] = []
        while self._waiting and len(records) < most:
            piece = self._waiting[0]
            some = piece.rows.slice(piece.next, most - len(records))
            records += records_of(some, self._record)
            piece.next += some.num_rows
            self._count(piece.note, some.num_rows)
            if piece.next == piece.rows.num_rows:
                self._waiting.popleft()
        return records

    def _count(self, note: Note, rows: int) -> None:
        if note.batch > self._batch:
            self._batch, self._polled = note.batch, {}
        self._polled[note.partition] = self._polled.get(note.partition, 0) + rows

    def position(self) -> Position:
        """The newest batch of which rows were polled, and how many of each partition."""
        return self._batch, tuple(self._polled.items())

    def handed_on(self, position: Position) -> None:
        """Tell pushers that there is room: they push a few messages beyond what was handed on."""
        batch, polled = position
        for partition, rows in polled:
            for reply in self._intake.hand(batch, partition, rows):
                reply(Note(Say.HANDED, batch, partition, rows).pack())

    def acknowledge(self, position: Position) -> None:
        """Tell pushers how many of their rows are safe: when all are, Spark may know."""
        batch, polled = position
        for partition, rows in polled:
            for reply in self._intake.secure(batch, partition, rows):
                reply(Note(Say.SAFE, batch, partition, rows).pack())

    def close(self) -> None:
        """Whoever still waits must push to the next one that serves this split."""
        for reply in self._intake.pushers():
            reply(Note(Say.AGAIN).pack())

    def due_ns(self) -> int | None:
        """At once if there is something; otherwise a message wakes the worker."""
        return 0 if self._waiting or self._ended else None
