"""A running source: the splits of one instance, read in turn, with positions that can be moved."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, cast

from tailrace.graph.model import MAIN, Record
from tailrace.runtime.source import DONE, START, FedReader, Reader, Reply, Source, Split
from tailrace.runtime.state import FORGOTTEN, Entry, GoingOn, Stateful
from tailrace.runtime.step import Put, Step

_FIRST_PAUSE_NS = 100_000
_LONGEST_PAUSE_NS = 5_000_000


def pause_ns(empty: int) -> int:
    """How long to leave a reader alone that says "now" and gave nothing so many times in a row.

    >>> [pause_ns(empty) / 1e6 for empty in (1, 2, 3, 100)]
    [0.1, 0.2, 0.4, 5.0]
    """
    return min(_FIRST_PAUSE_NS << min(empty - 1, 10), _LONGEST_PAUSE_NS)


class _Served:
    """A split that is being read."""

    __slots__ = ("acknowledges", "empty", "ended_in", "moved", "polled_ns", "reader", "split")

    def __init__(self, split: Split, reader: Reader) -> None:
        self.split = split
        self.reader = reader
        self.acknowledges = type(reader).acknowledge is not Reader.acknowledge
        self.ended_in: Any = None  # the cut that its end belongs to
        self.empty = 0  # polls in a row that gave nothing
        self.moved = True  # since the last cut; a reader may know better than we where it begins
        self.polled_ns = 0

    def due_ns(self) -> int | None:
        due_ns = self.reader.due_ns()
        if due_ns is not None and self.empty and due_ns <= self.polled_ns:
            return self.polled_ns + pause_ns(self.empty)
        return due_ns


class SourceStep(Stateful):
    """The splits of one instance. All of them have had their turn before one has its second.

    The state of a source is the positions of its splits, by split: they can be taken out and put in
    between two polls. They name every split that this instance has, also those not begun and those
    at their end, so that instances in any number, given these positions, read what is left:
    nothing twice, nothing missed, if the source `rewinds`.
    """

    def __init__(
        self,
        source: Source,
        index: int,
        parallelism: int,
        put: Put,
        clock_ns: Callable[[], int],
        positions: Mapping[Split, Any] | None = None,
        *,
        checkpoints: bool = False,
        kept: dict[Split, Reader] | None = None,
    ) -> None:
        """With `checkpoints`, safe is only what has been committed.

        Of the readers that another step has kept open, those that can go back are used.
        """
        super().__init__()
        self.settled = True
        """Whether all splits are where they belong."""
        self.kept: dict[Split, Reader] = {}
        """Readers that are open though this step has retired."""
        self._kept = {} if kept is None else kept
        self.safe: Mapping[Split, Any] | None = positions
        """The positions at the last committed cut; None: the beginning."""
        self._at_cut: dict[Hashable, Any] | None = None
        self._changed: set[Hashable] = set()  # since the last cut, beside those that have moved
        self._checkpoints = checkpoints
        self.source = source
        self.emitted_ns = 0
        self._index = index
        self._parallelism = parallelism
        self._put = put
        self._clock_ns = clock_ns
        self._stopped = False
        self._ahead: dict[Split, Any] = {}
        self._served: deque[_Served] = deque()
        self._by_split: dict[Hashable, _Served] = {}
        self._done: dict[Split, Any] = {}
        self._elsewhere: set[Split] = set()  # given up, so not new when they are seen again
        self._latest: _Served | None = None
        self._leaving: list[_Served] = []  # at their end, and open until that is committed
        self._quiet_ns = 0  # with several readers: until then none of them has anything
        self._look_ns = None if source.look_s is None else clock_ns()
        if positions is None:
            found = source.splits(parallelism)
            positions = {split: START for split in found if self._mine(split)}
            if self._look_ns is not None:
                self._look_ns += self._look_every_ns
        self._base: dict[Hashable, Any] = dict(positions.items())  # at the last committed cut
        try:
            self.put_in(positions.items())
            self._changed.clear()
        except BaseException:
            self.close()
            raise
        finally:
            while self._kept:
                self._kept.popitem()[1].close()

    def _mine(self, split: Split) -> bool:
        return split.home(self._parallelism) == self._index

    @property
    def _look_every_ns(self) -> int:
        assert self.source.look_s is not None
        return round(self.source.look_s * 1e9)

    # ---- positions ----

    def positions(self) -> dict[Split, Any]:
        """Every split that is here, and where it stands: what has been polled is before it."""
        return {split: self._look(split) for split in self._all()}

    def keys(self) -> list[Hashable]:
        """The splits that are here."""
        return list(self._all())

    def _all(self) -> list[Split]:
        return [*(served.split for served in self._served), *self._ahead, *self._done]

    def _look(self, key: Hashable) -> Any:
        assert isinstance(key, Split), key
        if key in self._by_split:
            position = self._by_split[key].reader.position()
            return START if position is None else position
        return self._ahead.get(key, self._done.get(key))

    def _drop(self, key: Hashable) -> None:
        assert isinstance(key, Split), key
        if key in self._by_split:
            self._close(self._by_split[key])
        self._ahead.pop(key, None)
        self._done.pop(key, None)
        self._elsewhere.add(key)

    def take_out(self, keys: Iterable[Hashable]) -> list[Entry]:
        """Give up splits that are here, closed; with where they stood."""
        taken = super().take_out(keys)
        self._quiet_ns = 0
        self._fill()
        return taken

    def put_in(self, entries: Iterable[Entry]) -> None:
        """Serve these splits as well, each from its position; ValueError if one is here."""
        positions = dict(entries)
        twice = [str(split) for split in self._all() if split in positions]
        if twice:
            raise ValueError(f"the splits {twice} are here already; take them out first")
        super().put_in(positions.items())
        self._quiet_ns = 0
        self._fill()

    def _put_back(self, key: Hashable, value: Any) -> None:
        assert isinstance(key, Split), key
        self._elsewhere.discard(key)
        if value is DONE:
            self._done[key] = DONE
        else:
            self._ahead[key] = value

    def rescale(self, index: int, parallelism: int) -> None:
        """Be one of another number of instances: of what is new, serve the splits it is home to.

        The splits that are here stay until they are taken out.
        """
        self._index, self._parallelism = index, parallelism
        self._elsewhere = {split for split in self._elsewhere if self._mine(split)}

    def _fill(self) -> None:
        """Open splits that wait, as many as there may be."""
        most = self.source.open_at_once
        while self._ahead and len(self._served) < most:
            split, position = next(iter(self._ahead.items()))
            at = None if position is START else position
            reader = self._kept.pop(split, None)
            if reader is not None and not reader.go_back(at):
                reader.close()
                reader = None
            if reader is None:
                reader = self.source.open(split, self._clock_ns, at)
            del self._ahead[split]
            self._by_split[split] = served = _Served(split, reader)
            self._served.append(served)
        if self._ahead and self._look_ns is not None:  # these have no end, so nobody would make way
            raise ValueError(
                f"one instance has {len(self._ahead) + len(self._served)} files or other splits to"
                f" follow; at most {most} can be open: raise that limit or the parallelism"
            )

    def _discover(self, now_ns: int) -> None:
        """Serve splits that are new, unless some are on their way between instances."""
        if not self.settled:
            return
        self._look_ns = now_ns + self._look_every_ns
        known = self._elsewhere.union(self._all())
        found = self.source.splits(self._parallelism)
        new = [split for split in found if split not in known and self._mine(split)]
        if new:
            self.put_in((split, self.source.beginning) for split in new)

    # ---- records ----

    def poll(self, most: int) -> list[Record] | None:
        """What a reader has now, each in its turn; None when all are at their end, or stopped."""
        if self._stopped:
            return None
        if self._look_ns is not None and (now_ns := self._clock_ns()) >= self._look_ns:
            self._discover(now_ns)
        while len(self._served) == 1:
            records = self._ask(self._served[0], most)
            if records is not None:
                return records
        if self._served:
            return self._ask_in_turn(most)
        return None if self._look_ns is None else []

    def _ask(self, served: _Served, most: int) -> list[Record] | None:
        """Poll a reader; None: it was at its end, and the next is open, if there is one."""
        served.polled_ns = self._clock_ns()
        served.moved = True
        records = served.reader.poll(most)
        if records:
            served.empty = 0
            self._latest = served
            emitted_ns = served.reader.emitted_ns
            self.emitted_ns = self._clock_ns() if emitted_ns is None else emitted_ns
            if type(records) is not list:  # guards take nothing else
                records = list(records)
        elif records is None:
            self._end(served)
        else:
            served.empty += 1
        return records

    def _ask_in_turn(self, most: int) -> list[Record] | None:
        now_ns = self._clock_ns()
        if now_ns < self._quiet_ns:
            return []
        quiet_ns, left = sys.maxsize, len(self._served)
        while left > 0:
            left -= 1
            served = self._served[0]
            self._served.rotate(-1)
            due_ns = served.reader.due_ns()
            if due_ns is None or due_ns <= now_ns:
                others = len(self._served) - 1
                records = self._ask(served, most)
                if records:
                    return records
                if records is None:
                    left += len(self._served) - others  # one that was opened in its place
                    continue
                due_ns = served.reader.due_ns()
            quiet_ns = min(quiet_ns, 0 if due_ns is None else due_ns)
        if not self._served:
            return None if self._look_ns is None else []
        self._quiet_ns = quiet_ns
        return []

    def _end(self, served: _Served) -> None:
        self._changed.add(served.split)
        if self._checkpoints and served.acknowledges:
            self._served.remove(served)
            del self._by_split[served.split]
            self._leaving.append(served)
        else:
            self._close(served)
        if self._look_ns is None:
            self._done[served.split] = DONE
            self._fill()
        else:
            self._discover(self._clock_ns())  # there may be a new one of that name

    def _close(self, served: _Served) -> None:
        self._served.remove(served)
        del self._by_split[served.split]
        served.reader.close()

    def put(self, records: list[Record]) -> None:
        """Hand on what was polled; then its sender may know, or when that is committed."""
        self._put(records)
        latest = self._latest
        if latest is not None and latest.acknowledges:
            if self._checkpoints:
                latest.reader.handed_on(latest.reader.position())
            else:
                latest.reader.acknowledge(latest.reader.position())

    # ---- cuts: what has been polled since the one before ----

    def touch(self, key: Hashable) -> None:
        """The split will stand elsewhere, or be no more."""
        self._changed.add(key)

    def cut(self, *, full: bool = False) -> Iterator[Entry]:
        """Where the splits stand now that have moved since the cut before; or (full) all of them.

        There may be many that wait or are at their end: they cost nothing here.
        """
        at_cut = self._at_cut = {} if self._at_cut is None else self._at_cut
        for served in self._served:
            if served.moved:
                served.moved = False
                self._changed.add(served.split)
        for key in self._changed:
            position = self._look(key)
            at_cut[key] = FORGOTTEN if position is None else position
        self._changed.clear()
        for served in self._leaving:
            served.ended_in = at_cut if served.ended_in is None else served.ended_in
        self._finished_before = self.finished
        return self._stood(at_cut) if full else iter(list(at_cut.items()))

    def _stood(self, at_cut: Mapping[Hashable, Any]) -> Iterator[Entry]:
        """All of them at the cut; what was before it stays as it is until that is committed."""
        yield from (entry for entry in self._base.items() if entry[0] not in at_cut)
        yield from (entry for entry in at_cut.items() if entry[1] is not FORGOTTEN)

    def keys_at_cut(self) -> Iterator[Hashable]:
        """See Stateful."""
        assert self._at_cut is not None, "there was no cut"
        return (key for key, _ in self._stood(self._at_cut))

    def again(self, keys: Iterable[Hashable]) -> Iterator[Entry]:
        """See Stateful."""
        at_cut = self._at_cut
        assert at_cut is not None, "there was no cut"
        return ((key, self._base[key]) for key in keys if key in self._base and key not in at_cut)

    def committed(self) -> Iterator[None]:
        """What was polled before the cut is safe, and its senders may know."""
        self.finished_at_commit = self._finished_before
        at_cut, self._at_cut = self._at_cut, None
        if at_cut is not None:
            for key, position in at_cut.items():
                if position is FORGOTTEN:
                    self._base.pop(key, None)
                else:
                    self._base[key] = position
            self.safe = cast("dict[Split, Any]", self._base)
            for served in (*self._served, *self._leaving):
                position = self.safe.get(served.split, START)
                if served.acknowledges and position is not START and position is not DONE:
                    served.reader.acknowledge(position)
            self._let_go(at_cut)
        return iter(())

    def _let_go(self, at_cut: Mapping[Hashable, Any]) -> None:
        """Close the readers whose end is committed."""
        for served in [one for one in self._leaving if one.ended_in is at_cut]:
            self._leaving.remove(served)
            served.reader.acknowledge(served.reader.position())
            served.reader.close()

    def retire(self) -> None:
        """Leave those readers open that can go back, for the step that takes over."""
        for served in (*self._served, *self._leaving):
            if type(served.reader).go_back is not Reader.go_back:
                self.kept[served.split] = served.reader
        self._served = deque(one for one in self._served if one.split not in self.kept)
        self._leaving = [one for one in self._leaving if one.split not in self.kept]
        self._close_readers()

    def take_over(self, other: Stateful) -> None:
        """It was opened where the other stood."""
        self.was_finished(other.finished_at_commit)

    def go_on(self, going_on: GoingOn) -> None:
        """It was opened there."""
        self.was_finished(going_on.finished)

    def due_ns(self) -> int | None:
        """When to poll next; None: when a descriptor is readable, or somebody pushes."""
        if self._stopped or (not self._served and self._look_ns is None):
            return 0
        if len(self._served) == 1 and self._look_ns is None:  # the usual case
            return self._served[0].due_ns()
        due = [self._look_ns, *(served.due_ns() for served in self._served)]
        return min((one for one in due if one is not None), default=None)

    def filenos(self) -> list[int]:
        """The descriptors of all readers that have one; ask again after every poll."""
        found = (served.reader.fileno() for served in self._served)
        return [fileno for fileno in found if fileno is not None]

    def receive(self, payload: bytes | memoryview, reply: Reply) -> None:
        """Something from outside the topology, for those of the splits that want it."""
        for served in self._served:
            if isinstance(served.reader, FedReader) and served.reader.wants(payload):
                served.reader.receive(payload, reply)

    def stop(self) -> None:
        """End at the next poll."""
        self._stopped = True

    def close(self) -> None:
        """Close all readers; then raise what the first of them raised."""
        self._close_readers()
        while self.kept:
            self.kept.popitem()[1].close()

    def _close_readers(self) -> None:
        failures = []
        readers = [*self._served, *self._leaving]
        self._served.clear()
        self._leaving.clear()
        while readers:
            try:
                readers.pop().reader.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]


class SourceLogic:
    """Makes the steps of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def start(self, context: Any) -> Step:
        """Open this instance's splits."""
        positions: Mapping[Any, Any] | None = None
        kept = None
        if isinstance(context.before, SourceStep):
            positions, kept = context.before.safe, context.before.kept
        elif (going_on := context.going_on()) is not None:
            positions = dict(going_on.entries)
        return SourceStep(
            self.source,
            context.index,
            context.parallelism,
            context.put(MAIN),
            context.clock_ns,
            positions,
            checkpoints=context.epoch is not None,
            kept=kept,
        )
