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

from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import deepcopy
from typing import Any

from tailrace.routing.hashing import check_key
from tailrace.runtime.step import Step

Entry = tuple[Hashable, Any]
"""A key and all that a step keeps for it."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Changes:
    """Which keys have changed since when. Nothing is noted before the first `mark`."""

    __slots__ = ("_epochs", "noted")

    def __init__(self) -> None:
        self._epochs: dict[int, set[Hashable]] = {}
        self.noted: set[Hashable] | None = None
        """Where steps note the keys that they change; None: they need not."""

    def mark(self, epoch: int) -> None:
        """An epoch begins: what changes from now on has changed since its mark."""
        last = next(reversed(self._epochs), None)
        if last is not None and epoch <= last:
            raise ValueError(f"the mark of epoch {epoch} comes after that of epoch {last}")
        self.noted = self._epochs[epoch] = set()

    def since(self, epoch: int) -> set[Hashable]:
        """The keys that have changed since the mark of an epoch."""
        if epoch not in self._epochs:
            raise KeyError(f"no mark of epoch {epoch}; there are {list(self._epochs)}")
        return set().union(*(keys for one, keys in self._epochs.items() if one >= epoch))

    def forget(self, epoch: int) -> None:
        """Nobody will ask for what changed before the mark of this epoch."""
        self._epochs = {one: keys for one, keys in self._epochs.items() if one >= epoch}
        self.noted = next(reversed(self._epochs.values()), None)


class Stateful(Step):
    """A step with state. Nothing of this is called while it processes records.

    Subclasses keep their keyed state in `_open`, by key, or override what reads it.
    """

    _open: dict[Hashable, Any]

    def __init__(self) -> None:
        self._open = {}
        self.changes = Changes()

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

    def take_out(self, keys: Iterable[Hashable]) -> list[Entry]:
        """The state of these keys, which is here no more; nor will timers of theirs be due."""
        taken = list(self.entries(keys))
        for key, _ in taken:
            self._drop(key)
            self._note(key)
        return taken

    def put_in(self, entries: Iterable[Entry]) -> None:
        """State that was taken out elsewhere; none of these keys has any here.

        What became due on the way is due at once.
        """
        for key, value in entries:
            self._put_back(key, value)
            self._note(key)

    def shared(self) -> Any:
        """What is kept beside the keys, as plain data; None: nothing."""
        return None

    def put_shared(self, shared: Any) -> None:
        """Go on from the shared state of another step; several, when many become one.

        Of two watermarks the lower counts, for it is the safe one.
        """

    def _note(self, key: Hashable) -> None:
        if self.changes.noted is not None:
            self.changes.noted.add(key)

    def _look(self, key: Hashable) -> Any:
        """All that is kept for a key, as plain data; None: nothing."""
        return self._open.get(key)

    def _drop(self, key: Hashable) -> None:
        """Forget a key that has state."""
        del self._open[key]

    def _put_back(self, key: Hashable, value: Any) -> None:
        """Keep what `_look` gave elsewhere."""
        self._open[key] = value


def lower(one: int, other: int, unknown: int) -> int:
    """Of two watermarks the lower one, where `unknown` stands for none."""
    return min((time for time in (one, other) if time != unknown), default=unknown)


def copies(initial: Any) -> Callable[[Hashable], Any]:
    """A function that gives each new key a copy of its own of the initial state.

    It refuses keys that could not be routed, so that they are at any parallelism.
    """
    plain = type(initial) in _PLAIN

    def fresh(key: Hashable) -> Any:
        check_key(key)
        return initial if plain else deepcopy(initial)

    return fresh
