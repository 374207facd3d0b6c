"""The running copy of an operator, and the guard around it.

A step takes records from an iterator, one after the other, and hands results on in lists. The
iterator is what makes errors exact at no cost: when a record raises, the guard knows from it which
one that was, and goes on with the rest by calling the step again with the same iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any, TypeVar

from tailrace.graph.model import OnError, Record
from tailrace.runtime.histogram import Histogram

T = TypeVar("T")
Put = Callable[[list[Record]], None]
"""Hands a list of records on. The list belongs to the receiver afterwards."""

Fail = Callable[[Record, Exception], None]
"""Does with a record that raised what the operator's policy says."""


class Step:
    """A running copy of an operator. Subclasses override what they need.

    Everything is called from one thread. `process` must leave results of records before one that
    raised where the next call finds them, so that nothing is lost.
    """

    holds_time: bool = False
    """Watermarks stop at this step: it declares those behind it itself, by `context.advance`."""
    outstanding: int = 0
    """Records taken and not yet done with; the instance ends only when there are none."""
    busy: bool = False
    """Whether it has so many outstanding that the instance should take no more for now."""

    def process(self, records: Iterator[Record], port: int) -> None:
        """Take all records from the iterator."""
        raise NotImplementedError

    def advance(self, watermark: float) -> None:
        """No record with an event time before `watermark` comes any more, but for late ones."""

    def on_timer(self, time: float, tag: Any) -> None:
        """A timer that this step has set is due."""

    def on_wake(self) -> None:
        """Somebody called `wake` of this step's context."""

    def finish(self) -> None:
        """All inputs have ended: hand on what is left."""

    def close(self) -> None:
        """Let go of everything, after `finish` or after a failure."""


class OperatorFailed(BaseException):
    """User code raised. Not an `Exception`, so that only the worker itself catches it.

    `moment` says when, if that was not while processing a record: "open", "timer" and so on.
    """

    def __init__(
        self, operator: str, record: Record, error: BaseException, moment: str | None = None
    ) -> None:
        self.operator = operator
        self.record = "" if moment else _shorten(record)
        self.error = error
        self.moment = moment
        where = f"in {moment}" if moment else f"on {self.record}"
        super().__init__(f"operator {operator!r} failed {where}: {_shorten(error, 10_000)}")


def _shorten(thing: object, most: int = 300) -> str:
    try:
        text = repr(thing)
    except Exception as error:
        text = f"<{type(thing).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def call(operator: str, moment: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call what is not about one record; if it raises, that names the operator and the moment."""
    try:
        return function(*arguments)
    except Exception as error:
        raise OperatorFailed(operator, None, error, moment) from error


class Counts:
    """What one operator copy has done; the numbers of the audit."""

    __slots__ = ("dead", "execute", "execute_ns", "late", "records_in", "skipped")

    def __init__(self) -> None:
        self.records_in = 0
        self.skipped = 0
        self.dead = 0
        self.late = 0
        self.execute_ns = 0
        self.execute = Histogram()  # per record, each batch with its mean


class Timing:
    """Time spent in the steps called by the one that runs now; makes execute times exclusive."""

    __slots__ = ("inner_ns",)

    def __init__(self) -> None:
        self.inner_ns = 0


def failure(name: str, on_error: OnError, counts: Counts, dead_letters: Put | None) -> Fail:
    """The policy of an operator as a function."""

    def fail(record: Record, error: Exception) -> None:
        if on_error is OnError.FAIL:
            raise OperatorFailed(name, record, error) from error
        if on_error is OnError.DEAD_LETTER and dead_letters is not None:
            counts.dead += 1
            dead_letters([(record, _shorten(error, 10_000))])
        else:
            counts.skipped += 1

    return fail


def guard(
    name: str,
    step: Step,
    port: int,
    on_error: OnError,
    counts: Counts,
    dead_letters: Put | None,
    timing: Timing,
    clock_ns: Callable[[], int],
) -> Put:
    """The step as something to hand lists to: counted, timed, and with its errors handled."""
    process = step.process
    fail = failure(name, on_error, counts, dead_letters)

    def put(records: list[Record]) -> None:
        count = len(records)
        counts.records_in += count
        outer_ns, timing.inner_ns = timing.inner_ns, 0
        started_ns = clock_ns()
        iterator = iter(records)
        blamed = 0  # records up to the last one that raised
        while True:
            try:
                process(iterator, port)
                # `map` and its like take a StopIteration out of the user's function for the end of
                # the input. Only an iterator that has not said "end" itself sees its list grow.
                records.append(None)
                unseen = iterator.__length_hint__()  # type: ignore[attr-defined]
                records.pop()
                if not unseen:
                    break
                raise RuntimeError(
                    "it left records unprocessed: its code raised StopIteration (a next() without a"
                    " default, perhaps), or returned early"
                )
            except Exception as error:
                done = len(records) - length_hint(iterator)
                if done == blamed:  # no record's fault: going on would go round in circles
                    raise OperatorFailed(name, None, error, "process") from error
                fail(records[done - 1], error)
                blamed = done
        elapsed_ns = clock_ns() - started_ns
        own_ns = elapsed_ns - timing.inner_ns
        counts.execute_ns += own_ns
        if count:
            counts.execute.record(own_ns // count, count)
        timing.inner_ns = outer_ns + elapsed_ns

    return put
