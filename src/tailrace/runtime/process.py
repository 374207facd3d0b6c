"""Operator objects of users: the full form, with state and timers per key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tailrace.graph.model import MAIN, KeyFunction, Record
from tailrace.runtime.expiry import EXPIRY
from tailrace.runtime.instance import Context
from tailrace.runtime.state import Stateful, thawed
from tailrace.runtime.step import Step
from tailrace.runtime.timers import KeyTimers, Waiting
from tailrace.runtime.ttl import TimeToLive

_MANY_RESULTS = 1024


class Operator:
    """The full form, for what the short ones cannot say: subclass it and override what you need.

    A copy of the object runs in each instance. On a keyed stream `self.state` is the state of the
    current key (None at first; assign to change it, None forgets the key). `self.emit(record)`
    hands a record on. `self.set_timer(seconds, tag)` calls `timer` later, for the same key;
    `self.cancel_timer(tag)` takes back those of this key with this tag. If `process` raises, all
    that is as if the record had not come, and `on_error` says what follows.

    Attributes of your own belong to the instance, not to a key. Records that come in may be held by
    others, too: do not change them, emit new ones. Nor emit a state that you change: emit a copy.

    >>> class EveryTenth(Operator):
    ...     def process(self, record):
    ...         self.state = (self.state or 0) + 1
    ...         if self.state % 10 == 0:
    ...             self.emit(record)
    """

    state: Any = None
    key: Hashable = None
    instance: Context
    """Which copy this is: `self.instance.index` of `self.instance.parallelism`."""
    emit: Callable[..., None]
    """`emit(record, stream="main")`."""
    set_timer: Callable[..., None]
    """`set_timer(delay_s, tag=None)`."""
    cancel_timer: Callable[..., None]
    """`cancel_timer(tag=None)`."""

    def open(self) -> None:
        """Called once in the worker, before the first record."""

    def process(self, record: Record) -> None:
        """Called for every record."""
        raise NotImplementedError

    def timer(self, tag: Any) -> None:
        """A timer is due; `self.key` and `self.state` are those of the record that set it.

        There is no record that `on_error` could treat: what this raises fails the job.
        """

    def finish_key(self) -> None:
        """The input has ended: the last call for each key that has state, or timers not yet due.

        Timers are not called any more, nor can new ones be set: emit here what waited for them.
        What this raises fails the job, as in `timer`.
        """

    def finish(self) -> None:
        """The input has ended, after all keys; there is no current key."""

    def close(self) -> None:
        """Called at the end, also after a failure."""

    def snapshot(self) -> Any:
        """What of your own attributes must outlive this copy, as picklable data; None: nothing."""
        return None

    def restore(self, snapshot: Any) -> None:
        """Go on from what `snapshot` gave in another copy; called for each if several become one.

        After `open`, and before the first record.
        """


def _refuse_state(operator: Operator, *value: Any) -> Any:
    raise RuntimeError(
        "self.state belongs to a key, and this stream has none: call .key_by(...) before"
        " .process(...), or keep it in an attribute of another name"
    )


def _without_state(operator: Operator) -> None:
    """Let reading and writing of `state` fail."""
    kind = type(operator)
    refusing = {"state": property(_refuse_state, _refuse_state), "__module__": kind.__module__}
    operator.__class__ = type(kind.__name__, (kind,), refusing)


class _OperatorStep(Stateful):
    def __init__(
        self,
        operator: Operator,
        keys: tuple[KeyFunction | None, ...],
        keyed: bool,
        context: Context,
        opened: bool = False,
    ) -> None:
        """The operator is this step's own; `opened`: it has served a step before."""
        super().__init__()
        self._operator = operator
        if keyed:
            self.key_of = dict(enumerate(keys))
        self._keyed = keyed
        self._context = context
        self._has_timers_of_others = False
        self.heirloom: Operator | None = None
        """The operator, open as it is, for whoever takes over."""
        self._results: dict[str, list[Record]] = {}
        self._emitted: list[list[Record]] = []  # where each result went, to take them back
        self._asked: list[tuple[int | None, Any]] = []  # timers to set, or (None) to cancel
        self._timers = KeyTimers(context, self.touch) if keyed else KeyTimers(context)
        self._attach(context)
        if opened:
            return
        if not keyed:
            _without_state(operator)
        operator.open()
        if keyed and operator.state is not None:
            raise RuntimeError("open() has set self.state, which belongs to a key: none is current")
        self._apply_timers(None)

    def _attach(self, context: Context) -> None:
        operator = self._operator
        operator.instance = context
        operator.emit = self._emit
        operator.set_timer = self._set_timer
        operator.cancel_timer = self._cancel_timer

    def _emit(self, record: Record, stream: str = MAIN) -> None:
        results = self._results.get(stream)
        if results is None:
            self._context.put(stream)  # raises for an unknown one here, where the record is known
            results = self._results[stream] = []
        results.append(record)
        self._emitted.append(results)

    def _set_timer(self, delay_s: float, tag: Any = None) -> None:
        try:
            delay_ns = round(delay_s * 1e9)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"set_timer() got a delay of {delay_s!r}; it must be a finite number of seconds"
            ) from None
        self._asked.append((self._context.clock_ns() + delay_ns, tag))

    def _cancel_timer(self, tag: Any = None) -> None:
        self._asked.append((None, tag))

    def _apply_timers(self, key: Hashable) -> None:
        if self._asked:
            for at_ns, tag in self._asked:
                if at_ns is None:
                    self._timers.cancel(key, tag)
                else:
                    self._timers.set(key, at_ns, tag)
            self._asked.clear()
            self._timers.arm()

    def _hand_on(self) -> None:
        if self._emitted:
            self._emitted.clear()
            results, self._results = self._results, {}
            for stream, records in results.items():
                if records:
                    self._context.put(stream)(records)

    def process(self, records: Iterator[Any], port: int) -> None:
        operator, emitted = self._operator, self._emitted
        states, touched = self._open, self._touched
        before = len(emitted)
        try:
            if not self._keyed:
                for record in records:
                    operator.process(record)
                    if self._asked:
                        self._apply_timers(None)
                    before = len(emitted)
            else:
                for record, key in records:
                    operator.key = key
                    operator.state = states.get(key)
                    if touched is not None and key not in touched:
                        self.touch(key)
                    operator.process(record)
                    if operator.state is not None:
                        states[key] = operator.state
                    else:
                        states.pop(key, None)
                    if self._asked:
                        self._apply_timers(key)
                    before = len(emitted)
        except BaseException:
            # Nothing of the record that raised is handed on.
            for results in reversed(emitted[before:]):
                results.pop()
            del emitted[before:]
            self._asked.clear()
            raise
        self._hand_on()

    def _with_key(self, key: Hashable, call: Callable[..., None], *arguments: Any) -> None:
        """Call something of the operator's for a key."""
        operator = self._operator
        operator.key = key
        if self._keyed:
            self.touch(key)
            operator.state = self._open.get(key)
        call(*arguments)
        if self._keyed:
            if operator.state is not None:
                self._open[key] = operator.state
            else:
                self._open.pop(key, None)
        self._apply_timers(key)

    def on_timer(self, at_ns: int, tag: Any) -> None:
        if tag is EXPIRY:
            super().on_timer(at_ns, tag)
            return
        for due_ns, key, user_tag in self._timers.due():
            self._context.emit_as(due_ns)
            self._with_key(key, self._operator.timer, user_tag)
            self._hand_on()

    def finish(self) -> None:
        operator = self._operator
        if self._keyed and type(operator).finish_key is not Operator.finish_key:
            for key in self.keys():
                self._with_key(key, operator.finish_key)
                if len(self._emitted) >= _MANY_RESULTS:
                    self._hand_on()
        operator.key = None
        if self._keyed:
            operator.state = None
        operator.finish()
        self._hand_on()

    def close(self) -> None:
        self._operator.close()

    def retire(self) -> None:
        """Keep the operator open for the next step, if it has nothing of its own to go back to."""
        if type(self._operator).snapshot is Operator.snapshot:
            self.heirloom = self._operator
        else:
            self.close()

    def discard(self) -> None:
        """Close what was kept."""
        if self.heirloom is not None:
            self.heirloom.close()

    # ---- state ----

    def keys(self) -> list[Hashable]:
        if not self._keyed:
            return []
        return list(dict.fromkeys([*self._open, *self._timers.keys()]))

    def has(self, key: Hashable) -> bool:
        return key in self._open or key in self._timers.waiting

    def layers(self) -> list[Any]:
        return [self._open, self._timers.waiting] if self._keyed else []

    def _look(self, key: Hashable) -> tuple[Any, Waiting] | None:
        state, waiting = self._open.get(key), self._timers.of(key)
        return None if state is None and not waiting else (state, waiting)

    def _drop(self, key: Hashable) -> None:
        self._open.pop(key, None)
        self._timers.drop(key)

    def forget(self, key: Hashable) -> None:
        """A key with timers is not old: they will touch it."""
        if not self._timers.of(key):
            super().forget(key)

    def _put_back(self, key: Hashable, value: tuple[Any, Waiting]) -> None:
        state, waiting = value
        if state is not None:
            self._open[key] = state
        self._timers.put(key, waiting)

    def _take_keys(self, other: _OperatorStep) -> None:
        """Undo what was changed since; the rest stays where it is."""
        for key, image in {**(other._touched or {}), **(other._before or {})}.items():
            other._drop(key)
            if image is not None:
                other._put_back(key, thawed(image))
        self._open = other._open
        if self._keyed:
            self._timers.take_over(other._timers)

    def shared(self) -> Any:
        waiting = () if self._keyed else self._timers.of(None)
        return self._operator.snapshot(), waiting

    def put_shared(self, shared: Any) -> None:
        """The operator merges snapshots itself; timers without a key come together."""
        snapshot, waiting = shared
        if snapshot is not None:
            self._operator.restore(snapshot)
        if not self._keyed:
            if not self._has_timers_of_others:
                self._timers.drop(None)  # what `open` set here it set there, too
            self._has_timers_of_others = True
            self._timers.put(None, waiting)


@dataclass(frozen=True)
class Process:
    """A user's operator object, with keyed state if the stream is keyed."""

    operator: Operator
    key: KeyFunction | None = None
    keyed: bool = False
    more_keys: tuple[KeyFunction | None, ...] = ()
    """Of the ports behind the first."""
    ttl: TimeToLive | None = None
    """How long keys are kept that no record touches; None: for ever."""

    def start(self, context: Context) -> Step:
        """Make the step, with a copy of the operator of its own."""
        keys = (self.key, *self.more_keys)
        before = context.before
        if isinstance(before, _OperatorStep) and before.heirloom is not None:
            step = _OperatorStep(before.heirloom, keys, self.keyed, context, opened=True)
        else:
            step = _OperatorStep(deepcopy(self.operator), keys, self.keyed, context)
        step.live_for(self.ttl, context)
        return step
