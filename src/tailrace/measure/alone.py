"""One operator alone: fed batch by batch, timed, and its outputs kept.

It runs as in a worker, in an instance with its guard, routers and outlets; only what it reads from
and sends to is not there. Every stream has one receiver, and streams by key are dealt to two
afterwards: so dealing, which costs something only where there are several, is measured apart.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from tailrace.graph.model import Graph, Grouping, Operator, Record, Rule, Stream
from tailrace.graph.wiring import Wiring, wire
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.garbage import collected_rarely
from tailrace.runtime.outlet import Item, Marker, Outlet
from tailrace.runtime.router import Router
from tailrace.runtime.source import Sink, SinkLogic, SourceLogic

DEALT = (Rule.KEY, Rule.PARTIAL_KEY, Rule.CUSTOM)
RECEIVERS = 2
"""That dealt streams are dealt to."""
_LIMITS = Limits(window_records=sys.maxsize, gathered_records=sys.maxsize)
_PATIENCE_S = 0.001


@dataclass
class Batch:
    """What one stream carried in one round: records by receiver, and then markers."""

    parts: list[list[Record]] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)


Rounds = list[Batch]
"""By round: what came of one poll of the sources."""


@dataclass
class Timed:
    """What the records of one input took and made."""

    batches: list[tuple[float, int]] = field(default_factory=list)
    """CPU ns per record, and records."""
    spread_ns: int = 0
    """Watermarks and garbage collection: what comes now and then and counts for all records."""
    made: dict[str, int] = field(default_factory=dict)
    """Records, by output."""

    @property
    def records(self) -> int:
        """How many there were."""
        return sum(count for _, count in self.batches)


@dataclass
class Alone:
    """An operator's run: times by input (None: a source's), and what each stream carried."""

    timed: dict[int | None, Timed]
    carried: list[Rounds]
    complete: bool = True
    """Whether there was time for all of the input."""
    deal_ns: dict[int, float] = field(default_factory=dict)
    """CPU ns per record to pick one of two receivers, by stream that does so by the record."""


class Discard(Sink):
    """Takes records and does nothing."""

    def write(self, records: Iterator[Record]) -> None:
        """Take them."""
        for _ in records:
            pass


class _Stopwatch:
    """CPU time of calls, that of the garbage collector apart; with it set as in a worker."""

    def __init__(self) -> None:
        self._collecting_ns = 0
        self._began_ns = 0
        self._collector = collected_rarely()

    def __enter__(self) -> _Stopwatch:
        self._collector.__enter__()
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)
        self._collector.__exit__(None, None, None)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.thread_time_ns()
        else:
            self._collecting_ns += time.thread_time_ns() - self._began_ns

    def time(self, call: Callable[..., object], *arguments: Any) -> tuple[int, int]:
        """Time of a call without collecting garbage, and of collecting."""
        collected_ns = self._collecting_ns
        began_ns = time.thread_time_ns()
        call(*arguments)
        spent_ns = time.thread_time_ns() - began_ns
        collected_ns = self._collecting_ns - collected_ns
        return spent_ns - collected_ns, collected_ns


class Bench:
    """Where one operator runs alone."""

    def __init__(
        self, operator: Operator, entering: Sequence[Stream], leaving: Sequence[Stream]
    ) -> None:
        self._name = operator.name
        self._leaving = leaving
        self.carried: list[Rounds] = [[] for _ in leaving]
        graph = _small_graph(operator, entering, leaving)
        self._wiring: Wiring = wire(graph)
        placement = tuple(
            int(self._wiring.chain_of(i).operators[0] != operator.name)
            for i in range(self._wiring.instances)
        )
        self.woken = threading.Event()
        self.core = Core(
            0,
            self._wiring,
            placement,
            time.monotonic_ns,
            self._keep,
            lambda peer, link, taken: None,
            self.woken.set,
            _LIMITS,
        )
        (self.instance,) = self.core.instances
        # Each stub sends by one link, in the order of the inputs.
        self.inlets = [
            self.instance.inlets[link.id]
            for i in range(len(entering))
            for link in self._wiring.links
            if link.stream.source == f"from {i}"
        ]

    def next_round(self) -> None:
        """What is made from now on came of the next poll."""
        for rounds in self.carried:
            rounds.append(Batch())

    def _keep(self, peer: int, link: int, items: list[Item]) -> bool:
        j = int(self._wiring.links[link].stream.target.split()[1])
        batch = self.carried[j][-1]
        for item in items:
            if isinstance(item, Marker):
                batch.markers.append(item)
            else:
                batch.parts.append(item[1])
        return True

    def made(self) -> dict[str, int]:
        """Records in the current round so far, by output."""
        return {
            stream.output: sum(map(len, rounds[-1].parts))
            for stream, rounds in zip(self._leaving, self.carried, strict=True)
        }

    def settle(self, deadline_s: float) -> None:
        """Fire timers, take results of coroutines, and wait until it can take more."""
        self.core.round()
        while self.instance.congested and time.monotonic() < deadline_s:
            self.woken.wait(_PATIENCE_S)
            self.woken.clear()
            self.core.round()

    def finish(self, deadline_s: float) -> None:
        """End the input; what the operator hands on then counts as made in a last round."""
        self.next_round()
        while not self.instance.ended and time.monotonic() < deadline_s:
            self.instance.finish()
            self.core.round()
            if not self.instance.ended:
                self.woken.wait(_PATIENCE_S)
                self.woken.clear()
        for rounds in self.carried:
            rounds[-1].markers.clear()


def _small_graph(
    operator: Operator, entering: Sequence[Stream], leaving: Sequence[Stream]
) -> Graph:
    """The operator, and stubs that are never started in place of its neighbours.

    It does not matter by what rule the one receiver is picked.
    """
    operators = [replace(operator, parallelism=1)]
    streams = []
    for i, stream in enumerate(entering):
        operators.append(Operator(f"from {i}", None, is_source=True))
        streams.append(Stream(f"from {i}", operator.name, Grouping(Rule.SHUFFLE), port=stream.port))
    for j, stream in enumerate(leaving):
        operators.append(Operator(f"to {j}", None))
        streams.append(Stream(operator.name, f"to {j}", Grouping(Rule.SHUFFLE), stream.output))
    return Graph(operator.name, tuple(operators), tuple(streams))


def run_source(
    operator: Operator, leaving: Sequence[Stream], records: int, seconds: float
) -> Alone:
    """Poll a source as fast as it gives, so many records or so long."""
    logic = operator.logic
    if isinstance(logic, SourceLogic):
        operator = replace(operator, logic=SourceLogic(logic.source.unpaced()))
    deadline_s = time.monotonic() + seconds
    bench = Bench(operator, (), leaving)
    timed = Timed()
    counts = bench.instance.counts[operator.name]
    with _Stopwatch() as watch, closing(bench.core):
        while not bench.instance.ended and counts.records_in < records:
            before = counts.records_in
            bench.next_round()
            spent_ns, collecting_ns = watch.time(bench.core.round)
            polled = counts.records_in - before
            if polled:
                timed.batches.append((spent_ns / polled, polled))
                timed.spread_ns += collecting_ns
                _add(timed.made, bench.made(), {})
            else:
                for rounds in bench.carried:
                    rounds.pop()
                bench.woken.wait(_PATIENCE_S)
            if time.monotonic() > deadline_s:
                break
    return _dealt(Alone({None: timed}, bench.carried), leaving)


def run_operator(
    operator: Operator,
    entering: Sequence[Stream],
    leaving: Sequence[Stream],
    inputs: Sequence[Rounds],
    seconds: float,
    *,
    run_sinks: bool,
) -> Alone:
    """Feed an operator what its inputs carried, round by round, for so long at most."""
    is_sink = isinstance(operator.logic, SinkLogic)
    if is_sink and not run_sinks:
        operator = replace(operator, logic=SinkLogic(Discard()))
    deadline_s = time.monotonic() + seconds
    bench = Bench(operator, entering, leaving)
    timed: dict[int | None, Timed] = {i: Timed() for i in range(len(entering))}
    complete = True
    with _Stopwatch() as watch, closing(bench.core):
        for number in range(max(map(len, inputs), default=0)):
            if time.monotonic() > deadline_s:
                complete = False
                break
            bench.next_round()
            for i, rounds in enumerate(inputs):
                if number < len(rounds):
                    _feed(bench, watch, i, rounds[number], timed[i], deadline_s)
        if not is_sink:  # which would make visible what it has
            bench.finish(deadline_s + seconds)
            _share_out(bench.made(), timed)
    return _dealt(Alone(timed, bench.carried, complete), leaving)


def _feed(
    bench: Bench, watch: _Stopwatch, i: int, batch: Batch, timed: Timed, deadline_s: float
) -> None:
    inlet, instance = bench.inlets[i], bench.instance
    before = bench.made()
    for records in batch.parts:
        count = len(records)
        items: list[Item] = [(time.monotonic_ns(), records)]
        spent_ns, collecting_ns = watch.time(instance.take, inlet, items)
        timed.batches.append((spent_ns / count, count))
        timed.spread_ns += collecting_ns
        bench.settle(deadline_s)
    for marker in batch.markers:
        timed.spread_ns += sum(watch.time(instance.take, inlet, [marker]))
    bench.settle(deadline_s)
    _add(timed.made, bench.made(), before)


def _add(made: dict[str, int], now: dict[str, int], before: dict[str, int]) -> None:
    for output, count in now.items():
        made[output] = made.get(output, 0) + count - before.get(output, 0)


def _share_out(made: dict[str, int], timed: dict[int | None, Timed]) -> None:
    """Give what was made at the end to the inputs, by their records."""
    total = sum(one.records for one in timed.values())
    for one in timed.values():
        for output, count in made.items():
            share = count * one.records / total if total else 0
            one.made[output] = one.made.get(output, 0) + round(share)


def _dealt(run: Alone, leaving: Sequence[Stream]) -> Alone:
    """Deal what went to one receiver to two, and note what that takes."""
    for j, (stream, rounds) in enumerate(zip(leaving, run.carried, strict=True)):
        if stream.grouping.rule not in DEALT:
            continue
        full: set[Outlet] = set()
        outlets = [Outlet(link, 0, sys.maxsize, full) for link in range(RECEIVERS)]
        router = Router(stream.grouping, outlets, [], 0, lambda: 0, lambda outlet: None, stream)
        times: list[float] = []
        for batch in rounds:
            whole, batch.parts = batch.parts, []
            for records in whole:
                began_ns = time.thread_time_ns()
                router.put(records)
                times.append((time.thread_time_ns() - began_ns) / len(records))
                batch.parts += [
                    item[1]
                    for outlet in outlets
                    for item in outlet.take()
                    if isinstance(item, tuple)
                ]
        if times:
            run.deal_ns[j] = round(median(times), 1)
    return run
