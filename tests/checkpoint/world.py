"""A job in one process, in virtual time: cores, channels, epochs, a store, and what goes wrong.

Everything follows from a seed: who has its turn, how far messages get, when workers are killed (all
they had in memory is gone), when the storage is slow or refuses. What sinks have committed is kept
outside of all workers.
"""

from __future__ import annotations

import pickle
import random
import sys
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.checkpoint.committing import next_manifest, operators_with_versions
from tailrace.checkpoint.epochs import Act, Begin, Commit, Epochs, Write
from tailrace.checkpoint.errors import CheckpointError, LeaseLostError
from tailrace.checkpoint.manifest import Manifest, data_name
from tailrace.checkpoint.parts import write_part
from tailrace.checkpoint.restoring import Restoring
from tailrace.checkpoint.store import Store
from tailrace.control.changing import Act as ChangeAct
from tailrace.control.changing import CallOff, Changing, Prepare
from tailrace.control.protocol import Snapshotted
from tailrace.graph.model import Rule
from tailrace.graph.wiring import wire
from tailrace.routing.slots import SLOTS, Routes
from tailrace.runtime.arranging import rescaled
from tailrace.runtime.core import Core
from tailrace.runtime.deployment import Deployment, Layout, changed, deploy, with_forwarded
from tailrace.runtime.event_time import EventTime
from tailrace.runtime.limits import Limits
from tailrace.runtime.loads import LOADS_BYTES, Loads
from tailrace.runtime.markers import Marker
from tailrace.runtime.moves import check, is_source, stream_by_key
from tailrace.runtime.outgoing import Item
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import VirtualClock
from tests.checkpoint.memory import Memory


class Refusing(Memory):
    """A folder in memory that refuses now and then; sometimes what it has done all the same."""

    refuses: Callable[[], bool] = staticmethod(lambda: False)
    generation = 0
    """Of the driver that has it."""

    def write(self, name: str, data: Any) -> None:
        self._do(name, "written", lambda: super(Refusing, self).write(name, data))

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        self._do(name, "read")
        return super().read(name, offset, length)

    def delete(self, name: str) -> None:
        self._do(name, "deleted", lambda: super(Refusing, self).delete(name))

    def _do(self, name: str, what: str, action: Callable[[], None] = lambda: None) -> None:
        refused = self.refuses()
        if not refused or self.refuses():
            action()
        if refused:
            raise CheckpointError(f"{name!r} cannot be {what}: the storage is away")


@dataclass(frozen=True)
class Held:
    """The right to commit, until another driver has it."""

    folder: Refusing
    generation: int

    def check(self) -> None:
        if self.folder.generation != self.generation:
            raise LeaseLostError("another driver has it")


@dataclass
class Ledger:
    """What can be seen from outside: prepared and committed results, whoever lives."""

    prepared: dict[tuple[int, int, int], list[Any]] = field(default_factory=dict)
    committed: dict[tuple[int, int, int], list[Any]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    several: Callable[[int], int] = lambda usual: usual
    """How many instances an operator has that usually has so many: drivers may differ."""
    place: Path = Path()
    """A folder for what sinks write that write files."""
    journal: Refusing = field(default_factory=Refusing)
    """What sources log that cannot be read again."""
    logged: list[Any] = field(default_factory=list)
    """What was logged, so that it must be counted; and there may be more."""
    offered: Iterator[int] = field(default_factory=count)
    """What sources give out only once."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Ledger, ()  # nothing is shipped here

    @property
    def results(self) -> list[Any]:
        return [one for some in self.committed.values() for one in some]


class Exact(tr.Sink):
    """Into a ledger: prepared at the end of an epoch, then committed."""

    guarantee = "exactly once"

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.number = 0

    def __deepcopy__(self, memo: Any) -> Exact:
        return self

    def begin(self, writing: Any) -> None:
        self.index, self.written = writing.index, list[Any]()
        prepared = self.ledger.prepared
        for handle in [one for one in prepared if one[0] > writing.epoch]:
            if handle[1] == writing.index:
                del prepared[handle]

    def write(self, records: Iterator[Any]) -> None:
        self.written.extend(records)

    def prepare(self, epoch: int) -> Any:
        if not self.written:
            return None
        handle = epoch, self.index, next(self.ledger.numbers)
        self.ledger.prepared[handle] = self.written
        self.written = []
        return handle

    def commit(self, handle: Any) -> None:
        handle = tuple(handle)
        if handle not in self.ledger.committed:
            self.ledger.committed[handle] = self.ledger.prepared.pop(handle)


@dataclass(frozen=True)
class Stuck:
    """A record that cannot be sent to another worker."""

    number: int


class Post:
    """Carries what one core sends, as long as both ends live."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        channel = self.world.channels.setdefault((self.rank, peer), [])
        if len(channel) >= self.world.channel_messages:
            return 0
        for _, items in parcels:
            for item in items:
                for record in () if isinstance(item, Marker) else item[2]:
                    self.check(record)
        channel.append((self.rank, parcels, self.world.clock(), 100))
        return 100

    def credit(self, peer: int, *credit: Any) -> None:
        self.world.credits.append((peer, *credit))

    def state(self, peer: int, message: Any) -> bool:
        channel = self.world.states.setdefault((self.rank, peer), [])
        if len(channel) >= self.world.channel_messages:
            return False
        channel.append(pickle.dumps(message))
        return True

    def check(self, record: Any) -> None:
        for part in record if type(record) is tuple else (record,):
            if isinstance(part, Stuck):
                raise ValueError("it is stuck")

    def size(self, records: list[Any]) -> int:
        return 100


class World:
    """See above."""

    channel_messages = 4
    beside: Callable[[], bool] = staticmethod(lambda: False)
    """What threads beside the workers do meanwhile; whether they did something."""
    rests = True
    """Whether workers that have nothing to do sleep until something comes or is due, as they do."""

    def __init__(
        self,
        make: Callable[[Ledger], tr.Topology],
        seed: int,
        *,
        workers: int = 3,
        kills: int = 0,
        changes: int = 0,
        every_s: float = 0.5,
        refusals: float = 0.0,
        limits: Limits | None = None,
        folder: Refusing | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.chance = random.Random(seed)
        self.ledger = ledger or Ledger()
        self.clock = VirtualClock()
        self.limits = limits or Limits(poll_records=3, window_records=8, gathered_records=4)
        self.workers = workers
        self.graph = graph = make(self.ledger).graph
        placement = [self.chance.randrange(workers) for _ in range(wire(graph).instances)]
        self.changing = Changing(deploy(graph, placement).layout)
        self.changes = changes
        self.changed = 0
        self.versions = operators_with_versions(graph)
        self.migrations = {one.name: one.migrate for one in graph.operators if one.migrate}
        self.folder = folder or Refusing()
        self.refusals = refusals
        self.folder.generation += 1
        self.generation = self.folder.generation
        self.store = Store(self.folder, Held(self.folder, self.generation))
        beginning = Manifest.beginning("job", graph.name, self.generation)
        self.manifest = self.insist(lambda: self.store.resume(beginning))
        self.begun_at = self.manifest.epoch
        self.epochs = Epochs(workers, every_s, committed=self.manifest.epoch)
        self.attempt = 0
        self.hears = [self.chance.choice([0.7, 0.7, 0.02]) for _ in range(workers)]
        self.kills = kills
        self.killed = 0
        self.channels: dict[tuple[int, int], list[Any]] = {}
        self.credits: list[tuple[Any, ...]] = []
        self.states: dict[tuple[int, int], list[bytes]] = {}
        self.to_workers: list[list[Any]] = [[] for _ in range(workers)]
        self.to_coordinator: list[tuple[int, Any]] = []
        self.writing: Write | None = None
        self.rests_until_ns = [0] * workers
        self.rows: dict[int, bytearray] = {}
        self.cores: list[Core] = [self.fresh(rank) for rank in range(workers)]
        self.drained: set[int] = set()
        self.ended: set[int] = set()
        self.epochs.go(0)

    def insist(self, *tries: Callable[[], Any]) -> Any:
        """What fails comes again, and tries the next, or the last once more."""
        self.folder.refuses = self.ledger.journal.refuses = self.refuses
        for once in tries:
            try:
                return once()
            except (CheckpointError, OperatorFailed) as error:
                if "the storage is away" not in str(error):
                    raise
        return self.insist(tries[-1])

    def refuses(self) -> bool:
        return self.refusals > 0 and self.chance.random() < self.refusals

    # ---- workers ----

    def fresh(self, rank: int, before: Core | None = None) -> Core:
        core: Core = self.insist(
            lambda: self.core_of(rank, before), lambda: self.core_of(rank, None)
        )
        return core

    def core_of(self, rank: int, before: Core | None) -> Core:
        deployment = self.deployment
        restoring = Restoring(
            self.folder, self.manifest, deployment, self.versions, self.migrations
        )
        return Core(
            rank,
            deployment,
            self.clock,
            Post(self, rank),
            limits=self.limits,
            wall_ns=self.clock,
            epoch=self.manifest.epoch,
            going_on=restoring.going_on,
            before=before,
            loads=self.loads(rank),
        )

    def loads(self, rank: int) -> Loads:
        """What all have to do, as a worker that begins anew sees it."""
        self.rows[rank] = bytearray(LOADS_BYTES)
        loads = Loads(rank, self.rows.get)
        for other in range(self.workers):
            loads.find(other)
        return loads

    @property
    def deployment(self) -> Deployment:
        return self.changing.layout.of(self.graph)

    def kill(self, rank: int) -> None:
        """All that a worker had is gone; the others go back in place, if they can."""
        self.killed += 1
        self.attempt += 1
        self.rests_until_ns = [0] * self.workers
        self.epochs.halt()
        self.changing.set_back(self.clock() / 1e9)
        if not self.epochs.known:  # who writes the manifest gets there, or not
            self.write_manifest(anyway=self.chance.random() < 0.7)
            if self.writing is not None:
                self.write_manifest(anyway=False)
        self.channels.clear()
        self.credits.clear()
        self.states.clear()
        self.changing.begin()
        self.to_coordinator.clear()
        self.drained.clear()
        self.ended.clear()
        for commands in self.to_workers:
            commands.clear()
        for other in range(self.workers):
            core = self.cores[other]
            if other == rank or self.chance.random() < 0.1:
                self.cores[other] = self.fresh(other)
                continue
            cuts = core.cuts
            assert cuts is not None
            core.retire()
            known = cuts.can_go_back_to(self.manifest.epoch)
            if not known:
                core.discard()
            self.cores[other] = self.fresh(other, before=core if known else None)
        self.epochs.go(self.clock() / 1e9)

    def obey(self, rank: int) -> None:
        core = self.cores[rank]
        for act in self.to_workers[rank]:
            if isinstance(act, Begin):
                core.begin_epoch(act.epoch, last=act.last, change=act.change)
            elif isinstance(act, Prepare):
                trouble = ""
                try:
                    core.prepare(act.number, act.layout.of(self.graph), act.epoch)
                except ValueError as error:
                    trouble = str(error)
                self.to_coordinator.append((rank, ("prepared", act.number, trouble)))
            elif isinstance(act, CallOff):
                core.call_off()
            elif isinstance(act, Commit):
                assert core.cuts is not None
                core.cuts.committed(act.epoch)
                if act.last:
                    self.ended.add(rank)
        self.to_workers[rank].clear()

    def turn(self, rank: int) -> bool:
        commands = bool(self.to_workers[rank]) and self.chance.random() < self.hears[rank]
        if not commands and self.clock.now_ns < self.rests_until_ns[rank]:
            self.chance.random()
            return False
        core = self.cores[rank]
        cuts = core.cuts
        assert cuts is not None
        if commands:
            self.obey(rank)
        try:
            progress = core.round() or commands
        except OperatorFailed as error:
            if "the storage is away" not in str(error):
                raise
            self.kill(rank)
            return True
        if self.chance.random() < 0.5:
            progress |= core.encode(1)
        progress |= cuts.busy
        if core.moving is not None and self.chance.random() < 0.5:
            progress |= core.move(1)
        if (moved := core.moved()) is not None:
            self.to_coordinator.append((rank, ("switched", moved.number, moved.moved_keys)))
            progress = True
        part = cuts.take()
        if part is not None:
            progress = True
            name = data_name(part.epoch, self.generation, self.attempt, rank)
            try:
                sections = write_part(self.folder, name, part, self.versions)
            except CheckpointError:
                self.kill(rank)  # a worker that cannot write fails
                return True
            finished = tuple((one.operator, one.index) for one in part.pieces if one.finished)
            handles = tuple(part.handles)
            told = Snapshotted(rank, part.epoch, sections, handles, finished, part.ended)
            self.to_coordinator.append((rank, told))
        if (epoch := cuts.settled()) is not None:
            self.to_coordinator.append((rank, ("settled", epoch)))
        if core.ended and rank not in self.drained:
            self.drained.add(rank)
            self.to_coordinator.append((rank, None))
            progress = True
        if progress or core.moving is not None or not self.rests:
            self.rests_until_ns[rank] = 0
        else:
            due_ns = core.next_due_ns()
            self.rests_until_ns[rank] = sys.maxsize if due_ns is None else due_ns
        return progress

    # ---- changes ----

    def ask_change(self) -> None:
        """Now and then, have another deployment."""
        wanted = self.changes > self.changing.number and self.chance.random() < 0.3
        if not wanted or self.changing.current is not None or self.epochs.ending:
            return

        def checked(layout: Layout) -> Layout:
            before = layout.of(self.graph)
            after = self.another(before)
            check(before, after, checkpoints=True)
            return after.layout

        with suppress(ValueError):
            self.changing.ask(checked, self.clock() / 1e9, recovers=self.chance.random() < 0.1)

    def another(self, before: Deployment) -> Deployment:
        """A deployment that differs by some keys, places or numbers of instances."""
        chance = self.chance
        heads = [chain.operators[0] for chain in before.wiring.chains]
        head = chance.choice(heads)
        kind = chance.choice(["keys", "keys", "places", "numbers", "fusion"])
        by_key = [one for one in heads if stream_by_key(before, one) is not None]
        if kind == "keys" and by_key:
            head = chance.choice(by_key)
            count = before.graph.operator(head).parallelism
            share = chance.choice([0.0, 0.0, 0.1, 0.5, 1.0])
            stream = stream_by_key(before, head)
            assert stream is not None
            route = before.route(stream)
            others, dice = chance.randbytes(SLOTS), chance.randbytes(SLOTS)
            slots = zip(route.owners, others, dice, strict=True)
            owners = array("H", [b % count if c < 256 * share else a for a, b, c in slots])
            keys: dict[Hashable, int] = {
                key: chance.randrange(count) for key in range(chance.randrange(7))
            }
            routes = {
                number: Routes(owners, keys)
                for number, (_, target) in before.wiring.streams.items()
                if target.operators[0] == head
            }
            return changed(before, routes=routes)
        if kind == "fusion" and before.graph.name != "lists":  # which are read as they are emitted
            return self.fused_otherwise(before)
        timed = any(isinstance(one.logic, EventTime) for one in before.graph.operators)
        if kind == "numbers" and not (timed and is_source(before, head)):  # splits have no order
            places = chance.sample(range(self.workers), chance.randint(1, self.workers))
            return rescaled(before, {head: chance.randint(1, 4)}, places)
        moved = {
            one: chance.randrange(self.workers) for one in before.workers if chance.random() < 0.3
        }
        return changed(before, workers=moved)

    def fused_otherwise(self, before: Deployment) -> Deployment:
        """With some operators apart that ran fused, or fused that did not."""
        chance, graph = self.chance, before.graph
        forwarded = before.layout.forwarded
        assert forwarded is not None
        free = {
            number
            for number, stream in enumerate(graph.streams)
            if stream.grouping.rule in (Rule.FORWARD, Rule.SHUFFLE)
            and len(graph.into(stream.target)) == 1
            and not isinstance(graph.operator(stream.target).logic, EventTime)
            and graph.operator(stream.source).parallelism
            == graph.operator(stream.target).parallelism
        }
        flipped = {number for number in sorted(free) if chance.random() < 0.5}
        after = forwarded ^ flipped
        wiring = wire(with_forwarded(graph, after))
        workers = {one: chance.randrange(self.workers) for one in wiring.ids}
        for one, worker in before.workers.items():
            if one in workers and chance.random() < 0.7:
                workers[one] = worker
        return changed(before, forwarded=after, workers=workers)

    # ---- the coordinator ----

    def coordinate(self) -> bool:
        acts: list[Act | ChangeAct] = []
        heard, self.to_coordinator = self.to_coordinator, []
        now_s = self.clock() / 1e9
        for rank, told in heard:
            if told is None:
                self.epochs.drained(rank)
            elif isinstance(told, tuple) and told[0] == "settled":
                self.epochs.settled_by(rank, told[1])
            elif isinstance(told, tuple) and told[0] == "prepared":
                acts += self.changing.prepared(rank, told[1], told[2], now_s, self.epochs)
            elif isinstance(told, tuple):
                self.changed += self.changing.switched(rank, told[1], told[2], now_s, self.epochs)
            else:
                acts += self.epochs.cut(rank, told.epoch, told, ended=told.ended)
        self.ask_change()
        acts += self.changing.look(self.workers, self.epochs, now_s)
        for begins in self.epochs.tick(now_s):
            assert isinstance(begins, Begin)
            self.changing.epoch_begins(begins.epoch)
            acts.append(begins)
        if self.writing is not None and self.chance.random() < 0.5:
            acts += self.write_manifest()
        for act in acts:
            if isinstance(act, Write):
                self.writing = act
            else:
                for commands in self.to_workers:
                    commands.append(act)
        return bool(heard or acts or self.writing)

    def write_manifest(self, anyway: bool = True) -> list[Act]:
        write, self.writing = self.writing, None
        assert write is not None
        if not anyway:
            self.epochs.abandon()
            return []
        layout = self.changing.layout_of(write.epoch)
        manifest = next_manifest(
            self.manifest,
            write,
            layout.of(self.graph).graph,
            self.versions,
            attempt=self.attempt,
            routes=layout.routed(self.graph),
            rescaled=self.manifest.epoch > self.begun_at,
        )
        try:
            self.store.commit(manifest)
        except CheckpointError:
            self.writing = write  # it is tried again
            return []
        self.manifest = manifest
        self.changing.epoch_counts(manifest.epoch)
        if self.chance.random() < 0.5:
            with suppress(CheckpointError):
                self.store.sweep(2)
        return self.epochs.written(write.epoch)

    # ---- all together ----

    def some_of(self, messages: Sequence[Any]) -> int:
        """How many of them arrive now."""
        return self.chance.randint(0, len(messages))

    def exchange(self) -> bool:
        moved = bool(self.credits)
        while self.credits:
            peer, *credit = self.credits.pop()
            self.cores[peer].credit(*credit)
            self.rests_until_ns[peer] = 0
        # Most channels are empty most of the time.
        states = [one for one in self.states.items() if one[1]] if self.states else ()
        for (sender, peer), messages in states:
            for _ in range(self.some_of(messages)):
                self.cores[peer].receive_state(sender, pickle.loads(messages.pop(0)))
                self.rests_until_ns[peer] = 0
                moved = True
        channels = [one for one in self.channels.items() if one[1]] if self.channels else ()
        for (_, peer), channel in channels:
            for _ in range(self.some_of(channel)):
                self.cores[peer].deliver(*channel.pop(0))
                self.rests_until_ns[peer] = 0
                moved = True
        return moved

    @property
    def over(self) -> bool:
        """Whether the last epoch counts, and all know it."""
        return self.epochs.over and len(self.ended) == self.workers

    def run(
        self, most: int = 100_000, stop_at: int | None = None, dies_at: int | None = None
    ) -> Sequence[Any]:
        """Until the last epoch counts, or the driver dies; then what was committed."""
        for step in range(most):
            if self.over or step == dies_at:
                return self.ledger.results
            if stop_at is not None and step == stop_at:
                self.epochs.stop()
            self.folder.refuses = self.ledger.journal.refuses = self.refuses
            progress = self.beside()
            if progress:
                self.rests_until_ns = [0] * self.workers
            for rank in self.chance.sample(range(self.workers), self.workers):
                progress |= self.turn(rank)
                progress |= self.exchange()
                if self.chance.random() < 0.5:
                    progress |= self.coordinate()
                if self.killed < self.kills and self.chance.random() < 0.02:
                    self.kill(rank)
                    progress = True
            under_way = any(self.channels.values()) or any(self.states.values())
            if progress or under_way or any(self.to_workers):
                self.clock.now_ns += 1_000_000
                continue
            due = [at for core in self.cores if (at := core.next_due_ns()) is not None]
            soon = self.clock.now_ns + 100_000_000
            self.clock.now_ns = max(min([*due, soon]), self.clock.now_ns + 1)
        raise AssertionError(f"not over after {most} steps: {self.epochs}")
