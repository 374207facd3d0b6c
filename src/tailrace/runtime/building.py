"""What a deployment means to one worker: its instances, and the two ends of its links.

Built once when the job starts, and changed in place when there is another deployment: what both
have stays as it is, with its state, its queue and its credit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tailrace.graph.model import Rule, Stream
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import Deployment, Gate
from tailrace.runtime.exchange import Exchange, Lane
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.inlet import Inlet
from tailrace.runtime.instance import Context, Instance
from tailrace.runtime.limits import Limits
from tailrace.runtime.router import Router
from tailrace.runtime.step import OperatorFailed, Step, call
from tailrace.tail.modes import OFF, SHUFFLED, Tail, tail_of


class Site:
    """One worker's part of a deployment, as running objects."""

    def __init__(
        self,
        rank: int,
        deployment: Deployment,
        clock_ns: Callable[[], int],
        limits: Limits,
        make_context: Callable[..., Context],
        is_near: Callable[[int], bool] = lambda peer: True,
    ) -> None:
        self.rank = rank
        self.deployment = deployment
        self.limits = limits
        self.instances: dict[InstanceId, Instance] = {}
        self.exchanges: dict[tuple[int, int], Exchange] = {}
        """By stream, and for a forwarded one by the index of its sender."""
        self.lanes: dict[int, Lane] = {}
        """By gate."""
        self.inlets: dict[tuple[int, int], Inlet] = {}
        """By gate and sending worker."""
        self.touched: list[Lane] = []
        """Lanes that have something to be sent."""
        self.transfer: dict[int, Histogram] = {}
        self.wait: dict[int, Histogram] = {}
        """By stream."""
        self.tails: dict[int, Tail] = {}
        """How streams are dealt, where that is not as the graph says."""
        self._is_near = is_near
        self._left: set[InstanceId] = set()
        self._clock_ns = clock_ns
        self._make_context = make_context
        for number in deployment.wiring.streams:
            self.transfer[number], self.wait[number] = Histogram(), Histogram()
        try:
            self._add_instances()
        except BaseException:
            with suppress(OperatorFailed):
                self.close()
            raise

    def change(self, deployment: Deployment) -> None:
        """Go on under another deployment.

        Instances that leave must have nothing queued; whoever changes a running job sees to it.
        What they have kept is taken out of them before. Links that end here say so, and do not
        begin again: an instance does not come back to a worker that it has left.
        """
        before, self.deployment = self.deployment, deployment
        for instance in self._leaving(deployment):
            self._remove(instance, before)
        self._lay_lanes()
        self._add_instances()
        self._add_inlets()
        for exchange in self.exchanges.values():
            stream = deployment.graph.streams[exchange.stream]
            if stream.grouping.rule is Rule.KEY:
                for sender in exchange.senders:
                    sender.reroute(deployment.route(exchange.stream))

    def _leaving(self, deployment: Deployment) -> list[Instance]:
        leaving = [
            instance
            for name, instance in self.instances.items()
            if deployment.workers.get(name) != self.rank
        ]
        for instance in leaving:
            if instance.queued_records:
                raise RuntimeError(
                    f"{instance.id} cannot leave worker {self.rank}: it has"
                    f" {instance.queued_records} records queued"
                )
        return leaving

    def _remove(self, instance: Instance, before: Deployment) -> None:
        for routers in instance.routers.values():
            for router in routers:
                if not router.ended:
                    router.exchange.leave(router)
        for gate in before.gates_of[instance.id]:
            for sender in before.links_into(gate):
                self.inlets.pop((gate.number, sender), None)
        del self.instances[instance.id]
        self._left.add(instance.id)
        for name, step in instance.steps:
            call(name, "close", step.close)

    def _lay_lanes(self) -> None:
        for (number, index), exchange in list(self.exchanges.items()):
            gates = self._receivers(number, index)
            kept = {gate.number for gate in gates}
            for lane in exchange.lanes:
                if lane.gate not in kept:
                    if lane.records:
                        raise RuntimeError(f"{lane.records} records wait for gate {lane.gate}")
                    self.lanes.pop(lane.gate, None)
                    if lane in self.touched:
                        self.touched.remove(lane)
            exchange.lay(gates)
            self.lanes.update((lane.gate, lane) for lane in exchange.lanes)

    def _receivers(self, number: int, index: int) -> list[Gate]:
        gates = self.deployment.gates.get(number, ())
        return (
            list(gates) if index < 0 else [gate for gate in gates if gate.instance.index == index]
        )

    def _add_instances(self) -> None:
        for name, worker in self.deployment.workers.items():
            if worker == self.rank and name not in self.instances:
                self._add(name)

    def _add(self, name: InstanceId) -> None:
        if name in self._left:
            raise RuntimeError(f"{name} has left worker {self.rank} before, and cannot come back")
        chain = self.deployment.wiring.home[name.operator]
        instance = Instance(name, chain, self._clock_ns)
        self.instances[name] = instance
        self._open_links_to(instance)
        graph = self.deployment.graph
        for number, (source, _) in self.deployment.wiring.streams.items():
            if source is chain:
                stream = graph.streams[number]
                router = self._router(number, stream, instance)
                instance.routers.setdefault(stream.source, []).append(router)
        instance.build(graph, self._make_context)

    def _router(self, number: int, stream: Stream, instance: Instance) -> Router:
        rule = stream.grouping.rule
        where = number, instance.id.index if rule is Rule.FORWARD else -1
        exchange = self.exchanges.get(where)
        if exchange is None:
            exchange = Exchange(
                number,
                stream.label,
                self.limits,
                self.touched,
                rank=self.rank,
                is_near=self._is_near,
                clock_ns=self._clock_ns,
                stays=rule is Rule.LOCAL_OR_SHUFFLE,
            )
            exchange.deal_by(self._tail(number))
            self.exchanges[where] = exchange
            exchange.lay(self._receivers(*where))
            self.lanes.update((lane.gate, lane) for lane in exchange.lanes)
        routes = self.deployment.route(number) if rule is Rule.KEY else None
        return Router(
            exchange, stream, instance.id.index, self.rank, instance.stamp, instance.full, routes
        )

    def _add_inlets(self) -> None:
        for instance in self.instances.values():
            self._open_links_to(instance)

    def _open_links_to(self, instance: Instance) -> None:
        for gate in self.deployment.gates_of[instance.id]:
            stream = self.deployment.graph.streams[gate.stream]
            for sender in self.deployment.links_into(gate):
                link = gate.number, sender
                if link not in self.inlets:
                    inlet = Inlet(
                        gate.number,
                        sender,
                        stream.port,
                        gate.stream,
                        instance.queue,
                        self.transfer[gate.stream],
                        self.wait[gate.stream],
                        self.limits,
                    )
                    inlet.prompt = self._tail(gate.stream) != OFF
                    self.inlets[link] = instance.inlets[link] = inlet

    def _tail(self, number: int) -> Tail:
        return self.tails.get(number) or tail_of(self.deployment.graph.streams[number])

    def set_tail(self, number: int, mode: Tail) -> list[Inlet]:
        """Have a shuffled stream dealt in another way; what senders should hear of at once."""
        stream = self.deployment.graph.streams[number]
        if stream.grouping.rule not in SHUFFLED:
            raise ValueError(f"{stream.label} is not shuffled; it cannot be dealt by {mode!r}")
        self.tails[number] = mode
        for exchange in self.exchanges.values():
            if exchange.stream == number:
                exchange.deal_by(mode)
        inlets = [inlet for inlet in self.inlets.values() if inlet.stream == number]
        for inlet in inlets:
            inlet.prompt = mode != OFF
        return [inlet for inlet in inlets if inlet.prompt and inlet.unreported]

    def close(self, how: Callable[[Step], Callable[[], None]] = lambda step: step.close) -> None:
        """Close every step, also after a failure; then raise what the first of them raised."""
        failures = []
        for instance in self.instances.values():
            for name, step in instance.steps:
                try:
                    call(name, "close", how(step))
                except OperatorFailed as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]
