"""Async map: many records wait for I/O at the same time, and the worker's loop for none.

The coroutines run in an asyncio loop in a thread of its own; only the hand-over of records and
outcomes is shared. The records in flight are bounded. A record that finds no place waits here, and
as long as one does, the instance takes no more.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, Record
from tailrace.runtime.instance import Context
from tailrace.runtime.markers import IDLE
from tailrace.runtime.state import Stateful
from tailrace.runtime.step import Step

_CLOSE_S = 5.0
"""How long coroutines have to go when they are cancelled; after that they are left behind."""

_When = tuple[int, int]
"""When a record's source emitted it, and its origin."""
_Outcome = tuple[int, Any, BaseException | None]
"""A record's number, and its result or what it raised."""


class _Loop:
    """The side thread. `start` and `close` are called by the worker, all else runs inside."""

    def __init__(self, logic: AsyncMap, name: str, done: Callable[[_Outcome], None]) -> None:
        self._function = logic.function
        self._timeout_s = logic.timeout_s
        self._done = done
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def start(self, batch: list[tuple[int, Record]]) -> None:
        """Start a coroutine for each of the numbered records."""
        self._loop.call_soon_threadsafe(self._start, batch)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_S)

    def _main(self) -> None:
        asyncio.run(self._serve())  # cancels the remaining tasks when `_serve` returns

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def _start(self, batch: list[tuple[int, Record]]) -> None:
        for number, record in batch:
            task = self._loop.create_task(self._run(number, record))
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._tasks.discard)

    async def _run(self, number: int, record: Record) -> None:
        deadline = asyncio.timeout(self._timeout_s)
        try:
            async with deadline:
                value = await self._function(record)
        except BaseException as raised:  # whatever it is, the record must not stay outstanding
            late = deadline.expired()
            error = TimeoutError(f"no result within {self._timeout_s} s") if late else raised
            self._done((number, None, error))
        else:
            self._done((number, value, None))


class _AsyncStep(Stateful):
    """Numbers the records; those from `first` to `next` that are in `records` are outstanding."""

    holds_time = True

    def __init__(self, context: Context, logic: AsyncMap) -> None:
        super().__init__()
        self._context = context
        self._logic = logic
        self._put = context.put(MAIN)
        self._loop: _Loop | None = None
        self._records: dict[int, tuple[Record, _When]] = {}
        self._first = 0
        self._next = 0
        self._unstarted: deque[int] = deque()
        self._in_flight = 0
        self._ended: dict[int, _Outcome] = {}  # those that wait for their turn
        self._watermarks: deque[tuple[int, int]] = deque()  # each behind the records before it
        self._outcomes: deque[_Outcome] = deque()
        self._signalled = False

    @property
    def busy(self) -> bool:
        return bool(self._unstarted)

    def process(self, records: Iterator[Record], port: int) -> None:
        when = self._context.emitted_ns(), self._context.origin()
        for record in records:
            self._take(record, when)
        self._go_on()

    def _take(self, record: Record, when: _When) -> None:
        self._records[self._next] = record, when
        self._unstarted.append(self._next)
        self._next += 1

    def _go_on(self) -> None:
        batch = []
        while self._unstarted and self._in_flight < self._logic.concurrency:
            number = self._unstarted.popleft()
            batch.append((number, self._records[number][0]))
            self._in_flight += 1
        if batch:
            if self._loop is None:
                name = f"{self._context.operator} {self._context.index}"
                self._loop = _Loop(self._logic, name, self._done)
            self._loop.start(batch)
        self.outstanding = len(self._records)

    def _done(self, outcome: _Outcome) -> None:
        """In the side thread: hand an outcome over, and wake the worker if nobody has."""
        self._outcomes.append(outcome)
        if not self._signalled:  # cleared by `on_wake` before it looks at the outcomes
            self._signalled = True
            self._context.wake()

    def on_wake(self) -> None:
        self._signalled = False  # before looking: `_done` appends before it reads this
        ended = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        if self._logic.ordered:
            self._ended.update((outcome[0], outcome) for outcome in ended)
            ended = []
            for number in range(self._first, self._next):
                if number not in self._ended:
                    break
                ended.append(self._ended.pop(number))
        results = _Results(self._context, self._put)
        for number, value, error in ended:
            record, when = self._records.pop(number)
            self._in_flight -= 1
            if error is None:
                results.add(value, when)
            else:
                results.hand_on()
                self._context.emit_as(*when)
                self._context.fail(record, _as_exception(error))
            if number == self._first:
                self._pass_first(results)
        results.hand_on()
        self._go_on()

    def _pass_first(self, results: _Results) -> None:
        while self._first < self._next and self._first not in self._records:
            self._first += 1
        while self._watermarks and self._watermarks[0][0] <= self._first:
            results.hand_on()
            self._context.advance(self._watermarks.popleft()[1])

    def advance(self, watermark: int) -> None:
        if not self._records:
            self._context.advance(watermark)
            return
        waiting = self._watermarks
        while waiting and waiting[-1][0] == self._next:
            if watermark == IDLE != waiting[-1][1]:
                break  # idleness comes after the watermark, not in its place
            waiting.pop()
        waiting.append((self._next, watermark))

    def shared(self) -> Any:
        """Records without an outcome that was handed on, with the watermarks between them.

        Their coroutines are run anew where this is put in; here they end when the step is closed.
        """
        # There are no more of them than may be in flight, 64 if nobody asks for more, and what came
        # with the last of these: to pickle them at once takes about 0.1 ms.
        ahead_ns = self._context.wall_ns() - self._context.clock_ns()
        records = [
            (number, record, (emitted_ns + ahead_ns, origin))
            for number, (record, (emitted_ns, origin)) in sorted(self._records.items())
        ]
        return records, list(self._watermarks)

    def put_shared(self, shared: Any) -> None:
        """Its records come behind those that are here, and watermarks behind their records."""
        records, watermarks = shared
        ahead_ns = self._context.wall_ns() - self._context.clock_ns()
        waiting = deque(watermarks)
        for number, record, (emitted_ns, origin) in records:
            while waiting and waiting[0][0] <= number:
                self.advance(waiting.popleft()[1])
            self._take(record, (emitted_ns - ahead_ns, origin))
        for _, watermark in waiting:
            self.advance(watermark)
        self._go_on()

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None


class _Results:
    """Gathers results for as long as they were emitted at the same time."""

    def __init__(self, context: Context, put: Callable[[list[Record]], None]) -> None:
        self._context = context
        self._put = put
        self._records: list[Record] = []
        self._when: _When = (0, 0)

    def add(self, record: Record, when: _When) -> None:
        if when != self._when:
            self.hand_on()
        self._when = when
        self._records.append(record)

    def hand_on(self) -> None:
        if self._records:
            records, self._records = self._records, []
            self._context.emit_as(*self._when)
            self._put(records)


def _as_exception(error: BaseException) -> Exception:
    """Only the worker stops the worker: a coroutine that was cancelled or exits has failed."""
    return error if isinstance(error, Exception) else RuntimeError(f"the coroutine: {error!r}")


@dataclass(frozen=True)
class AsyncMap:
    """One result for each record, from a coroutine."""

    function: Callable[[Record], Awaitable[Record]]
    concurrency: int
    ordered: bool = True
    timeout_s: float | None = None

    def start(self, context: Context) -> Step:
        """Make the step."""
        return _AsyncStep(context, self)
