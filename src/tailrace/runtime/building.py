"""What a deployment means to one worker: its instances, and the two ends of its links.

Built once when the job starts, and changed in place when there is another deployment (`moving`):
what both have stays as it is, with its state, its queue and its credit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from tailrace.graph.model import Rule, Stream
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import Deployment, Gate
from tailrace.runtime.exchange import Exchange, Lane
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.inlet import Inlet
from tailrace.runtime.instance import Context, Instance
from tailrace.runtime.limits import Limits
from tailrace.runtime.loads import Loads
from tailrace.runtime.router import Router
from tailrace.runtime.step import OperatorFailed, Step, call
from tailrace.tail.modes import MAY_BE_DEALT, OFF, SHUFFLED, Tail, tail_of


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
        loads: Loads | None = None,
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
        self.closing: list[Lane] = []
        """Lanes to receivers that are no more, until they have sent what they hold."""
        self.touched: list[Lane] = []
        """Lanes that have something to be sent."""
        self.transfer: dict[int, Histogram] = {}
        self.wait: dict[int, Histogram] = {}
        """By stream."""
        self.tails: dict[int, Tail] = {}
        """How streams are dealt, where that is not as the graph says."""
        self._is_near = is_near
        self._loads = loads
        self._clock_ns = clock_ns
        self._make_context = make_context
        self._carry(deployment)
        try:
            self._add_instances()
        except BaseException:
            with suppress(OperatorFailed):
                self.close()
            raise

    def _carry(self, deployment: Deployment) -> None:
        for number in deployment.wiring.streams:
            for known in (self.transfer, self.wait):
                known.setdefault(number, Histogram())

    # ---- while the stream flows: see `moving` ----

    def make(self, name: InstanceId, deployment: Deployment, base: int) -> Instance:
        """An instance that will run here under another deployment; nobody knows of it yet."""
        self._carry(deployment)
        instance = Instance(name, deployment.wiring.home[name.operator], self._clock_ns)
        try:
            self._build(instance, deployment, base, joins=False)
            self.open_links(instance, deployment, base)
        except BaseException:
            self.part(instance)
            self.close_links(instance, None)
            self.closed()
            for operator, step in instance.steps:
                with suppress(OperatorFailed):
                    call(operator, "close", step.close)
            raise
        return instance

    def open_links(self, instance: Instance, deployment: Deployment, base: int) -> None:
        """Have links that are new under a deployment, and hold nobody up before it is there."""
        for inlet in self._open_links_to(instance, deployment, base):
            inlet.fresh = True
            inlet.hold()

    def close_links(self, instance: Instance, deployment: Deployment | None) -> list[Inlet]:
        """Take away links that there are not under a deployment (None: all), and return them."""
        kept = set() if deployment is None else links_of(instance.id, deployment)
        gone = [link for link in instance.inlets if link not in kept]
        for link in gone:
            del self.inlets[link]
        return [instance.inlets.pop(link) for link in gone]

    def relay(self, operator: str, deployment: Deployment, base: int) -> None:
        """Have what instances of a chain send go to the receivers of another deployment.

        Lanes to those that are not there any more are `closing`: what they hold is still sent.
        """
        before = self.deployment.wiring.streams
        for (number, index), exchange in self.exchanges.items():
            if number not in before or before[number][0].operators[0] != operator:
                continue
            senders = deployment.senders.get(number, {}).get(self.rank, [])
            if not senders or (index >= 0 and index not in {one.index for one in senders}):
                continue  # nobody sends here any more: see `part`
            self.closing += exchange.lay(self._receivers(number, index, deployment), base)
            self.lanes.update((lane.gate, lane) for lane in exchange.lanes)
            if deployment.graph.streams[number].grouping.rule is Rule.KEY:
                for sender in exchange.senders:
                    sender.reroute(deployment.route(number))

    def part(self, instance: Instance, coming: Iterable[Instance] = ()) -> None:
        """An instance sends no more; where nobody else does, its lanes are closing.

        Not where one of those that are `coming` will: they may be cut in any order, once all input
        has ended.
        """
        left = []
        awaited = [
            router.exchange
            for other in coming
            if other is not instance
            for routers in other.routers.values()
            for router in routers
        ]
        for routers in instance.routers.values():
            for router in routers:
                if router in router.exchange.senders:
                    router.exchange.lose(router)
                left.append(router.exchange)
        for where, exchange in list(self.exchanges.items()):
            if exchange in left and not exchange.senders and exchange not in awaited:
                del self.exchanges[where]
                self.closing += exchange.lanes

    def closed(self) -> list[Lane]:
        """Lanes that were closing, and have sent all."""
        done = [lane for lane in self.closing if not lane.items]
        self.closing = [lane for lane in self.closing if lane.items]
        for lane in done:
            if self.lanes.get(lane.gate) is lane:
                del self.lanes[lane.gate]
        return done

    def _receivers(self, number: int, index: int, deployment: Deployment) -> list[Gate]:
        gates = deployment.gates.get(number, ())
        return (
            list(gates) if index < 0 else [gate for gate in gates if gate.instance.index == index]
        )

    def _add_instances(self) -> None:
        for name, worker in self.deployment.workers.items():
            if worker == self.rank and name not in self.instances:
                self._add(name)

    def _add(self, name: InstanceId) -> None:
        instance = Instance(name, self.deployment.wiring.home[name.operator], self._clock_ns)
        self.instances[name] = instance
        self._build(instance, self.deployment)
        self._open_links_to(instance, self.deployment)

    def _build(
        self, instance: Instance, deployment: Deployment, base: int = 0, *, joins: bool = True
    ) -> None:
        graph = deployment.graph
        for number, (source, _) in deployment.wiring.streams.items():
            if source is instance.chain:
                stream = graph.streams[number]
                router = self._router(number, stream, instance, deployment, base, joins)
                instance.routers.setdefault(stream.source, []).append(router)
        instance.build(graph, self._make_context)

    def _router(
        self,
        number: int,
        stream: Stream,
        instance: Instance,
        deployment: Deployment,
        base: int,
        joins: bool,
    ) -> Router:
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
                loads=self._loads,
                clock_ns=self._clock_ns,
                stays=rule is Rule.LOCAL_OR_SHUFFLE,
                keyed=stream.grouping.sends_keys,
            )
            exchange.deal_by(self._tail(number, deployment))
            self.exchanges[where] = exchange
            exchange.lay(self._receivers(*where, deployment), base)
            self.lanes.update((lane.gate, lane) for lane in exchange.lanes)
        routes = deployment.route(number) if rule is Rule.KEY else None
        return Router(
            exchange,
            stream,
            instance.id.index,
            self.rank,
            instance.stamp,
            instance.full,
            routes,
            joins,
        )

    def _open_links_to(
        self, instance: Instance, deployment: Deployment, base: int = 0
    ) -> list[Inlet]:
        opened = []
        for gate in deployment.gates_of.get(instance.id, ()):
            if gate.worker != self.rank:
                continue
            stream = deployment.graph.streams[gate.stream]
            for sender in deployment.links_into(gate):
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
                        base,
                    )
                    inlet.label = stream.label
                    inlet.prompt = self._tail(gate.stream, deployment) != OFF
                    self.inlets[link] = instance.inlets[link] = inlet
                    opened.append(inlet)
        return opened

    def _tail(self, number: int, deployment: Deployment) -> Tail:
        stream = deployment.graph.streams[number]
        mode = self.tails.get(number) if stream.grouping.rule in SHUFFLED else None
        return mode or tail_of(stream)

    def set_tail(self, number: int, mode: Tail) -> list[Inlet]:
        """Have a shuffled stream dealt in another way; what senders should hear of at once.

        One that runs fused now is dealt so when it does not any more.
        """
        stream = self.deployment.graph.streams[number]
        if stream.grouping.rule not in MAY_BE_DEALT:
            raise ValueError(f"{stream.label} is not shuffled; it cannot be dealt by {mode!r}")
        self.tails[number] = mode
        if stream.grouping.rule is Rule.FORWARD:
            return []
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


def links_of(instance: InstanceId, deployment: Deployment) -> set[tuple[int, int]]:
    """The links into an instance, by gate and sending worker."""
    return {
        (gate.number, sender)
        for gate in deployment.gates_of.get(instance, ())
        for sender in deployment.links_into(gate)
    }
