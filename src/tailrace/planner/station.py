"""One operator by itself: fed batch by batch, timed, and its outputs handed over.

It runs as in a worker, in an instance with its guard, routers and lanes; only what it reads from
and sends to is not there. Every stream has one receiver, and streams by key are dealt to two
afterwards: so dealing, in which key functions are called, is measured apart.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.graph.model import Graph, Grouping, Operator, Record, Rule, Stream
from tailrace.graph.wiring import InstanceId, wire
from tailrace.plan.model.machine import PROFILED_RECEIVERS
from tailrace.planner.codec import CodecTimes, measure_codec
from tailrace.planner.yardstick import Yardstick
from tailrace.routing.slots import Routes
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.deployment import Gate, deploy
from tailrace.runtime.exchange import Exchange, Lane, Stamp
from tailrace.runtime.markers import Marker, Watermark
from tailrace.runtime.moving import StateMessage
from tailrace.runtime.outgoing import Item
from tailrace.runtime.reading import SourceLogic
from tailrace.runtime.router import Router
from tailrace.runtime.sink import Sink, SinkLogic
from tailrace.transport.codec import CodecError

DEALT = (Rule.KEY, Rule.PARTIAL_KEY, Rule.CUSTOM)
_LIMITS = Limits(
    window_records=sys.maxsize,
    first_window_records=sys.maxsize,
    gathered_records=sys.maxsize,
    poll_records=256,
)
_FROM, _TO = "\0from", "\0to"
"""Names of stubs; nobody calls an operator so."""
_PATIENCE_S = 0.001
_CODED_EVERY = 4
"""Of the batches of an output, one in so many is encoded and decoded."""


Part = tuple[list[Record]] | tuple[list[Record], list[Hashable]]
"""Records, and their keys if these go with them."""


@dataclass
class Batch:
    """What one stream carried in one round: records by receiver, and then markers."""

    parts: list[Part] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)

    @property
    def records(self) -> int:
        """How many, in all parts."""
        return sum(len(part[0]) for part in self.parts)


@dataclass
class Timed:
    """What the records of one input took and made; for a source, what it emitted."""

    batches: list[tuple[float, int]] = field(default_factory=list)
    """CPU ns per record, and records."""
    spread_ns: float = 0.0
    """Watermarks and garbage collection: what comes now and then and counts for all records."""
    made: dict[str, float] = field(default_factory=dict)
    """Records, by output."""

    @property
    def records(self) -> int:
        """How many there were."""
        return sum(count for _, count in self.batches)


@dataclass
class Carried:
    """How the records of one stream travel."""

    deal_ns: list[float] = field(default_factory=list)
    """Per record, to pick one of two receivers."""
    coded: list[CodecTimes] = field(default_factory=list)
    parts: int = 0
    records: int = 0


class Stopwatch:
    """CPU time of calls at the yardstick's speed, that of the garbage collector apart.

    To be used with `with`.
    """

    def __init__(self, yardstick: Yardstick) -> None:
        self.yardstick = yardstick
        self._collecting_ns = 0
        self._began_ns = 0

    def __enter__(self) -> Stopwatch:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.thread_time_ns()
        else:
            self._collecting_ns += time.thread_time_ns() - self._began_ns

    def time(self, call: Callable[..., object], *arguments: Any) -> tuple[float, float]:
        """Time of a call without collecting garbage, and of collecting."""
        factor = self.yardstick.factor()
        collected_ns = self._collecting_ns
        began_ns = time.thread_time_ns()
        call(*arguments)
        spent_ns = time.thread_time_ns() - began_ns
        collected_ns = self._collecting_ns - collected_ns
        return (spent_ns - collected_ns) * factor, collected_ns * factor


class _Discard(Sink):
    """Takes records and does nothing."""

    def write(self, records: Iterator[Record]) -> None:
        """Take them."""
        for _ in records:
            pass


class Station:
    """Where one operator runs by itself, until `close`."""

    def __init__(
        self,
        operator: Operator,
        entering: Sequence[Stream],
        leaving: Sequence[Stream],
        watch: Stopwatch,
        *,
        run_sinks: bool,
    ) -> None:
        logic = operator.logic
        self._is_sink = isinstance(logic, SinkLogic)
        if isinstance(logic, SourceLogic):
            operator = replace(operator, logic=SourceLogic(logic.source.unpaced()))
        elif self._is_sink and not run_sinks:
            operator = replace(operator, logic=SinkLogic(_Discard()))
        self._watch = watch
        self._leaving = leaving
        self.timed = [Timed() for _ in entering] or [Timed()]
        self.carried = [Carried() for _ in leaving]
        self._routers = [_router(stream) for stream in leaving]
        self._batches: list[Batch] = []
        graph = _small_graph(operator, entering, leaving)
        placement = [int(name.operator != operator.name) for name in wire(graph).ids]
        deployment = deploy(graph, placement)
        self._receiver = {
            gates[0].number: graph.streams[number].target
            for number, gates in deployment.gates.items()
        }
        self._woken = threading.Event()
        self._core = Core(
            0,
            deployment,
            time.monotonic_ns,
            self,
            self._woken.set,
            _LIMITS,
        )
        (self._instance,) = self._core.instances
        self._counts = self._instance.counts[operator.name]
        # Each stub sends to one gate, in the order of the inputs.
        self._gates = [
            gates[0].number
            for i in range(len(entering))
            for number, gates in deployment.gates.items()
            if graph.streams[number].source == f"{_FROM} {i}"
        ]

    @property
    def ended(self) -> bool:
        """Whether a source has given all it has."""
        return self._instance.ended

    def poll(self) -> list[Batch]:
        """One poll of a source; by stream, what it emitted."""
        self._begin()
        (timed,) = self.timed
        before = self._counts.records_in
        spent_ns, collecting_ns = self._watch.time(self._core.round)
        polled = self._counts.records_in - before
        if polled:
            timed.batches.append((spent_ns / polled, polled))
            timed.spread_ns += collecting_ns
            _add(timed.made, self._made(), {})
        elif not self.ended:
            self._woken.wait(_PATIENCE_S)
        return self._hand_over()

    def feed(self, inputs: Sequence[Batch], deadline_s: float) -> list[Batch]:
        """Let it process what its inputs carried in a round; by stream, what it made of that."""
        self._begin()
        for i, (batch, timed) in enumerate(zip(inputs, self.timed, strict=True)):
            before = self._made()
            for part in batch.parts:
                count = len(part[0])
                items: list[Item] = [(time.monotonic_ns(), 0, *part)]
                spent_ns, collecting_ns = self._watch.time(self._take, i, items)
                timed.batches.append((spent_ns / count, count))
                timed.spread_ns += collecting_ns
                self._settle(deadline_s)
            for marker in batch.markers:
                timed.spread_ns += sum(self._watch.time(self._take, i, [marker]))
            self._settle(deadline_s)
            _add(timed.made, self._made(), before)
        return self._hand_over()

    def finish(self, deadline_s: float) -> list[Batch]:
        """End its input. A sink is spared that: it would make visible what it has."""
        self._begin()
        while not self._is_sink and not self.ended and time.monotonic() < deadline_s:
            self._instance.finish()
            self._core.round()
            if not self.ended:
                self._wait()
        total = sum(timed.records for timed in self.timed)
        for timed in self.timed:
            share = timed.records / total if total else 0.0
            _add(timed.made, {o: n * share for o, n in self._made().items()}, {})
        return self._hand_over()

    def close(self) -> None:
        """Close the operator."""
        self._core.close()

    def _begin(self) -> None:
        self._batches = [Batch() for _ in self._leaving]

    def _take(self, port: int, items: list[Item]) -> None:
        """Have the operator process what came from one of its inputs."""
        now_ns = time.monotonic_ns()
        instance = self._instance
        instance.inlets[self._gates[port], 1].deliver(items, now_ns, now_ns, 0)
        instance.queue.take(instance, instance.stamp, time.monotonic_ns, 1, [], sys.maxsize)

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        """Keep what the operator has made."""
        for gate, items in parcels:
            batch = self._batches[int(self._receiver[gate].split()[1])]
            for item in items:
                if not isinstance(item, Marker):
                    batch.parts.append((item[2],))
                elif isinstance(item, Watermark):  # where the input ends is up to `finish`
                    batch.markers.append(item)
        return 1

    def credit(self, peer: int, *credit: Any) -> None:
        """Nobody waits for it."""

    def state(self, peer: int, message: StateMessage) -> bool:
        """Nothing moves here."""
        raise NotImplementedError

    def check(self, record: Record) -> None:
        """Everything can be kept."""

    def size(self, records: list[Record]) -> int:
        """Nobody looks at it."""
        return 0

    def _made(self) -> dict[str, float]:
        """Records of this round so far, by output."""
        return {
            stream.output: batch.records
            for stream, batch in zip(self._leaving, self._batches, strict=True)
        }

    def _settle(self, deadline_s: float) -> None:
        """Fire timers, take results of coroutines, and wait until it can take more."""
        self._core.round()
        while self._instance.congested and time.monotonic() < deadline_s:
            self._wait()
            self._core.round()

    def _wait(self) -> None:
        self._woken.wait(_PATIENCE_S)
        self._woken.clear()

    def _hand_over(self) -> list[Batch]:
        """Deal what went to one receiver to two, and note what dealing and encoding take."""
        for carried, router, batch in zip(self.carried, self._routers, self._batches, strict=True):
            whole = batch.parts
            if router is not None:
                batch.parts = []
                for part in whole:
                    records = part[0]
                    count = len(records)
                    spent_ns, _ = self._watch.time(router.put, records)
                    carried.deal_ns.append(spent_ns / count)
                    for lane in router.exchange.lanes:
                        batch.parts += [item[2:] for item in lane.take() if type(item) is tuple]
            for part in batch.parts:
                if carried.parts % _CODED_EVERY == 0:
                    _code(carried, part, self._watch.yardstick)
                carried.parts += 1
                carried.records += len(part[0])
        return self._batches


def _small_graph(
    operator: Operator, entering: Sequence[Stream], leaving: Sequence[Stream]
) -> Graph:
    """The operator, and stubs that are never started in place of its neighbours.

    What leaves is not dealt here: what dealing costs is measured by itself.
    """
    shuffle = Grouping(Rule.SHUFFLE)
    operators = [replace(operator, parallelism=1)]
    streams = []
    for i, stream in enumerate(entering):
        operators.append(Operator(f"{_FROM} {i}", None, is_source=True))
        streams.append(Stream(f"{_FROM} {i}", operator.name, shuffle, port=stream.port))
    for j, stream in enumerate(leaving):
        operators.append(Operator(f"{_TO} {j}", None))
        streams.append(Stream(operator.name, f"{_TO} {j}", shuffle, stream.output))
    return Graph(operator.name, tuple(operators), tuple(streams))


def _router(stream: Stream) -> Router | None:
    """What deals a stream to two receivers, if it is dealt by what records are."""
    if stream.grouping.rule not in DEALT:
        return None
    full: set[Lane | Exchange] = set()
    exchange = Exchange(
        0,
        stream.label,
        Limits(gathered_records=sys.maxsize),
        [],
        keyed=stream.grouping.sends_keys,
    )
    exchange.lay(
        Gate(index, 0, InstanceId(stream.target, index), 0) for index in range(PROFILED_RECEIVERS)
    )
    routes = Routes.even(PROFILED_RECEIVERS)
    return Router(exchange, stream, 0, 0, Stamp(), full, routes)


def _code(carried: Carried, part: Part, yardstick: Yardstick) -> None:
    # Records that cannot travel may stay in their worker, and the codec says it if they do not.
    with suppress(CodecError):
        carried.coded.append(measure_codec([part], yardstick, rounds=1))


def _add(made: dict[str, float], now: dict[str, float], before: dict[str, float]) -> None:
    for output, count in now.items():
        made[output] = made.get(output, 0) + count - before.get(output, 0)
