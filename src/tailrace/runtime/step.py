"""The running copy of an operator, and what happens when it fails.

A step takes records from an iterator, one after the other, and hands results on in lists. The
iterator is what makes errors exact at no cost: when a record raises, the guard around the step
(guard.pyx) knows from it which one that was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import copy
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tailrace.graph.model import KeyFunction, OnError, Record

if TYPE_CHECKING:
    from tailrace.runtime.guard import Counts

T = TypeVar("T")
Put = Callable[[list[Record]], None]
"""Hands a list of records on. The list belongs to the receiver afterwards."""


class Entrance(Protocol):
    """Where records come to a step; those that were sent by a key function come with their keys."""

    def __call__(self, records: list[Record], keys: list[Hashable] | None = None, /) -> None:
        """Take them; both lists belong to the step afterwards."""


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
    key_of: Mapping[int, KeyFunction | None] = MappingProxyType({})
    """Ports at which it takes pairs of a record and its key, and what gives the keys.

    None: the record is its own key. Nobody calls a function again if it was called on the way.
    """

    @property
    def busy(self) -> bool:
        """Whether it has so many outstanding that the instance should take no more for now."""
        return False

    def process(self, records: Iterator[Any], port: int) -> None:
        """Take all from the iterator: records, or pairs of a record and its key (see `key_of`)."""
        raise NotImplementedError

    def advance(self, watermark: int) -> None:
        """No record with an event time before `watermark` comes any more, but for late ones."""

    def on_timer(self, at_ns: int, tag: Any) -> None:
        """A timer that this step has set for that time of the worker's clock is due."""

    def on_wake(self) -> None:
        """Somebody called `wake` of this step's context."""

    def finish(self) -> None:
        """All inputs have ended: hand on what is left."""

    def close(self) -> None:
        """Let go of everything, after `finish` or after a failure."""

    def go_on(self, going_on: Any) -> None:
        """Be where steps of this operator were at the end of an epoch; before anything else."""

    def retire(self) -> None:
        """The same when another step of the operator takes over here, and may use what is kept."""
        self.close()

    def discard(self) -> None:
        """Nobody has taken over: let go of what was kept when it retired."""


def in_batches(
    records: Iterator[Record], take: Callable[[list[Record]], None], most: int | None = None
) -> None:
    """Give records to `take`, many at a time; if it fails, those of that batch one by one.

    So the iterator stops at the very record that is at fault, as the guard around a step wants it:
    the others have done nothing wrong. What `take` does with a batch before it fails must not
    count.
    """
    ahead = copy(records)
    try:
        while batch := list(islice(ahead, most)):
            take(batch)
            deque(islice(records, len(batch)), maxlen=0)
        deque(records, maxlen=0)  # it has to be asked beyond its last record
    except OperatorFailed:
        raise
    except Exception:
        for record in records:
            take([record])


class OperatorFailed(Exception):  # noqa: N818 (users know it by this name)
    """User code raised, and the operator's `on_error` is to fail. Ends the job.

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
    except OperatorFailed:
        raise  # of an operator behind this one, to which it has handed something on
    except Exception as error:
        raise OperatorFailed(operator, None, error, moment) from error


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


def letter_failure(put: Put) -> Fail:
    """What becomes of a dead letter that cannot travel either: it goes as text, where it was to."""

    def fail(letter: Record, error: Exception) -> None:
        record, why = letter
        put([(_shorten(record, 10_000), why)])

    return fail
