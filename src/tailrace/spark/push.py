"""In Spark's tasks: push the rows of a partition to a source instance of a running job."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.control.feed import ALL, KIND_FEED, Note, Say, unpack
from tailrace.transport.codec import ArrowCodec
from tailrace.transport.frame import Buffer
from tailrace.transport.identity import pin_in
from tailrace.transport.tcp import Address, Refusals, TcpConfig, TcpConnection

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE_ROWS = 2048
MESSAGE_BYTES = 1 << 20
WINDOW_MESSAGES = 4
"""Messages of a partition whose rows are not in the topology yet; then the pusher waits."""
_DIAL_MS = 600_000
"""A worker inside a slow operator answers nobody meanwhile."""
_SILENCE_S = 120
"""Longer than workers wait for each other: rows that a slow operator's worker leaves unread fill
the connection, and for the kernel that is silence."""


@dataclass(frozen=True)
class Target:
    """A source instance, and the worker it is in."""

    instance: int
    worker: int
    address: Address


@dataclass(frozen=True)
class Targets:
    """All instances of a source, and what it takes to be let in."""

    instances: tuple[Target, ...]
    pusher_id: int
    secret: bytes = field(repr=False)
    tls: bool = False


class Line:
    """A conversation with one instance; waits for it where it has to.

    Raises ConnectionError when the worker is gone, which is when its job has ended or its host
    is silent.
    """

    def __init__(self, targets: Targets, target: Target) -> None:
        config = TcpConfig(targets.pusher_id, targets.secret, dial_ms=_DIAL_MS)
        self._target = target
        self._connection = TcpConnection.connect(
            config,
            target.address,
            target.worker,
            Refusals(),
            pin=pin_in(targets.secret) if targets.tls else None,
        )
        self._connection.notice_silence(_SILENCE_S)
        self._heard: deque[Note] = deque()

    def say(self, note: Note, *behind: Buffer) -> None:
        """Send a message."""
        self._check()
        message = [note.pack(), *behind]
        while not self._connection.send(self._target.instance, KIND_FEED, message):
            self._wait()
        self._connection.flush()

    def hear(self) -> Note:
        """The next message of the instance."""
        while not self._heard:
            self._wait()
        return self._heard.popleft()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _wait(self) -> None:
        self._check()
        poll = select.poll()
        poll.register(self._connection.fileno(), self._connection.events)
        for _, events in poll.poll():
            for frame in self._connection.on_ready(events):
                self._heard.append(unpack(frame.payload)[0])

    def _check(self) -> None:
        if self._connection.closed:
            raise ConnectionError(
                f"worker {self._target.worker} at {self._target.address} takes no more rows:"
                f" {self._connection.close_reason}"
            )


def messages(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of bounded size, in order; a row that is larger goes alone."""
    rows = batch.num_rows
    if rows > MESSAGE_ROWS or (rows > 1 and batch.nbytes > MESSAGE_BYTES):
        yield from messages(batch.slice(0, rows // 2))
        yield from messages(batch.slice(rows // 2))
    elif rows:
        yield batch


class Pusher:
    """Pushes one partition of one batch, but for the rows that are there already."""

    def __init__(self, line: Line, batch: int, partition: int) -> None:
        self._line = line
        self._note = Note(Say.BEGIN, batch, partition)
        self._codec = ArrowCodec()
        self._rows = 0
        self._taken = self._handed = self._safe = 0
        self._sent: deque[int] = deque()  # the row numbers at which messages under way end
        line.say(self._note)
        self._hear()
        self._hear()

    def push(self, batch: pa.RecordBatch) -> None:
        """Send rows; waits while too many are under way."""
        for piece in messages(batch):
            first, self._rows = self._rows, self._rows + piece.num_rows
            if self._rows <= self._taken:
                continue
            while len(self._sent) >= WINDOW_MESSAGES:
                self._hear()
            note = self._note._replace(say=Say.ROWS, row=first)
            self._line.say(note, *self._codec.encode([piece]))
            self._sent.append(self._rows)

    def finish(self) -> None:
        """Wait until all rows are safe: in the topology, and in an epoch if there are any."""
        if self._rows < self._taken < ALL:
            raise ValueError(
                f"partition {self._note.partition} has {self._rows} rows; when it was computed"
                f" before it had at least {self._taken}. Its computation must give the same rows"
                " each time"
            )
        while self._safe < self._rows:
            self._hear()
        if self._safe < ALL:
            with suppress(ConnectionError):  # the job, having all rows, may have ended
                self._line.say(self._note._replace(say=Say.DONE))

    def _hear(self) -> None:
        note = self._line.hear()
        if note.say is Say.AGAIN:
            raise ConnectionError(
                f"the job has gone back to its last epoch: partition {self._note.partition} of"
                f" batch {self._note.batch} must be pushed again, from row {self._safe} on"
            )
        if note.say is Say.TAKEN:
            self._taken = note.row
        else:
            self._handed = max(self._handed, note.row)
        if note.say is Say.SAFE:
            self._safe = note.row
        while self._sent and self._sent[0] <= self._handed:
            self._sent.popleft()


def push(batches: Iterator[pa.RecordBatch], targets: Targets) -> Iterator[pa.RecordBatch]:
    """What a task does with its partition: push all of it, and yield nothing."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "not in a Spark task"
    partition = task.partitionId()
    batch_id = int(task.getLocalProperty("streaming.sql.batchId") or 0)
    target = targets.instances[partition % len(targets.instances)]
    line: Line | None = None
    pusher: Pusher | None = None
    try:
        for batch in batches:
            if pusher is None:
                line = Line(targets, target)
                pusher = Pusher(line, batch_id, partition)
            pusher.push(batch)
        if pusher is not None:
            pusher.finish()
    finally:
        if line is not None:
            line.close()
    yield from ()
