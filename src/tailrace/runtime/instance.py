"""One instance: a chain of steps, called directly, with its queue of input and its routers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import time_ns
from typing import Any

from tailrace.graph.expand import Chain
from tailrace.graph.model import (
    DEAD_LETTERS,
    Graph,
    Operator,
    Record,
)
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.exchange import Exchange, Lane, Stamp
from tailrace.runtime.guard import Counts, Timing, guard, measured
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.inlet import Inlet, Queue
from tailrace.runtime.markers import (
    BEGINNING,
    IDLE,
    Change,
    Checkpoint,
    End,
    Marker,
    Watermark,
    unknown,
)
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.router import Router
from tailrace.runtime.state import GoingOn, Stateful
from tailrace.runtime.step import Entrance, Fail, Put, Step, call, failure, letter_failure

_PLENTY = 1 << 30


@dataclass
class Context:
    """What a running copy of an operator knows of its surroundings."""

    operator: str
    index: int
    parallelism: int
    clock_ns: Callable[[], int]
    """The worker's clock: it only goes forward, and means nothing elsewhere."""
    put: Callable[[str], Put]
    """The way to an output, by name."""
    set_timer: Callable[[int, Any], None]
    """`set_timer(at_ns, tag)`: call `on_timer` of this step at that time of the worker's clock."""
    advance: Callable[[int], None]
    """Declare a watermark (ns): everything downstream hears of it."""
    wake: Callable[[], None]
    """From any thread: have the worker call `on_wake` of this step soon."""
    counts: Counts
    fail: Fail
    """For a record that failed outside `process`: skip it, or fail the job, as the policy says."""
    emitted_ns: Callable[[], int]
    """When the source emitted what is being processed."""
    emit_as: Callable[..., None]
    """`emit_as(emitted_ns, origin=0)`: what is handed on from now on was emitted by its source
    then, in the batch of that origin; 0: of no one batch."""
    wall_ns: Callable[[], int] = time_ns
    """Wall-clock time: what means the same in other workers."""
    origin: Callable[[], int] = int
    """The origin of what is being processed; 0: none."""
    epoch: int | None = None
    """The epoch that the job goes on from, 0 at the beginning; None: it makes no checkpoints."""
    before: Step | None = None
    """The step that did this before a failure elsewhere, when it is gone back to a checkpoint."""
    going_on: Callable[[], GoingOn | None] = lambda: None
    """What it goes on from, if the job does; read when it is asked for."""


def _fan_out(puts: list[Put]) -> Put:
    if not puts:
        return lambda records: None
    if len(puts) == 1:
        return puts[0]
    *others, last = puts

    def put(records: list[Record]) -> None:
        for other in others:
            other(records.copy())
        last(records)

    return put


def _finder(operator: str, outputs: dict[str, Put]) -> Callable[[str], Put]:
    """What finds the put of an output by its name."""

    def find(output: str) -> Put:
        if output not in outputs:
            raise KeyError(
                f"{operator!r} has no output {output!r}; it has {list(outputs)}, and .side(name) on"
                " its stream adds one"
            )
        return outputs[output]

    return find


@dataclass
class Instance:
    """See above. Built by the core, which also runs it."""

    id: InstanceId
    chain: Chain
    clock_ns: Callable[[], int]
    steps: list[tuple[str, Step]] = field(default_factory=list)
    entries: list[Entrance] = field(default_factory=list)
    """The first step's guards, by port."""
    routers: dict[str, list[Router]] = field(default_factory=dict)
    """By operator."""
    full: set[Lane | Exchange] = field(default_factory=set)
    """The lanes, and shared queues, that it has filled and that cannot be sent now."""
    inlets: dict[tuple[int, int], Inlet] = field(default_factory=dict)
    """Its links, by gate and sending worker."""
    queue: Queue = field(default_factory=Queue)
    timers: list[tuple[int, int, str, Any]] = field(default_factory=list)
    """A heap: when, number, operator, tag."""
    source: SourceStep | None = None
    """Its first step, if that is a source."""
    counts: dict[str, Counts] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    """Of the records that reached a sink here."""
    timing: Timing = field(default_factory=Timing)
    stamp: Stamp = field(default_factory=Stamp)
    """Of what is being processed."""
    watermark: int = BEGINNING
    idle: bool = False
    """Whether all that could hold its time back is idle."""
    watch: Callable[[], None] = lambda: None
    """Have the core look at it in every round, until it is not ending and has no timers."""
    ended: bool = False
    still: bool = False
    """Whether time stands still for it, because keys of its own are on their way to or from it."""
    kept_open: bool = False
    """Whether it does not end with its input, because state is still on its way to it."""
    contexts: dict[str, Context] = field(default_factory=dict)
    """By operator."""
    on_marker: Callable[[Any], None] | None = None
    """What the core does when the marker of an epoch or change has come on one of its links."""
    _fail: Fail | None = None
    """The policy of its first operator."""
    _before: dict[str, str] = field(default_factory=dict)
    """The operator that calls it, for each in the chain but the first."""
    _may_be_busy: list[Step] = field(default_factory=list)
    _ending: Iterator[None] | None = None

    def build(self, graph: Graph, make_context: Callable[..., Context]) -> None:
        """Start the steps, last first, so that each finds those it calls."""
        guards: dict[str, list[Entrance]] = {}
        fail: Fail | None = None
        for name in reversed(self.chain.operators):
            operator = graph.operator(name)
            routers = self.routers.get(name, [])
            puts: dict[str, list[Put]] = {output: [] for output in operator.outputs}
            for stream in graph.out_of(name):
                if stream.target in guards:
                    puts[stream.output].append(guards[stream.target][stream.port])
            for router in routers:
                puts[router.output].append(router.put)
            outputs = {output: _fan_out(found) for output, found in puts.items()}
            counts = self.counts[name] = Counts()
            fail = failure(name, operator.on_error, counts, outputs.get(DEAD_LETTERS))
            for router in routers:
                letters = router.output == DEAD_LETTERS
                router.fails_by(letter_failure(router.put) if letters else fail)
            context = self.contexts[name] = make_context(
                instance=self, operator=operator, put=_finder(name, outputs), fail=fail
            )
            step = call(name, "open", operator.logic.start, context)
            for stream in graph.into(name):
                if stream.source in self.chain.operators:
                    self._before[name] = stream.source
            self.steps.insert(0, (name, step))
            guards[name] = self._guards(operator, step, fail)
        self._fail = fail
        self.entries = guards[self.chain.operators[0]]
        self._may_be_busy = [step for _, step in self.steps if type(step).busy is not Step.busy]
        first = self.steps[0][1]
        self.source = first if isinstance(first, SourceStep) else None

    def _guards(self, operator: Operator, step: Step, fail: Fail) -> list[Entrance]:
        name, counts = operator.name, self.counts[operator.name]
        puts = [
            guard(name, step, port, fail, counts, self.timing, self.clock_ns)
            for port in range(operator.ports)
        ]
        is_sink = set(operator.outputs) <= {DEAD_LETTERS}
        if not is_sink:
            return puts
        return [measured(put, self.latency.counts, self.stamp, self.clock_ns) for put in puts]

    @property
    def emitted_ns(self) -> int:
        """When the source emitted what is being processed."""
        return self.stamp.emitted_ns

    @emitted_ns.setter
    def emitted_ns(self, emitted_ns: int) -> None:
        self.stamp.emitted_ns = emitted_ns

    def reject(self, rejected: list[tuple[Record, Exception]]) -> None:
        """Records that could not be routed by what its first operator asked for."""
        assert self._fail is not None
        self.counts[self.chain.operators[0]].records_in += len(rejected)
        for record, error in rejected:
            self._fail(record, error)

    def hear(self, inlet: Inlet, marker: Marker) -> None:
        """A marker has come, behind all that was sent before it on its link."""
        self.stamp.origin = 0
        if isinstance(marker, Watermark):
            inlet.watermark, self.emitted_ns = marker.time_ns, marker.emitted_ns
        elif isinstance(marker, End):
            inlet.ended = True
            if marker.emitted_ns is not None:
                self.emitted_ns = marker.emitted_ns
        elif isinstance(marker, Checkpoint | Change) and self.on_marker is not None:
            inlet.hold()
            self.on_marker(marker)
            return
        else:
            raise unknown(marker)
        self.consider_time()

    def consider_time(self) -> None:
        """Its links have changed: go on to the time of the slowest, or end when all have."""
        if self.still:
            return  # who has it stand still calls again
        lowest, any_open = IDLE, False
        for inlet in self.inlets.values():
            if not inlet.ended or inlet.reopens:
                any_open = True
                if not inlet.fresh and not inlet.ended and inlet.watermark < lowest:
                    lowest = inlet.watermark
        if any_open:
            self.advance(lowest)
        elif not self.kept_open:
            self.finish()

    def advance(self, watermark: int, after: str | None = None) -> None:
        """Tell the steps (those behind `after`) and everything downstream of a watermark.

        `IDLE` passes by steps that do not hold time: there is nothing for them to do.
        """
        if after is None:
            was_idle, self.idle = self.idle, watermark == IDLE
            if not self.idle:
                risen = watermark > self.watermark
                self.watermark = watermark = max(watermark, self.watermark)
            if was_idle if self.idle else not (risen or was_idle):
                return  # nothing new
        heard = {after}
        for name, step in self.steps:
            if name != after and self._before.get(name) in heard:
                if watermark != IDLE or step.holds_time:
                    call(name, "advance", step.advance, watermark)
                if not step.holds_time:
                    heard.add(name)
            if name in heard:
                for router in self.routers.get(name, []):
                    router.mark(Watermark(watermark, self.emitted_ns))

    def finish(self) -> None:
        """All input has ended: let the steps hand on what they have, and say so downstream.

        While a step has records outstanding this does not get further; call it again, until
        `ended`. The latency of what comes out now counts from when the source ended that was the
        last to do so.
        """
        if self._ending is None:
            if self.source is not None:
                self.emitted_ns = self.clock_ns()
            self._ending = self._finish()
            self.watch()
        next(self._ending, None)

    @property
    def ending(self) -> bool:
        """Whether `finish` has been called."""
        return self._ending is not None

    def _finish(self) -> Iterator[None]:
        ended_ns = self.emitted_ns
        for name, step in self.steps:
            if not (isinstance(step, Stateful) and step.finished):
                call(name, "finish", step.finish)
            while step.outstanding:
                yield
            if isinstance(step, Stateful):
                step.finished = True
        # What cannot be sent is found out when it is, and goes to dead letters before their end;
        # then the same holds for these.
        for _ in range(2):
            for routers in self.routers.values():
                for router in routers:
                    router.exchange.deal_all()
            sending = [(lane, lane.takes) for lane in self._lanes() if lane.records]
            while any(lane.records and lane.takes == takes for lane, takes in sending):
                yield
        for routers in self.routers.values():
            for router in routers:
                router.mark(End(ended_ns))
        self.ended = True

    def _lanes(self) -> Iterator[Lane]:
        for routers in self.routers.values():
            for router in routers:
                yield from router.exchange.lanes

    @property
    def congested(self) -> bool:
        """Whether some receiver cannot take what is gathered for it, or a step has its fill."""
        # Asked several times in every turn: no generator where there is nothing to ask.
        keeper = self.queue.keeper
        return bool(
            self.full
            or (self._may_be_busy and any(s.busy for s in self._may_be_busy))
            or (keeper is not None and keeper.full)
        )

    @property
    def room(self) -> int:
        """About how many records its receivers take in some milliseconds."""
        room = _PLENTY
        for routers in self.routers.values():
            for router in routers:
                room = min(room, router.exchange.room)
        return room

    @property
    def number(self) -> int:
        """What plans call it."""
        return self.chain.first + self.id.index

    def step(self, name: str) -> Step:
        """Its copy of an operator."""
        return next(step for operator, step in self.steps if operator == name)

    @property
    def queued_records(self) -> int:
        """Records that have come and are not yet processed."""
        return sum(inlet.queued for inlet in self.inlets.values())
