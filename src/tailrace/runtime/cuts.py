"""Epochs inside a worker: where the stream is cut, and what the cut is encoded to.

The marker of an epoch comes on every link, and cuts instances where it has come on all of theirs
(`alignment`). With it the deployment may change, too: see `moving`.

A cut itself takes no time to speak of: what it holds is encoded in slices between rounds.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

from tailrace.runtime.alignment import Alignment, Group
from tailrace.runtime.chains import NO_CHAIN, Chain, Kind, Sweep
from tailrace.runtime.instance import Instance
from tailrace.runtime.markers import Checkpoint
from tailrace.runtime.sink import SinkStep
from tailrace.runtime.state import Stateful, refuse_unpicklable
from tailrace.runtime.step import call

if TYPE_CHECKING:
    from tailrace.runtime.moving import Moving

_SLICE_NS = 50_000
"""About how long encoding may take before somebody looks at the clock."""
_MOST_ENTRIES = 1024
_NO_CHAINS: Mapping[tuple[str, int], Chain] = {}


@dataclass
class Piece:
    """What one instance's copy of an operator has kept at a cut."""

    operator: str
    index: int
    kind: Kind
    """Which keys it has."""
    keyed: bool = True
    """Whether it says anything about keys."""
    blocks: list[bytes] = field(default_factory=list)
    """Pickled lists of (key, value),"""
    crcs: list[int] = field(default_factory=list)
    """and the crc of each."""
    entries: int = 0
    shared: bytes | None = None
    """Pickled."""
    finished: bool = False

    def add(self, block: list[tuple[Hashable, Any]]) -> None:
        """Encode some more entries."""
        pickled = _encoded(self.operator, block)
        self.blocks.append(pickled)
        self.crcs.append(crc32(pickled))
        self.entries += len(block)


@dataclass
class Part:
    """What a worker adds to an epoch."""

    epoch: int
    pieces: list[Piece]
    handles: list[tuple[str, bytes]]
    """What sinks have prepared: operator, and pickled handle."""
    ended: bool
    """Whether all instances here had ended."""
    syncs: list[Callable[[], None]] = field(default_factory=list)
    """What sinks have to do before the epoch may count, beside the loop."""


class Cuts:
    """The epochs of one core."""

    def __init__(
        self,
        epoch: int,
        instances: Iterable[Instance],
        chains: Mapping[tuple[str, int], Chain],
        before_cut: Callable[[Instance], None] = lambda instance: None,
        on_last: Callable[[], None] = lambda: None,
    ) -> None:
        """What was written of steps before `epoch`, and can be built on, is in `chains`.

        `before_cut` may still have an instance put something out that is of the epoch. `on_last` is
        called when the job's last epoch begins.
        """
        self._before_cut = before_cut
        self._on_last = on_last
        self._groups: dict[str, list[Instance]] = {}
        self._chains: dict[tuple[str, int], Chain] = {}
        self._over: set[tuple[str, int]] = set()  # finished, and said so
        self._sweeps: dict[tuple[str, int], Sweep] = {}
        self._since: dict[tuple[str, int], int] = {}  # in which epoch a step came, if it is known
        self.epoch = epoch
        for instance in instances:
            self.add(instance, chains)
        self._leaving: list[tuple[str, SinkStep]] = []  # until what they have prepared counts
        self.moving: Moving | None = None
        """The change that comes with the next epoch, if one does."""
        self._safe = self._chains.copy()
        self.safe = epoch
        """The newest that is committed; `epoch` is the newest that has begun here."""
        self._alignment: Alignment | None = None
        self._encoding: deque[tuple[Piece | Sweep, Iterator[Any]]] = deque()
        self._settling: deque[Iterator[None]] = deque()
        self._part: Part | None = None
        self._given = False
        self.unsettled = False
        """Whether something is left to do, or to say, for the epoch that counts."""
        self._entries = 16

    @property
    def chains(self) -> dict[tuple[str, int], Chain]:
        """What is safe of each step, for others to build on."""
        return self._safe

    def was_here(self, where: tuple[str, int]) -> bool:
        """Whether a step that is here was so, too, when the newest epoch that counts was cut."""
        return where in self._safe and self._since.get(where, -1) < self.safe

    @property
    def waiting(self) -> bool:
        """Whether an epoch has begun here and some instances are not cut yet."""
        return self._alignment is not None and self._alignment.waiting

    def add(self, instance: Instance, chains: Mapping[tuple[str, int], Chain] = _NO_CHAINS) -> None:
        """An instance is cut with the others from the next epoch on."""
        self._groups.setdefault(instance.id.operator, []).append(instance)
        instance.on_marker = self._heard
        for name, step in instance.steps:
            if isinstance(step, Stateful):
                step.watch()
                where = name, instance.id.index
                self._chains[where] = chains.get(where, NO_CHAIN)
                self._sweeps.pop(where, None)
                self._over.discard(where)
                if chains is _NO_CHAINS:
                    self._since[where] = self.epoch

    def remove(self, instance: Instance) -> None:
        """An instance is here no more. What its sinks have prepared is committed all the same."""
        group = self._groups[instance.id.operator]
        group.remove(instance)
        if not group:
            del self._groups[instance.id.operator]
        for name, step in instance.steps:
            where = name, instance.id.index
            if self._since.get(where) != self.epoch:  # else another is it here by now
                self._over.discard(where)
                for known in (self._chains, self._sweeps, self._since):
                    known.pop(where, None)
            if isinstance(step, SinkStep):
                self._leaving.append((name, step))

    def close(self) -> None:
        """Let go of what has left, and is not committed yet."""
        while self._leaving:
            name, step = self._leaving.pop()
            call(name, "close", step.close)

    def can_go_back_to(self, epoch: int) -> bool:
        """Whether the steps know the way back to an epoch that counts, be that news or not."""
        if epoch == self.epoch and self._given:
            self.committed(epoch, sinks=False)
        return epoch == self.safe

    @property
    def at_rest(self) -> bool:
        """Whether the newest epoch counts, and nothing is left to do for it."""
        return self.safe == self.epoch and not self.busy

    @property
    def busy(self) -> bool:
        """Whether there is something to encode, or to settle."""
        return bool(self._encoding or self._settling)

    def begin(self, epoch: int, change: int = 0, last: bool = False) -> None:
        """An epoch begins: cut what has no links to wait for. Once is enough; later it is known."""
        if epoch <= self.epoch:
            return
        if self._given:
            # A marker may overtake the coordinator's word: an epoch begins when all before count.
            self.committed(self.epoch)
        if self._part is not None:
            raise RuntimeError(f"epoch {epoch} begins before {self.epoch} is over")
        self.epoch = epoch
        if last:
            self._on_last()
        ended = all(one.ended for group in self._groups.values() for one in group)
        self._part = Part(epoch, [], [], ended)
        marker = Checkpoint(epoch, change, last)
        groups = [[*group] for group in self._groups.values()]
        if change:
            assert self.moving is not None and self.moving.number == change, change
            self._part.ended &= not self.moving.brings
            self._alignment = self.moving.aligned(groups, marker, self._cut_group)
        else:
            self._alignment = Alignment(groups, marker, before=self._cut_group)
        self.look()

    def look(self) -> None:
        """Cut what is due; to be called when links have ended, too."""
        if self._alignment is not None:
            self._alignment.look()

    def _heard(self, marker: Checkpoint) -> None:
        self.begin(marker.epoch, marker.change, marker.last)
        self.look()

    def _cut_group(self, group: Group) -> None:
        for instance in group:
            self._before_cut(instance)
        for instance in group:
            self._cut(instance)

    def _cut(self, instance: Instance) -> None:
        assert self._part is not None
        for name, step in instance.steps:
            where = name, instance.id.index
            if isinstance(step, SinkStep):
                handle = call(name, "prepare", step.cut, self.epoch)
                if handle is not None:
                    self._part.handles.append((name, pickle.dumps(handle, 5)))
                if step.unsynced:
                    self._part.syncs.append(partial(call, name, "sync", step.sync, step.unsynced))
                shared = pickle.dumps(step.shared(), 5)
                piece = Piece(name, instance.id.index, "delta", keyed=False, shared=shared)
                piece.finished = step.finished
                self._part.pieces.append(piece)
            elif isinstance(step, Stateful):
                if where in self._over:
                    continue
                chain = self._chains[where]
                full = step.finished or chain.full_is_due
                # Also the first: what was restored from elsewhere has not been touched.
                entries = call(name, "snapshot", partial(step.cut, full=full))
                kind: Kind = "full" if full else "delta"
                piece = Piece(name, instance.id.index, kind, shared=step.shared_at_cut)
                if step.finished:
                    self._over.add(where)
                    piece.finished, entries = True, iter(())
                elif chain.is_swept and not full:
                    self._sweep(where, step)
                self._part.pieces.append(piece)
                self._encoding.append((piece, entries))

    def _sweep(self, where: tuple[str, int], step: Stateful) -> None:
        """Add the next part of all keys to the epoch, before what has changed, or look for them."""
        assert self._part is not None
        sweep = self._sweeps.pop(where, None)
        if sweep is not None:
            kind, keys = sweep.part()
            part = Piece(*where, kind)
            self._part.pieces.append(part)
            self._encoding.append((part, step.again(keys)))
            if kind == "part":
                self._sweeps[where] = sweep
                return
        self._sweeps[where] = sweep = Sweep()
        self._encoding.append((sweep, step.keys_at_cut()))

    def encode(self, budget_ns: int, clock_ns: Callable[[], int]) -> bool:
        """Encode what was cut for about so long; whether there was anything to do."""
        if not self._encoding and not self._settling:
            return False
        now_ns = clock_ns()
        until_ns = now_ns + budget_ns
        while now_ns < until_ns and self._settling:
            if next(self._settling[0], self) is self:
                self._settling.popleft()
            now_ns = clock_ns()
        while now_ns < until_ns and self._encoding:
            kept, entries = self._encoding[0]
            block = list(islice(entries, self._entries))
            if not block:
                self._encoding.popleft()
                if isinstance(kept, Piece):
                    self._is_encoded(kept)
                continue
            kept.add(block)
            began_ns, now_ns = now_ns, clock_ns()
            if now_ns - began_ns > 2 * _SLICE_NS:
                self._entries = max(self._entries // 2, 1)
            elif now_ns - began_ns < _SLICE_NS and len(block) == self._entries:
                self._entries = min(self._entries * 2, _MOST_ENTRIES)
        return True

    def _is_encoded(self, piece: Piece) -> None:
        where = piece.operator, piece.index
        if where not in self._chains or self._since.get(where) == self.epoch:
            return  # it has left meanwhile
        size_bytes = sum(map(len, piece.blocks))
        self._chains[where] = self._chains[where].longer(piece.kind, size_bytes)
        if piece.kind == "delta" and where in self._sweeps:
            self._sweeps[where].changed = piece.entries

    def take(self) -> Part | None:
        """What this worker adds to the epoch, once, when all is cut and encoded."""
        if self._part is None or self.waiting or self._encoding:
            return None
        part, self._part = self._part, None
        self._given = True
        return part

    def settled(self) -> int | None:
        """The epoch that counts, once, when nothing is left to do for it."""
        if not self.unsettled or self._settling:
            return None
        self.unsettled = False
        return self.safe

    def committed(self, epoch: int, *, sinks: bool = True) -> None:
        """An epoch is safe. Without `sinks`, others let it be seen."""
        if epoch <= self.safe:
            return
        if epoch != self.epoch or not self._given:
            raise RuntimeError(f"epoch {epoch} is committed; here {self.epoch} is the newest")
        self._given = False
        self.unsettled = True
        self.safe = epoch
        for name, sink in self._leaving if sinks else ():
            call(name, "commit", sink.committed, epoch)
        self.close()
        self._safe = self._chains.copy()
        for group in self._groups.values():
            for instance in group:
                for name, step in instance.steps:
                    if isinstance(step, SinkStep):
                        if sinks:
                            call(name, "commit", step.committed, epoch)
                    elif isinstance(step, Stateful):
                        self._settling.append(call(name, "commit", step.committed))


def _encoded(operator: str, block: list[tuple[Hashable, Any]]) -> bytes:
    try:
        return pickle.dumps(block, 5)
    except Exception:
        refuse_unpicklable(operator, block, "be kept in a checkpoint", "snapshot")
        raise
