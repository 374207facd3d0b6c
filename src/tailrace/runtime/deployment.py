"""A plan made concrete: which worker runs which instance, and how records find them.

Ids stay. An instance is known by its first operator and its index. Where a stream enters an
instance there is a *gate*, whose number is given out once and never again: an instance that moves
to another worker gets new gates there, and nothing else is renumbered. What one worker sends to one
gate is a *link*: it has a credit and an order of its own, whichever of the worker's instances are
the senders. So a worker has as many links as it has receivers, and not as many as there are pairs.

Changing a running job means making a new deployment out of the old one (`changed`), of which every
core takes over what concerns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from tailrace.graph.model import Graph, Rule, Stream
from tailrace.graph.validate import validate
from tailrace.graph.wiring import InstanceId, Wiring, wire
from tailrace.routing.slots import Routes

NOWHERE = -1
"""As the worker of an instance: nobody runs it."""


class Gate(NamedTuple):
    """Where a stream enters an instance."""

    number: int
    stream: int
    """The stream's number in the graph."""
    instance: InstanceId
    worker: int
    """Where the instance runs."""


@dataclass(frozen=True)
class Layout:
    """What a deployment has beside the graph, as plain data: to be sent, and kept."""

    parallelism: Mapping[str, int]
    """By operator."""
    workers: Mapping[InstanceId, int]
    gates: Mapping[int, tuple[Gate, ...]]
    next_gate: int
    routes: Mapping[int, Routes]
    forwarded: frozenset[int] | None = None
    """Of the streams that a plan may forward or shuffle, those that are forwarded; None: as the
    graph says."""

    @property
    def places(self) -> int:
        """How many workers there must be."""
        return max(self.workers.values(), default=NOWHERE) + 1

    def seated(self, seats: Sequence[int]) -> Layout:
        """With `seats[worker]` in the place of each worker."""

        def seat(worker: int) -> int:
            return worker if worker == NOWHERE else seats[worker]

        gates = {
            stream: tuple(gate._replace(worker=seat(gate.worker)) for gate in some)
            for stream, some in self.gates.items()
        }
        workers = {one: seat(worker) for one, worker in self.workers.items()}
        return replace(self, workers=workers, gates=gates)

    def routed(self, graph: Graph) -> dict[str, int]:
        """By operator that is reached by key, the fingerprint of who owns which keys."""
        return {
            graph.streams[stream].target: routes.fingerprint
            for stream, routes in self.routes.items()
        }

    def of(self, graph: Graph) -> Deployment:
        """The deployment of a graph, whose own parallelism does not matter."""
        if self.forwarded is not None:
            graph = with_forwarded(graph, self.forwarded)
        wiring = wire(with_parallelism(graph, self.parallelism))
        return Deployment(wiring, self.workers, self.gates, self.next_gate, self.routes)


@dataclass(frozen=True)
class Deployment:
    """See above. Made by `deploy` and `changed`."""

    wiring: Wiring
    workers: Mapping[InstanceId, int]
    """Who runs each instance."""
    gates: Mapping[int, tuple[Gate, ...]]
    """By stream, in the order of the instances they lead to."""
    next_gate: int
    routes: Mapping[int, Routes] = field(default_factory=dict)
    """Of streams by key, where they are not the even ones: which instance owns which keys."""

    @property
    def graph(self) -> Graph:
        """What is deployed."""
        return self.wiring.graph

    @property
    def layout(self) -> Layout:
        """What it has beside the graph."""
        parallelism = {one.name: one.parallelism for one in self.graph.operators}
        forwarded = forwarded_in(self.graph)
        return Layout(parallelism, self.workers, self.gates, self.next_gate, self.routes, forwarded)

    @cached_property
    def senders(self) -> dict[int, dict[int, list[InstanceId]]]:
        """For each stream, its sending instances by their worker."""
        found: dict[int, dict[int, list[InstanceId]]] = {}
        for number, (source, _) in self.wiring.streams.items():
            by_worker = found[number] = {}
            for index in range(source.parallelism):
                instance = InstanceId(source.operators[0], index)
                if (worker := self.workers[instance]) != NOWHERE:
                    by_worker.setdefault(worker, []).append(instance)
        return found

    @cached_property
    def gates_of(self) -> dict[InstanceId, list[Gate]]:
        """The gates of each instance."""
        found: dict[InstanceId, list[Gate]] = {instance: [] for instance in self.workers}
        for gates in self.gates.values():
            for gate in gates:
                found[gate.instance].append(gate)
        return found

    def links_into(self, gate: Gate) -> list[int]:
        """The workers that send to a gate."""
        senders = self.senders[gate.stream]
        if self.graph.streams[gate.stream].grouping.rule is Rule.FORWARD:
            source, _ = self.wiring.streams[gate.stream]
            worker = self.workers[InstanceId(source.operators[0], gate.instance.index)]
            return [] if worker == NOWHERE else [worker]
        return list(senders)

    def route(self, stream: int) -> Routes:
        """Which instances own which keys of a stream by key."""
        return self.routes.get(stream) or Routes.even(len(self.gates[stream]))


def deploy(graph: Graph, placement: Sequence[int]) -> Deployment:
    """A first deployment: the worker of each instance, as plans number them."""
    wiring = wire(graph)
    if len(placement) != wiring.instances:
        raise ValueError(f"{len(placement)} places for {wiring.instances} instances")
    return _made(wiring, dict(zip(wiring.ids, placement, strict=True)), {}, 0, {})


def changed(
    before: Deployment,
    *,
    parallelism: Mapping[str, int] | None = None,
    workers: Mapping[InstanceId, int] | None = None,
    routes: Mapping[int, Routes] | None = None,
    forwarded: frozenset[int] | None = None,
) -> Deployment:
    """The deployment that comes after another; what is not named stays, ids included.

    `parallelism` is by operator: all of a chain change together. Instances that are new must have a
    worker in `workers`. Where receivers by key change in number, as few keys as can be change their
    owner, unless routes are given. With `forwarded`, other operators run fused: see `Layout`.
    """
    graph = before.graph
    if parallelism:
        known = {operator.name for operator in graph.operators}
        if unknown := set(parallelism) - known:
            raise KeyError(f"no operator {min(unknown)!r}; there are {sorted(known)}")
        graph = with_parallelism(graph, parallelism)
    if forwarded is not None:
        graph = with_forwarded(graph, forwarded)
    if graph is not before.graph:
        validate(graph)
    wiring = wire(graph)
    named = {**before.workers, **(workers or {})}
    if missing := [instance for instance in wiring.ids if instance not in named]:
        raise ValueError(f"no worker is given for the new instance {missing[0]}")
    kept: dict[int, Routes] = {}
    for stream, (_, target) in wiring.streams.items():
        if graph.streams[stream].grouping.rule is Rule.KEY:
            if target.parallelism != len(before.gates[stream]):
                kept[stream] = before.route(stream).spread(target.parallelism)
            elif stream in before.routes:
                kept[stream] = before.routes[stream]
    where = {instance: named[instance] for instance in wiring.ids}
    # An instance of other operators is another one, wherever it runs: it has gates of its own.
    recast = recast_heads(before.wiring, wiring)
    gates = {
        stream: tuple(gate for gate in some if gate.instance.operator not in recast)
        for stream, some in before.gates.items()
    }
    return _made(wiring, where, gates, before.next_gate, {**kept, **(routes or {})})


def recast_heads(before: Wiring, after: Wiring) -> frozenset[str]:
    """The first operators of chains that the other of two wirings does not have."""
    chains = ({chain.operators for chain in one.chains} for one in (before, after))
    return frozenset(operators[0] for operators in set.symmetric_difference(*chains))


def with_parallelism(graph: Graph, parallelism: Mapping[str, int]) -> Graph:
    """A graph whose operators have other numbers of instances, where these are given."""
    operators = tuple(
        replace(one, parallelism=parallelism.get(one.name, one.parallelism))
        for one in graph.operators
    )
    return replace(graph, operators=operators)


def forwarded_in(graph: Graph) -> frozenset[int]:
    """The streams of a graph that are forwarded, by number."""
    streams = enumerate(graph.streams)
    return frozenset(n for n, one in streams if one.grouping.rule is Rule.FORWARD)


def with_forwarded(graph: Graph, forwarded: frozenset[int]) -> Graph:
    """A graph in which these streams are forwarded; others that were forwarded are shuffled."""

    def grouped(number: int, stream: Stream) -> Stream:
        rule = Rule.FORWARD if number in forwarded else Rule.SHUFFLE
        if stream.grouping.rule in (rule, *(set(Rule) - {Rule.FORWARD, Rule.SHUFFLE})):
            return stream
        return replace(stream, grouping=replace(stream.grouping, rule=rule))

    streams = tuple(grouped(number, stream) for number, stream in enumerate(graph.streams))
    return replace(graph, streams=streams)


def _made(
    wiring: Wiring,
    workers: dict[InstanceId, int],
    before: Mapping[int, tuple[Gate, ...]],
    next_gate: int,
    routes: dict[int, Routes],
) -> Deployment:
    known = {gate[1:]: gate for gates in before.values() for gate in gates}
    made: dict[int, tuple[Gate, ...]] = {}
    for number, (_, target) in wiring.streams.items():
        gates = []
        for index in range(target.parallelism):
            instance = InstanceId(target.operators[0], index)
            what = (number, instance, workers[instance])
            if what not in known:
                known[what] = Gate(next_gate, *what)
                next_gate += 1
            gates.append(known[what])
        made[number] = tuple(gates)
        if number in routes:
            last = max([*routes[number].owners, *routes[number].keys.values()])
            if last >= len(gates):
                raise ValueError(
                    f"the routes of {wiring.graph.streams[number].label} lead to instance {last};"
                    f" there are {len(gates)}"
                )
    return Deployment(wiring, workers, made, next_gate, routes)
