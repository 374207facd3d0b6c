"""Records that wait at the new owner of their key until its state has come.

Who owns keys that move asks the old owner for those that records come for, and gets them before all
others: the keys that are busy move first. A record waits as long as that takes, and nothing else
does; but what is said of time behind it on its link waits with it, for it must not become late.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tailrace.graph.model import Record
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.inlet import Inlet
from tailrace.runtime.instance import Instance

MOST_WAITING = 4096
"""With so many records that wait, an instance takes no more: its senders wait by their credit."""
_REMEMBERED = 1 << 16

_Waiting = tuple[int, int, int, list[Record], list[Hashable] | None]
"""Port, emission, origin, and records of one key; their keys, where records are not their own."""


class Keeper:
    """See above; of one instance, while keys are on their way to it."""

    def __init__(
        self,
        instance: Instance,
        giver_of: Callable[[Hashable], InstanceId],
        here: Callable[[Hashable], bool],
        givers: set[InstanceId],
    ) -> None:
        """`giver_of` says whose a key was, and `here` whether there is state of it.

        Of those that are no `givers` nothing is awaited.
        """
        self._instance = instance
        self._giver_of = giver_of
        self._here = here
        self._givers = givers
        self._known: dict[Hashable, InstanceId | None] = {}  # who has a key that is awaited
        self._nothing: set[Hashable] = set()  # keys that had no state
        self._waiting: dict[Hashable, list[_Waiting]] = {}
        self._records = 0
        self._held: list[Inlet] = []
        self.wanted: dict[InstanceId, list[Hashable]] = {}
        """Keys to be asked for; whoever asks empties it."""

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more should be taken."""
        return self._records >= MOST_WAITING

    def keeps_back(self, inlet: Inlet) -> bool:
        """Whether a marker has to wait; then its link is held until no record waits any more."""
        if not self._waiting:
            return False
        inlet.hold()
        self._held.append(inlet)
        return True

    def admitted(
        self,
        port: int,
        batch: list[Record],
        keys: list[Hashable] | None,
        emitted_ns: int,
        origin: int,
    ) -> tuple[list[Record], list[Hashable] | None]:
        """Those records of a batch that can be processed now, and their keys; others wait here.

        Without keys records are their own.
        """
        ready: list[Record] = []
        ready_keys: list[Hashable] | None = None if keys is None else []
        for record, key in zip(batch, batch if keys is None else keys, strict=True):
            try:
                awaited = key in self._waiting or self._is_awaited(key)
            except Exception:
                awaited = False  # its operator will find that out, too
            if awaited:
                self._records += 1
                waiting = self._waiting.setdefault(key, [])
                if not waiting or waiting[-1][:3] != (port, emitted_ns, origin):
                    waiting.append((port, emitted_ns, origin, [], None if keys is None else []))
                into, keys_into = waiting[-1][3:]
            else:
                into, keys_into = ready, ready_keys
            into.append(record)
            if keys_into is not None:
                keys_into.append(key)
        return ready, ready_keys

    def _is_awaited(self, key: Hashable) -> bool:
        giver = self._known.get(key, self)
        if giver is self:
            giver = self._giver_of(key)
            if giver not in self._givers:
                giver = None
            if len(self._known) < _REMEMBERED:
                self._known[key] = giver
        if giver is None or giver not in self._givers or key in self._nothing or self._here(key):
            return False
        assert isinstance(giver, InstanceId)
        self.wanted.setdefault(giver, []).append(key)
        return True

    def came(self, keys: list[Hashable], nothing: list[Hashable]) -> None:
        """The state of some keys is there, and others have none: process what waited for them."""
        self._nothing.update(nothing)
        waiting = self._waiting
        for key in [key for key in (*keys, *nothing) if key in waiting]:
            self._process(waiting.pop(key))
            if self._here(key):
                self._nothing.discard(key)
        self._release()

    def done(self, giver: InstanceId) -> None:
        """Nothing more comes of that one."""
        self._givers.discard(giver)
        for key in list(self._waiting):
            if self._giver_of(key) == giver:
                self._process(self._waiting.pop(key))
        self._release()

    def _process(self, waited: list[_Waiting]) -> None:
        instance = self._instance
        stamp = instance.stamp
        for port, emitted_ns, origin, records, keys in waited:
            self._records -= len(records)
            stamp.emitted_ns, stamp.origin, stamp.now_ns = emitted_ns, origin, instance.clock_ns()
            instance.entries[port](records, keys)

    def _release(self) -> None:
        if not self._waiting:
            held, self._held = self._held, []
            for inlet in held:
                inlet.release(self._instance.clock_ns())
