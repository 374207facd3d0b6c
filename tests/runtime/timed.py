"""What the tests of time share: records at given moments, and a step without a worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.graph.model import Record
from tailrace.runtime.guard import Counts
from tailrace.runtime.instance import Context
from tailrace.runtime.source import Reader, Source, Split
from tailrace.runtime.step import Put


class _TimedReader(Reader):
    def __init__(self, items: list[tuple[float, Record]], clock_ns: Callable[[], int]) -> None:
        self._items = items
        self._clock_ns = clock_ns

    def poll(self, most: int) -> list[Record] | None:
        if not self._items:
            return None
        due = [record for time_s, record in self._items if time_s * 1e9 <= self._clock_ns()][:most]
        self._items = self._items[len(due) :]
        return due

    def due_ns(self) -> int:
        return int(self._items[0][0] * 1e9) if self._items else 0


@dataclass
class Timed(Source):
    """Each record at its moment of the worker's clock."""

    items: Sequence[tuple[float, Record]]

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        shared = sorted(self.items, key=lambda item: item[0])[split.index :: split.of]
        return _TimedReader(shared, clock_ns)


@dataclass
class Bench:
    """A context whose every effect is noted."""

    out: dict[str, list[Record]] = field(default_factory=dict)
    log: list[tuple[str, Any]] = field(default_factory=list)
    emitted_ns: int = 0
    counts: Counts = field(default_factory=Counts)
    wake: Callable[[], None] = lambda: None

    def _put(self, output: str) -> Put:
        def put(records: list[Record]) -> None:
            self.out.setdefault(output, []).extend(records)
            self.log.append((output, (self.emitted_ns, list(records))))

        return put

    def _emit_as(self, emitted_ns: int, origin: int = 0) -> None:
        self.emitted_ns = emitted_ns

    def context(self) -> Context:
        return Context(
            operator="tested",
            index=0,
            parallelism=1,
            clock_ns=lambda: 0,
            put=self._put,
            set_timer=lambda at_ns, tag: self.log.append(("timer", at_ns)),
            advance=lambda watermark: self.log.append(("watermark", watermark)),
            wake=lambda: self.wake(),
            counts=self.counts,
            fail=lambda record, error: self.log.append(("fail", (record, error))),
            emitted_ns=lambda: self.emitted_ns,
            emit_as=self._emit_as,
            wall_ns=lambda: 0,
        )
