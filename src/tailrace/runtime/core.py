"""A worker without I/O: its instances, their queues, flow control and timers.

Messages and time come in through `deliver`, `credit` and the clock; messages go out through `send`
and `report`, which the owner provides. So the same core runs in a Spark worker, in the test kit
under virtual time, and in simulations with seeds.

One round takes what is queued, polls the sources, and then lets go of everything gathered: under
load a round has much to do and its jumbos are large, at low rate a jumbo is one record that has
waited for nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any

from tailrace.graph.model import Operator
from tailrace.graph.wiring import Wiring
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.instance import Context, Instance
from tailrace.runtime.outlet import Inlet, Item, Marker, Outlet, add_marker
from tailrace.runtime.router import Router
from tailrace.runtime.source import SourceStep
from tailrace.runtime.step import Fail, OperatorFailed, Put, call

Send = Callable[[int, int, list[Item]], int]
"""`send(peer, link, items)`: its size in bytes; 0: no room now, it is tried again later."""
Size = Callable[[list[Item]], int]
"""`size(items)`: what they would take as a message to another worker, in bytes."""
Report = Callable[[int, int, int], None]
"""`report(peer, link, taken)`: tell a sender how many of its records have been taken, ever."""


@dataclass(frozen=True)
class Limits:
    """The bounds on everything that could grow."""

    window_records: int = 8192
    """Records of one link that are under way or queued at the receiver."""
    window_bytes: int = 16 << 20
    """Bytes of one link between two workers that are under way or queued, as encoded."""
    gathered_records: int = 2048
    """Records gathered for one receiver, above which their producer waits."""
    poll_records: int = 1024
    """The most records taken from a source in one round; fewer while rounds take long."""
    round_messages: int = 64
    """Messages an instance processes in one round."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


DEFAULT_LIMITS = Limits()

LinkCounts = tuple[int, int, int, int]
"""A link, its messages, records and bytes."""
_SAMPLE_RECORDS = 64
_FIRST_APPETITE = 256
_ROUND_NS = 1_000_000
"""About how long a round under load should take: long enough to be worth its own work."""
_LEAST_SHARE = 64
"""However long rounds take, one in so many records may come from a source."""


@dataclass
class StreamStats:
    """What one stream has carried, as seen at this worker."""

    sent: int
    received: int
    transfer: Histogram
    wait: Histogram


class Core:
    """See above. All methods are called from one thread, but for `wake` of a context."""

    def __init__(
        self,
        rank: int,
        wiring: Wiring,
        placement: tuple[int, ...],
        clock_ns: Callable[[], int],
        send: Send,
        report: Report,
        wake: Callable[[], None] = lambda: None,
        limits: Limits = DEFAULT_LIMITS,
        size: Size = lambda items: 0,
    ) -> None:
        self.rank = rank
        self.wiring = wiring
        self.limits = limits
        self._clock_ns = clock_ns
        self._send = send
        self._report = report
        self._wake = wake
        self._size = size
        self._sampled: set[str] = set()  # streams whose records were measured lately
        self._samples: dict[str, tuple[int, int]] = {}  # by stream: records and bytes
        self._outlets: dict[int, Outlet] = {}
        self._receiver: dict[int, Instance] = {}
        self._touched: dict[Outlet, None] = {}
        self._appetite = min(_FIRST_APPETITE, limits.poll_records)  # for what a source has
        self._timer_ids = count()
        self._closed = False
        self._woken: list[tuple[Instance, str]] = []
        self._labels = [link.stream.label for link in wiring.links]
        labels = dict.fromkeys(self._labels)
        self._transfer = {label: Histogram() for label in labels}
        self._wait = {label: Histogram() for label in labels}
        self._placement = placement
        self.instances: list[Instance] = []
        try:
            for i, worker in enumerate(placement):
                if worker == rank:
                    self._add_instance(i)
        except BaseException:
            with suppress(OperatorFailed):
                self.close()
            raise

    # ---- building ----

    def _add_instance(self, instance_id: int) -> None:
        chain = self.wiring.chain_of(instance_id)
        instance = Instance(instance_id, chain, self._clock_ns)
        self.instances.append(instance)
        for link in self.wiring.links_into[instance_id]:
            label = link.stream.label
            instance.inlets[link.id] = Inlet(
                link.id,
                self._placement[link.sender],
                link.stream.port,
                self._transfer[label],
                self._wait[label],
            )
            self._receiver[link.id] = instance
        # Streams may be equal (a stream merged with itself) and are still two.
        leaving = groupby(self.wiring.links_out_of[instance_id], lambda link: id(link.stream))
        for links in (list(group) for _, group in leaving):
            stream = links[0].stream
            limits = self.limits
            outlets = [
                Outlet(link.id, self._placement[link.receiver], limits, instance.full)
                for link in links
            ]
            router = Router(
                stream.grouping,
                outlets,
                [outlet for outlet in outlets if outlet.peer == self.rank],
                instance_id - chain.first,
                lambda: instance.emitted_ns,
                self._touch,
                stream,
            )
            instance.routers.setdefault(stream.source, []).append(router)
            instance.outlets += outlets
            self._outlets.update((outlet.link, outlet) for outlet in outlets)
        instance.build(self.wiring.graph, self._context)

    def _context(
        self, instance: Instance, operator: Operator, put: Callable[[str], Put], fail: Fail
    ) -> Context:
        # Both may be called before the step is there, from its `open`: it is looked up when due.
        def wake() -> None:
            self._woken.append((instance, operator.name))
            self._wake()

        def set_timer(at_ns: int, tag: Any) -> None:
            timer = (at_ns, next(self._timer_ids), operator.name, tag)
            heapq.heappush(instance.timers, timer)

        def emit_as(emitted_ns: int) -> None:
            instance.emitted_ns = emitted_ns

        return Context(
            operator=operator.name,
            index=instance.id - instance.chain.first,
            parallelism=operator.parallelism,
            clock_ns=self._clock_ns,
            put=put,
            set_timer=set_timer,
            advance=lambda watermark: instance.advance(watermark, operator.name),
            wake=wake,
            counts=instance.counts[operator.name],
            fail=fail,
            emitted_ns=lambda: instance.emitted_ns,
            emit_as=emit_as,
        )

    # ---- what comes in ----

    def deliver(self, link: int, items: list[Item], sent_ns: int, size_bytes: int = 0) -> None:
        """Queue a message that has arrived; from another worker, of that size."""
        instance = self._receiver[link]
        inlet = instance.inlets[link]
        records = 0
        for item in items:
            if not isinstance(item, Marker):
                records += len(item[1])
        inlet.received += records
        if not records and inlet.last is not None:
            # No credit bounds markers; behind the sender's newest message they take no room.
            for item in items:
                assert isinstance(item, Marker)
                add_marker(inlet.last, item)
            return
        inlet.last = items
        now_ns = self._clock_ns()
        if records:
            inlet.transfer.record(now_ns - sent_ns, records)
        instance.queue.append((inlet, items, now_ns, size_bytes))

    def credit(self, link: int, taken: int) -> None:
        """A receiver has taken that many records of a link since the start."""
        outlet = self._outlets[link]
        outlet.credit(taken)
        if outlet.items:
            self._touch(outlet)

    def stop_sources(self) -> None:
        """Let every source end where it is; the job then drains and ends by itself."""
        for instance in self.instances:
            for _, step in instance.steps:
                if isinstance(step, SourceStep):
                    step.stop()

    # ---- the round ----

    def round(self) -> bool:
        """Do what can be done now. False: there was nothing, and nothing changes by itself."""
        started_ns = self._clock_ns()
        appetite = self._appetite
        polled = taken = 0  # the most records of a source, and all from queues
        progress = bool(self._woken) and self._rouse()
        for instance in self.instances:
            if instance.ended:
                continue
            if instance.timers and not instance.full:
                progress |= self._fire(instance)
            if instance.ending:
                instance.finish()
                progress |= instance.ended
            elif instance.source is not None:
                if not instance.congested:
                    found = self._poll(instance, instance.source, appetite)
                    polled = max(polled, found)
                    progress |= found > 0 or instance.ending
            elif instance.queue:
                for _ in range(min(len(instance.queue), self.limits.round_messages)):
                    if instance.congested:
                        break
                    taken += self._take(instance)
                    progress = True
        progress |= self.flush()
        if polled:
            self._adapt(polled, taken, self._clock_ns() - started_ns)
        return progress

    def _adapt(self, polled: int, taken: int, took_ns: int) -> None:
        """Take more from sources when a round was quickly done, and less when it took long.

        What other workers send may be what takes long: a source has its share beside it. A round
        with one record that took long says nothing: the system may have stopped us.
        """
        appetite, share = self._appetite, taken // _LEAST_SHARE
        if took_ns < _ROUND_NS or appetite < share:
            if polled >= appetite:
                self._appetite = min(2 * appetite, self.limits.poll_records)
        elif took_ns > 2 * _ROUND_NS and polled > 1 and appetite // 2 >= share:
            self._appetite = max(appetite // 2, 1)

    def _take(self, instance: Instance) -> int:
        """Process a queued message, and return how many records it held."""
        inlet, items, received_ns, size_bytes = instance.queue.popleft()
        if inlet.last is items:
            inlet.last = None
        waited_ns = self._clock_ns() - received_ns
        taken = instance.take(inlet, items)
        if not taken:
            return 0
        inlet.wait.record(waited_ns, taken)
        inlet.unreported_bytes += size_bytes
        if (
            inlet.unreported >= self.limits.window_records // 4
            or inlet.unreported_bytes >= self.limits.window_bytes // 4
        ):
            inlet.unreported = inlet.unreported_bytes = 0
            if inlet.peer == self.rank:
                self.credit(inlet.link, inlet.taken)
            else:
                self._report(inlet.peer, inlet.link, inlet.taken)
        return taken

    def _poll(self, instance: Instance, source: SourceStep, most: int) -> int:
        """Process what a source has, and return how many records that were."""
        name = instance.steps[0][0]
        started_ns, instance.timing.inner_ns = self._clock_ns(), 0
        records = call(name, "poll", source.poll, most)
        if records is None:
            instance.finish()
        if not records:
            return 0
        instance.emitted_ns = source.emitted_ns
        counts = instance.counts[name]
        count = len(records)
        counts.records_in += count
        source.put(records)
        counts.execute_ns += self._clock_ns() - started_ns - instance.timing.inner_ns
        return count

    def _fire(self, instance: Instance) -> bool:
        """Call the timers that are due. What they set themselves waits for the next round."""
        now_ns, before = self._clock_ns(), next(self._timer_ids)
        timers, fired = instance.timers, False
        while timers and timers[0][0] <= now_ns and timers[0][1] < before and not instance.full:
            at_ns, _, name, tag = heapq.heappop(timers)
            instance.emitted_ns = at_ns
            call(name, "timer", instance.step(name).on_timer, at_ns, tag)
            fired = True
        return fired

    def _rouse(self) -> bool:
        # Another thread may append meanwhile (`wake`): take one by one, so that none is lost.
        woken = [self._woken.pop() for _ in range(len(self._woken))]
        for instance, name in woken:
            if not instance.ended:
                call(name, "wake", instance.step(name).on_wake)
        return bool(woken)

    def _touch(self, outlet: Outlet) -> None:
        self._touched[outlet] = None

    def flush(self) -> bool:
        """Send what is gathered, as far as receivers have credit and channels have room."""
        if not self._touched:
            return False
        progress = False
        touched, self._touched = self._touched, {}
        for outlet in touched:
            if (
                outlet.credit_used >= self.limits.window_records
                or outlet.bytes_used >= self.limits.window_bytes
            ):
                continue  # `credit` touches it again
            if outlet.peer == self.rank:
                if self._labels[outlet.link] not in self._sampled:
                    self._sample(outlet)
                self.deliver(outlet.link, outlet.take(), self._clock_ns())
            elif size_bytes := self._send(outlet.peer, outlet.link, outlet.items):
                outlet.take(size_bytes)
            else:
                outlet.seal()
                self._touched[outlet] = None
                continue
            progress = True
        return progress

    def _sample(self, outlet: Outlet) -> None:
        """Measure some records that never leave this worker, and so are never encoded."""
        records = next((item[1] for item in outlet.items if not isinstance(item, Marker)), [])
        some = records[:_SAMPLE_RECORDS]
        if some:
            label = self._labels[outlet.link]
            self._sampled.add(label)
            count, size_bytes = self._samples.get(label, (0, 0))
            measured = self._size([(0, some)])
            self._samples[label] = (count + len(some), size_bytes + measured)

    # ---- what the owner asks ----

    @property
    def ended(self) -> bool:
        """Whether all instances have ended and everything has been sent."""
        return all(instance.ended for instance in self.instances) and not any(
            outlet.items for outlet in self._outlets.values()
        )

    @property
    def outstanding(self) -> bool:
        """Whether a step waits for something outside this core, and will be woken by it."""
        return any(step.outstanding for one in self.instances for _, step in one.steps)

    def next_due_ns(self) -> int | None:
        """When there is something to do by time alone: a timer or a source; None: never."""
        due = []
        for instance in self.instances:
            if instance.timers and not instance.ended and not instance.full:
                due.append(instance.timers[0][0])
            if instance.source is not None and not instance.ending and not instance.congested:
                at_ns = instance.source.due_ns()
                if at_ns is not None:
                    due.append(at_ns)
        return min(due, default=None)

    def close(self) -> None:
        """Close every step once, also after a failure; then raise what the first of them raised."""
        if self._closed:
            return
        self._closed = True
        failures = []
        for instance in self.instances:
            for name, step in instance.steps:
                try:
                    call(name, "close", step.close)
                except OperatorFailed as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]

    def streams(self) -> dict[str, StreamStats]:
        """What each stream has carried, by label."""
        stats = {
            label: StreamStats(0, 0, transfer, self._wait[label])
            for label, transfer in self._transfer.items()
        }
        for link, outlet in self._outlets.items():
            stats[self._labels[link]].sent += outlet.sent
        for link, instance in self._receiver.items():
            stats[self._labels[link]].received += instance.inlets[link].taken
        return stats

    def traffic(self) -> list[LinkCounts]:
        """What each link from here has carried since the start: (link, messages, records, bytes).

        Bytes inside the worker are by a sample of the stream's records, one for each call of this.
        """
        self._sampled.clear()
        found = []
        for link, outlet in self._outlets.items():
            if outlet.messages:
                size_bytes = outlet.bytes_sent
                if outlet.peer == self.rank:
                    count, measured = self._samples.get(self._labels[link], (1, 0))
                    size_bytes = round(outlet.sent * measured / count)
                found.append((link, outlet.messages, outlet.sent, size_bytes))
        return found
