"""Where records go in the end: what sinks implement, and what runs them.

Under checkpoints a sink hears of epochs: `prepare` ends one, and what was written before belongs to
it; when all workers have done theirs and that is on record, it is committed. A sink that shows
nothing of an epoch before its commit, and can commit again after a crash at any point, gives every
result exactly once. One that shows results at once gives those of an epoch that is done again a
second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from tailrace.graph.model import Graph, Record
from tailrace.runtime.state import GoingOn
from tailrace.runtime.step import Step

Guarantee = Literal["exactly once", "at least once", "at most once"]
"""What happens to a record when something fails."""


@dataclass(frozen=True)
class Writing:
    """Who writes to a sink: the same after a restart of the job's workers, another in each job."""

    job: str
    operator: str
    index: int
    parallelism: int
    epoch: int | None = None
    """The epoch it goes on from, 0 at the beginning; None: the job makes no checkpoints."""


class Sink:
    """A description of where records go; shipped to the workers, so it must be picklable.

    Without checkpoints nothing of `prepare`, `commit`, `abort`, `roll_back` is called, and what
    must not be seen after a failure has to wait for a `tick` or for `finish`. With them it waits
    for `commit`.
    """

    every_s: float | None = None
    """How often to call `tick`; None: never."""
    tied: bool = False
    """Whether without checkpoints nobody else can go on with what an instance has written.

    Then only a job with checkpoints can have it written from elsewhere while it runs.
    """
    guarantee: Guarantee = "at least once"
    """Under checkpoints: "exactly once" if nothing of an epoch can be seen before its commit."""

    def begin(self, writing: Writing) -> None:
        """Called once in the worker, before anything is written. By default just `open`.

        Under checkpoints, what is left of epochs after `writing.epoch` is to be removed: they will
        be done again. What was prepared for that epoch and those before is committed by others.
        """
        self.open(writing.index, writing.parallelism)

    def open(self, index: int, parallelism: int) -> None:
        """The same for sinks that need not know more than which instance they are."""

    def write(self, records: Iterator[Record]) -> None:
        """Take all records of the iterator."""
        raise NotImplementedError

    def tick(self) -> None:
        """Called every `every_s`, also when no records come: time to show what has been written."""

    def finish(self) -> None:
        """Called once when the input has ended and all is written, so not after a failure.

        Until then, or until a `tick`, nothing may be visible that must not be seen after a failure.
        Under checkpoints a last `prepare` and `commit` follow.
        """

    def close(self) -> None:
        """Called at the end: after `finish`, or without it after a failure.

        What was prepared must stay: its epoch may be committed yet.
        """

    def prepare(self, epoch: int) -> Any:
        """An epoch ends: all that was written since the last one belongs to it.

        Returns what `sync`, `commit` and `abort` need, picklable; None: nothing. After that and
        `sync` the epoch can be committed also if this process dies, or the machine. Records wait
        for it, so what takes time had better be done by `sync`.
        """
        return None

    def sync(self, handle: Any) -> None:
        """Have what was prepared, and once that is committed what can be seen, last on the disk.

        Called in a thread beside the worker's, for which nobody waits but the epoch: before it
        counts, and again before the next one does. By then it may have been committed or aborted.
        """

    def commit(self, handle: Any) -> None:
        """Let what was prepared be seen. May be called again, by any instance in any process.

        One that died in the middle of it, too: then what it had begun is completed.
        """

    def abort(self, handle: Any) -> None:
        """Remove what was prepared: its epoch will never be committed. May be called again."""

    def roll_back(self) -> None:
        """Drop all that was written since the last `prepare`: it comes again."""

    def snapshot(self) -> Any:
        """What must outlive this copy beside the records, as picklable data; None: nothing."""
        return None

    def restore(self, snapshot: Any) -> None:
        """Go on from what `snapshot` gave when the epoch was prepared that the job goes on from.

        Called after `begin`, also in another copy; for each if several become one.
        """


class _Cut(NamedTuple):
    handle: Any
    snapshot: Any


class SinkStep(Step):
    """A running sink, and what it has prepared and not yet committed."""

    def __init__(self, sink: Sink, context: Any) -> None:
        self._sink = sink
        self._context = context
        self._first = sink.snapshot()
        self._cuts: dict[int, _Cut] = {}
        """The newest that is committed, and those after it."""
        self._shown: list[Any] = []  # committed since the last cut
        self.unsynced: tuple[Any, ...] = ()
        """Handles that are to be synced before the last cut counts."""
        self._wait()

    def _wait(self) -> None:
        if self._sink.every_s is not None:
            at_ns = self._context.clock_ns() + int(self._sink.every_s * 1e9)
            self._context.set_timer(at_ns, None)

    def on_timer(self, at_ns: int, tag: Any) -> None:
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

    # ---- checkpoints ----

    def retire(self) -> None:
        """Stay open: whoever takes over says which of the epochs count."""

    def discard(self) -> None:
        """Close the sink."""
        self._sink.close()

    def cut(self, epoch: int) -> Any:
        """All that came before belongs to this epoch. Returns the sink's handle, if it has one."""
        handle = self._sink.prepare(epoch)
        self._cuts[epoch] = _Cut(handle, self._sink.snapshot())
        self.unsynced = tuple(one for one in (*self._shown, handle) if one is not None)
        self._shown = []
        return handle

    def sync(self, handles: Iterable[Any]) -> None:
        """Sync these; in any thread."""
        for handle in handles:
            self._sink.sync(handle)

    def committed(self, epoch: int, handles: Iterable[Any] = ()) -> None:
        """The epoch counts: commit what was prepared for it here, and these handles of others.

        May be called again. If it raises, what is left is still to be committed.
        """
        for handle in handles:
            self._sink.commit(handle)
            self._shown.append(handle)
        for one in sorted(one for one in self._cuts if one <= epoch):
            handle, snapshot = self._cuts[one]
            if handle is not None:
                self._sink.commit(handle)
                self._shown.append(handle)
            self._cuts[one] = _Cut(None, snapshot)
            if one < epoch:
                del self._cuts[one]

    def roll_back(self, epoch: int) -> None:
        """Go back to an epoch that counts; those after it will be done again.

        It may count without anybody having said so here: then it is committed now.
        """
        self._sink.roll_back()
        self.committed(epoch)
        for one in [one for one in self._cuts if one > epoch]:
            handle = self._cuts[one].handle
            if handle is not None:
                self._sink.abort(handle)
            del self._cuts[one]
        snapshot = self._cuts[epoch].snapshot if epoch in self._cuts else self._first
        if snapshot is not None:
            self._sink.restore(snapshot)

    def go_on(self, going_on: GoingOn) -> None:
        """Commit what was prepared, if that has not been done; go on from what was kept."""
        for shared in going_on.shared:
            self.put_shared(shared)
        self.committed(going_on.epoch, going_on.handles)

    def shared(self) -> Any:
        """What the sink keeps beside its records; None: nothing. To be asked right after a cut."""
        return self._sink.snapshot()

    def put_shared(self, shared: Any) -> None:
        """Go on from what another step had; before the first record."""
        if shared is not None:
            self._sink.restore(shared)
            self._first = self._sink.snapshot()


class SinkLogic:
    """Makes the steps of a sink."""

    def __init__(self, sink: Sink, job: str = "") -> None:
        self.sink = sink
        self.job = job

    def start(self, context: Any) -> Step:
        """Open it for this instance."""
        if isinstance(context.before, SinkStep):
            context.before.roll_back(context.epoch)
            context.before.close()
        sink = copy(self.sink)  # instances of one worker do not share its files
        writing = Writing(
            self.job, context.operator, context.index, context.parallelism, context.epoch
        )
        sink.begin(writing)
        return SinkStep(sink, context)


def with_job(graph: Graph, job: str) -> Graph:
    """The graph of one job: its sinks know which, and name by it what they write."""
    operators = tuple(
        replace(operator, logic=SinkLogic(operator.logic.sink, job))
        if isinstance(operator.logic, SinkLogic)
        else operator
        for operator in graph.operators
    )
    return replace(graph, operators=operators)
