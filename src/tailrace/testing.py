"""Run a topology in this process: deterministic, without Spark, in virtual time.

>>> import tailrace as tr
>>> topology = tr.Topology()
>>> results = collect(topology.source([3, 1, 2]).map(lambda n: n * n))
>>> report = run(topology)
>>> results
[9, 1, 4]
"""

from __future__ import annotations

import random
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tailrace.connectors.memory import Collect
from tailrace.graph.model import Record
from tailrace.graph.wiring import wire
from tailrace.runtime.core import DEFAULT_LIMITS, Core, Limits
from tailrace.runtime.deployment import deploy
from tailrace.runtime.moving import StateMessage
from tailrace.runtime.outgoing import Item
from tailrace.runtime.sink import with_job
from tailrace.runtime.step import OperatorFailed
from tailrace.runtime.strict import strict as watch
from tailrace.stream import Stream
from tailrace.topology import Topology
from tailrace.transport.peer import JumboCodec

_PRETENDED_BYTES = 100
"""Inside a worker nothing is encoded; so much counts for what is handed over."""


class VirtualClock:
    """Time that passes only when somebody says so."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ns


class StuckError(AssertionError):
    """Nothing can go on and the topology has not ended: a deadlock, or an input that waits."""


@dataclass(frozen=True)
class Report:
    """What a run did."""

    rounds: int
    virtual_s: float
    ended: bool
    """Whether all sources came to their end; False: it was stopped at `virtual_s`, and drained."""
    records_in: dict[str, int]
    """By operator."""
    skipped: dict[str, int]
    late: dict[str, int]
    """Records too late for their windows, by operator."""
    sent: dict[str, int]
    """By stream."""
    received: dict[str, int]


def collect(stream: Stream) -> list[Record]:
    """End a stream in a list, which `run` fills. Such a topology is not for Spark."""
    sink = Collect()
    stream.sink(sink)
    return sink.records


@dataclass(frozen=True)
class _Post:
    """Carries what one core sends, encoded as between workers, over channels of limited length."""

    rank: int
    channels: dict[tuple[int, int], list[bytes]]
    credits: list[tuple[Any, ...]]
    codec: JumboCodec
    channel_messages: int

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        channel = self.channels.setdefault((self.rank, peer), [])
        if len(channel) >= self.channel_messages:
            return 0
        channel.append(b"".join(self.codec.encode(parcels)))
        return len(channel[-1])

    def credit(self, peer: int, *credit: Any) -> None:
        self.credits.append((peer, *credit))

    def state(self, peer: int, message: StateMessage) -> bool:
        raise NotImplementedError("nothing moves here")

    def check(self, record: Record) -> None:
        self.codec.encode([(0, [(0, 0, [record])])])

    def size(self, records: list[Record]) -> int:
        return _PRETENDED_BYTES


def run(
    topology: Topology,
    *,
    workers: int = 1,
    seed: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    channel_messages: int = 16,
    virtual_s: float = 3600.0,
    strict: bool = False,
) -> Report:
    """Run the topology to its end on so many pretended workers.

    They take turns in an order that follows from the seed, and exchange messages, which are encoded
    and decoded as between real workers, over channels that hold `channel_messages`. Time stands
    still while anything can be done, then jumps to what is due next. The run stops after
    `virtual_s` of it as if drained, and then `ended` of its report is False: `assert
    run(topology).ended` is for topologies that should end by themselves. What coroutines of an
    async map wait for is real, and waited for.

    With `strict`, which is slow, an operator that changes a record it got fails the run, and so
    does one that changes what it has handed on (a state, say; the last 256 records of each instance
    are watched), that hands on what could not travel to another worker, or whose records come with
    keys that could not.
    """
    chance = random.Random(seed)
    clock = VirtualClock()
    woken = threading.Event()
    named = with_job(topology.graph, secrets.token_hex(4))
    graph = watch(named) if strict else named
    deployment = deploy(graph, [i % workers for i in range(wire(graph).instances)])
    codec = JumboCodec(clock)
    channels: dict[tuple[int, int], list[bytes]] = {}
    credits: list[tuple[Any, ...]] = []

    def make(rank: int) -> Core:
        post = _Post(rank, channels, credits, codec, channel_messages)
        return Core(rank, deployment, clock, post, woken.set, limits, clock)

    cores: list[Core] = []

    def exchange() -> bool:
        moved = bool(credits)
        chance.shuffle(credits)
        while credits:
            peer, *credit = credits.pop()
            cores[peer].credit(*credit)
        for (sender, peer), channel in channels.items():
            for _ in range(chance.randint(0, len(channel))):
                jumbo = channel.pop(0)
                sent_ns, parcels = codec.decode(jumbo)
                cores[peer].deliver(sender, parcels, sent_ns, len(jumbo))
                moved = True
        return moved

    rounds = 0
    drained = False
    try:
        cores.extend(make(rank) for rank in range(workers))
        while not all(core.ended for core in cores) or any(channels.values()):
            rounds += 1
            progress = False
            woken.clear()
            for core in chance.sample(cores, workers):
                progress |= core.round()
                progress |= exchange()
            if progress or any(channels.values()):
                continue
            if any(core.outstanding for core in cores):
                woken.wait()
                continue
            due = [at_ns for core in cores if (at_ns := core.next_due_ns()) is not None]
            if drained or not due or min(due) <= clock.now_ns:
                raise StuckError(f"nothing can go on after {rounds} rounds (seed {seed})")
            drained = min(due) > virtual_s * 1e9
            if drained:
                for core in cores:
                    core.stop_sources()
            clock.now_ns = int(virtual_s * 1e9) if drained else min(due)
    except BaseException:
        for core in cores:
            with suppress(OperatorFailed):  # what went wrong first is what counts
                core.close()
        raise
    for core in cores:
        core.close()
    return _report(cores, rounds, clock.now_ns, not drained)


def _report(cores: list[Core], rounds: int, now_ns: int, ended: bool) -> Report:
    records_in: dict[str, int] = {}
    skipped: dict[str, int] = {}
    late: dict[str, int] = {}
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    for core in cores:
        for instance in core.instances:
            for name, counts in instance.counts.items():
                records_in[name] = records_in.get(name, 0) + counts.records_in
                skipped[name] = skipped.get(name, 0) + counts.skipped + counts.dead
                late[name] = late.get(name, 0) + counts.late
        for label, stats in core.counting.streams().items():
            sent[label] = sent.get(label, 0) + stats.sent
            received[label] = received.get(label, 0) + stats.received
    return Report(rounds, now_ns / 1e9, ended, records_in, skipped, late, sent, received)
