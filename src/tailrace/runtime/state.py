"""The state of steps, to be looked at, taken out and put in.

Keyed state belongs to an operator and a key, never to an instance: it can be taken out of one step
and put into another of the same operator, in another process or on another host. So values are
plain picklable data, and times in them are event times or wall-clock nanoseconds, never those of a
worker's own clock. They come as (key, value) pairs, one by one, so that whoever encodes them can do
so in slices.

What a step has beside its keys is its *shared* state: how far time is, attributes of the user's
operator, records that wait for a coroutine.
"""

from __future__ import annotations

import pickle
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tailrace.runtime.chains import NO_CHAIN, Chain
from tailrace.runtime.expiry import EXPIRY, Expiry
from tailrace.runtime.step import OperatorFailed, Step
from tailrace.runtime.ttl import TimeToLive

Entry = tuple[Hashable, Any]
"""A key and all that a step keeps for it."""

Entries = Iterable[Entry] | MutableMapping[Hashable, Any]
"""Many of them; a mapping belongs to who is given it."""

Images = MutableMapping[Hashable, Any]
"""What keys were, by key."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


class _Forgotten:
    """Stands for the state of a key that has none any more. There is one only."""

    def __reduce__(self) -> str:
        return "FORGOTTEN"

    def __repr__(self) -> str:
        return "FORGOTTEN"


FORGOTTEN = _Forgotten()
"""The value of a key that was forgotten, among those that have changed."""


class Encoded:
    """A value as it was, in bytes: the value itself may have changed since."""

    __slots__ = ("pickled",)

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled

    def __reduce__(self) -> tuple[Any, ...]:
        # Whoever unpickles it gets the value, and has to look for nothing.
        return pickle.loads, (self.pickled,)

    @property
    def value(self) -> Any:
        """A new one that is equal."""
        return pickle.loads(self.pickled)


def frozen(value: Any) -> Any:
    """The value as it is now: itself if nobody can change it, else encoded."""
    kind = type(value)
    if kind in _PLAIN or (kind is tuple and all(type(part) in _PLAIN for part in value)):
        return value
    return Encoded(pickle.dumps(value, 5))


def thawed(value: Any) -> Any:
    """What `frozen` was given."""
    return value.value if type(value) is Encoded else value


AT_ONCE = 64
"""Keys that are settled, when a cut is committed, before anything else is looked at."""


@dataclass(frozen=True)
class GoingOn:
    """What a step goes on from: how its operator stood at the end of an epoch."""

    epoch: int
    entries: Entries = ()
    """The keyed state that is this step's."""
    shared: Sequence[Any] = ()
    """What steps have shared whose place it takes: one, or another number after a change."""
    beside: Sequence[Any] = ()
    """What all have shared, if they were of another number: an instance that is new has none."""
    finished: bool = False
    """All input of the operator, or of this instance of it, had ended by then."""
    handles: Sequence[Any] = ()
    """What sinks have prepared for the epoch, to be committed (again)."""
    chain: Chain = NO_CHAIN
    """What is safe already, and its next cut may build on."""


class Stateful(Step):
    """A step with state. But for `touch`, nothing of this is called while it processes records.

    Subclasses keep their keyed state in `_open`, by key, or override what reads it.

    Once it is watched, it is cut every now and then: the state at that moment is encoded bit by
    bit while records go on, and made safe; until then the step knows the way back to the cut before
    it. So before a key's state changes it is touched: the first time since a cut its state is kept
    as it was. A cut is committed before the next one is made.
    """

    _open: MutableMapping[Hashable, Any]

    def __init__(self) -> None:
        self._open = {}
        self._touched: MutableMapping[Hashable, Any] | None = None
        """The keys touched since the last cut, as they were then; None: nobody watches."""
        self._keeps_images = False
        """Whether it is cut, so that what touched keys were has to be known."""
        self.expiry: Expiry | None = None
        """What has old keys forgotten, if they live for a time only."""
        self._before: MutableMapping[Hashable, Any] | None = None
        """The same of the time before that cut, as long as it is not committed."""
        self._shared = self._shared_before = pickle.dumps(None)
        """What was shared at the last committed cut, and at the one after it."""
        self.finished = False
        """Whether all of its input has ended, and nothing of its state is needed any more."""
        self.finished_at_commit = self._finished_before = False

    def keys(self) -> list[Hashable]:
        """The keys with state, now."""
        return list(self._open)

    def entries(self, keys: Iterable[Hashable] | None = None) -> Iterator[Entry]:
        """The state of these keys, or of all there are now, each as it is when it is asked for.

        A key without state is left out: among those that have changed, it has been forgotten.
        """
        for key in self.keys() if keys is None else keys:
            if (value := self._look(key)) is not None:
                yield key, value

    def has(self, key: Hashable) -> bool:
        """Whether anything is kept for a key."""
        return key in self._open

    @property
    def held(self) -> int:
        """About how many keys have state."""
        return sum(map(len, self.layers()))

    def layers(self) -> list[Any]:
        """Dictionaries that have all keys with state, when no cut is being settled."""
        return [self._open]

    def take_out(self, keys: Iterable[Hashable]) -> list[Entry]:
        """The state of these keys, which is here no more; nor will timers of theirs be due."""
        taken = list(self.entries(keys))
        for key, _ in taken:
            self.touch(key)
            self._drop(key)
        return taken

    def put_in(self, entries: Iterable[Entry]) -> None:
        """State that was taken out elsewhere; none of these keys has any here.

        What became due on the way is due at once.
        """
        for key, value in entries:
            self.touch(key)
            self._put_back(key, value)

    def shared(self) -> Any:
        """What is kept beside the keys, as plain data; None: nothing."""
        return None

    def put_shared(self, shared: Any) -> None:
        """Go on from the shared state of another step; several, when many become one.

        Of two watermarks the lower counts, for it is the safe one.
        """

    def merge_shared(self, shared: Any) -> None:
        """While it runs: what another step has beside its keys, whose place it takes, too."""
        self.put_shared(shared)

    def hear_of(self, shared: Any) -> None:
        """What another step has beside its keys, some of which come here. It keeps its place."""

    # ---- cuts ----

    def watch(self) -> None:
        """From now on know what changes. What is here already counts as safe."""
        self._keeps_images = True
        self._note_touches()
        self._shared = self._shared_before = pickle.dumps(self.shared(), 5)

    def _note_touches(self) -> None:
        if self._touched is None:
            self._touched = {}

    def live_for(self, ttl: TimeToLive | None, context: Any) -> None:
        """Have keys forgotten that nobody has touched for so long; None: never."""
        if ttl is not None:
            checkpoints = context.epoch is not None
            self._note_touches()
            self.expiry = Expiry(self, ttl, context, checkpoints=checkpoints)

    def advance(self, watermark: int) -> None:
        """Event time has moved."""
        if self.expiry is not None:
            self.expiry.advance(watermark)

    def on_timer(self, at_ns: int, tag: Any) -> None:
        """It is time to look for old keys."""
        if tag is EXPIRY and self.expiry is not None:
            self.expiry.work()

    def is_touched(self, key: Hashable) -> bool:
        """Whether a key was touched since the last cut."""
        return self._touched is not None and key in self._touched

    def forget(self, key: Hashable) -> None:
        """Keep nothing for a key any more, if anything is kept."""
        if self._look(key) is not None:
            self.touch(key)
            self._drop(key)

    def lay_down(self) -> tuple[Iterable[Hashable], Iterator[None]]:
        """Begin anew to note what is touched, where nobody makes cuts; what was touched so far."""
        before, _ = self._put_down()
        return before, self._settle()

    def _put_down(self) -> tuple[Images, Images]:
        """Begin anew to note what is touched; what was before, and what is from now on."""
        before, touched = self._touched or {}, dict[Hashable, Any]()
        self._before, self._touched = before, touched
        return before, touched

    def _settle(self) -> Iterator[None]:
        """What is to be done when a cut is committed, in pieces."""
        before, self._before = self._before or {}, None
        return iter(()) if self.expiry is not None else emptied(before)  # it keeps them

    def touch(self, key: Hashable) -> None:
        """The state of a key is about to change."""
        if self._touched is not None and key not in self._touched:
            self._touched[key] = frozen(self._image(key)) if self._keeps_images else None

    def cut(self, *, full: bool = False) -> Iterator[Entry]:
        """The state as it is now: of the keys touched since the cut before, or (full) of all.

        What is asked of the iterator later is still of now, however the state has changed since. It
        must be at its end before the cut is committed.
        """
        if not self._keeps_images or self._before is not None:
            raise RuntimeError("a cut of what is not watched, or before the last one is committed")
        before, touched = self._put_down()
        if self.expiry is not None:
            self.expiry.seen(before)
        self._shared_before = pickle.dumps(self.shared(), 5)
        self._finished_before = self.finished
        return self._since(before if not full else self._all(), touched)

    def again(self, keys: Iterable[Hashable]) -> Iterator[Entry]:
        """The state at the last cut of those of the keys that had not changed before it.

        Like a cut it is of then whenever it is asked, and must be at its end before the commit.
        """
        before, touched = self._before, self._touched
        assert before is not None and touched is not None, "there was no cut"
        for key in keys:
            if key not in before:
                value = touched[key] if key in touched else self._image(key)
                if value is not None:
                    yield key, value

    def keys_at_cut(self) -> Iterator[Hashable]:
        """All keys with state at the last cut; to be asked right after it, to its end as above."""
        return iter(self._all())

    def _all(self) -> Iterable[Hashable]:
        """All keys with state at a cut, for as long as it is encoded."""
        return self.keys()

    def _since(self, keys: Iterable[Hashable], touched: Images) -> Iterator[tuple[Hashable, Any]]:
        for key in keys:
            value = touched[key] if key in touched else self._image(key)
            yield key, FORGOTTEN if value is None else value

    @property
    def shared_at_cut(self) -> bytes:
        """What was shared at the last cut, pickled."""
        return self._shared_before

    def committed(self) -> Iterator[None]:
        """The last cut is safe. The iterator is what is left to do, in pieces; to its end."""
        self._shared = self._shared_before
        self.finished_at_commit = self._finished_before
        return self._settle()

    def take_over(self, other: Stateful) -> None:
        """Go on, as a new step, from where another of this operator stood at its committed cut.

        The other is of no use afterwards.
        """
        self._shared = self._shared_before = other._shared
        self.was_finished(other.finished_at_commit)
        if not self.finished:
            if (shared := pickle.loads(other._shared)) is not None:
                self.put_shared(shared)
            self._take_keys(other)
            self._all_are_new()

    def _take_keys(self, other: Any) -> None:
        """The keyed state of another step of this kind, as it was at its committed cut."""
        self.restore(other._at_commit())

    def _at_commit(self) -> Iterator[Entry]:
        images = {**(self._touched or {}), **(self._before or {})}  # the older image counts
        for key in self.keys():
            if key not in images and (value := self._image(key)) is not None:
                yield key, value
        for key, image in images.items():
            if image is not None:
                yield key, thawed(image)

    def go_on(self, going_on: GoingOn) -> None:
        """Take in what was kept."""
        self.was_finished(going_on.finished)
        if not self.finished:
            for shared in going_on.shared:
                if shared is not None:
                    self.put_shared(shared)
            if not going_on.shared:
                self.be_beside(going_on.beside)
            for shared in going_on.beside:
                if shared is not None:
                    self.hear_of(shared)
            self.restore(going_on.entries)
            self._all_are_new()
        self._shared = self._shared_before = pickle.dumps(self.shared(), 5)

    def be_beside(self, shared: Sequence[Any]) -> None:
        """Be a new instance beside others, whose keyed state is dealt anew."""

    def _all_are_new(self) -> None:
        """Keys that were restored live from now on."""
        if self.expiry is not None:
            self.expiry.seen(self.keys())

    def was_finished(self, finished: bool) -> None:
        """Whether it was at the cut that is gone back to."""
        self.finished = self.finished_at_commit = self._finished_before = finished

    def restore(self, entries: Entries) -> None:
        """State from a committed cut: it need not be kept again."""
        for key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self._put_back(key, value)

    # ---- what subclasses say of a key ----

    def _image(self, key: Hashable) -> Any:
        """What is kept for a key that nobody has touched since the last cut; None: nothing."""
        return self._look(key)

    def _look(self, key: Hashable) -> Any:
        """All that is kept for a key, as plain data; None: nothing."""
        return self._open.get(key)

    def _drop(self, key: Hashable) -> None:
        """Forget a key that has state."""
        del self._open[key]

    def _put_back(self, key: Hashable, value: Any) -> None:
        """Keep what `_look` gave elsewhere."""
        self._open[key] = value


def refuse_unpicklable(operator: str, entries: Iterable[Entry], cannot: str, moment: str) -> None:
    """Raise OperatorFailed because of the first state that cannot be pickled, if there is one."""
    for key, value in entries:
        try:
            pickle.dumps((key, value), 5)
        except Exception as error:
            told = TypeError(
                f"the state of key {key!r} cannot {cannot}, because it cannot be pickled: {error}"
            )
            raise OperatorFailed(operator, None, told, moment) from error


def emptied(images: Images) -> Iterator[None]:
    """Let go of them in pieces: a million at once take longer than any round should."""
    while images:
        for _ in range(min(len(images), AT_ONCE)):
            images.popitem()
        yield


def lower(one: int, other: int, unknown: int) -> int:
    """Of two watermarks the lower one, where `unknown` stands for none."""
    return min((time for time in (one, other) if time != unknown), default=unknown)


def copies(initial: Any) -> Callable[[Hashable], Any]:
    """A function that gives each new key a copy of its own of the initial state."""
    if type(initial) in _PLAIN:
        return lambda key: initial
    return lambda key: deepcopy(initial)
