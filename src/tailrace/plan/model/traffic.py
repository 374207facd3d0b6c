"""What flows between instances and how busy they are: estimated from a topology, or measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.graph.expand import chains
from tailrace.graph.model import Graph, Operator, Rule
from tailrace.graph.validate import order
from tailrace.plan.model.machine import Place
from tailrace.plan.model.profile import DEFAULT_RECORD_BYTES, Profile, Work, input_key
from tailrace.plan.model.weighted import Weighted
from tailrace.plan.plan import PlanError

Pair = tuple[int, int]
"""The sending and the receiving instance."""

_ALONE = Work(execute_ns=0.0)


@dataclass(frozen=True)
class Traffic:
    """Loads by instance, records and bytes by pair of instances. Pairs not named have none.

    Only proportions count to the schedulers, so any unit of time will do.
    """

    loads: tuple[float, ...]
    """Time that an instance is busy, per unit of time."""
    records: Mapping[Pair, float]
    bytes: Mapping[Pair, float]
    memory_bytes: tuple[float, ...] = ()
    """What an instance reads from and writes to memory, where that is known."""

    def weighted(self, price: Callable[[float], float] | None = None) -> Weighted:
        """As a graph without directions. `price` of a record by its size; None: each counts one."""
        return Weighted.of(
            self.loads if any(self.loads) else [1.0] * len(self.loads),
            (
                (*pair, records * (1.0 if price is None else price(self.bytes[pair] / records)))
                for pair, records in self.records.items()
                if records > 0
            ),
        )


def estimate(graph: Graph, profile: Profile) -> Traffic:
    """What would flow if every source were at its limit and nothing held it up.

    Keys and custom groupings count as evenly spread, and "local or shuffle" as shuffled. A profile
    without any operator stands for knowing the topology alone: sources are equally fast, every
    output has as many records as came in (none are dead letters), and all instances are equally
    busy, since their numbers are all that anybody has said about load.
    """
    known = bool(profile.operators)
    first = {name: chain.first for chain in chains(graph) for name in chain.operators}
    instances = sum(chain.parallelism for chain in chains(graph))
    loads, memory = [0.0] * instances, [0.0] * instances
    records: defaultdict[Pair, float] = defaultdict(float)
    sizes: defaultdict[Pair, float] = defaultdict(float)
    arriving: dict[str, list[tuple[str | None, list[float]]]] = defaultdict(list)
    for name in order(graph):
        operator = graph.operator(name)
        if operator.is_source:
            emitted = 1e9 / (profile.of(name).work.execute_ns or 1.0) if known else 1.0
            arriving[name] = [(None, [emitted] * operator.parallelism)]
        out = {output: [0.0] * operator.parallelism for output in operator.outputs}
        for input_, rates in arriving[name]:
            work = profile.of(name).work_for(input_) if known else _ALONE
            for index, rate in enumerate(rates):
                loads[first[name] + index] += rate * work.execute_ns * 1e-9
                memory[first[name] + index] += rate * work.memory_bytes
                for output, leaving in out.items():
                    leaving[index] += rate * work.records(output)
        for stream in graph.out_of(name):
            target = graph.operator(stream.target)
            size = profile.of(name).bytes_of(stream.output) if known else DEFAULT_RECORD_BYTES
            received = [0.0] * target.parallelism
            for index, rate in enumerate(out[stream.output]):
                for to, part in _receivers(stream.grouping.rule, index, target):
                    received[to] += rate * part
                    pair = (first[name] + index, first[stream.target] + to)
                    if pair[0] != pair[1] and rate > 0:
                        records[pair] += rate * part
                        sizes[pair] += rate * part * size
            arriving[stream.target].append((input_key(stream), received))
    busy = loads if known else [1.0] * instances
    return Traffic(tuple(busy), dict(records), dict(sizes), tuple(memory))


def _receivers(rule: Rule, sender: int, target: Operator) -> list[tuple[int, float]]:
    """The receiving indexes, and the part of the records that each gets."""
    everyone = range(target.parallelism)
    if rule is Rule.FORWARD:
        return [(sender, 1.0)]
    if rule is Rule.GLOBAL:
        return [(0, 1.0)]
    return [(to, 1.0 if rule is Rule.ALL else 1 / target.parallelism) for to in everyone]


def measured_or_estimated(graph: Graph, profile: Profile, measured: Traffic | None) -> Traffic:
    """The measured traffic if there is some and it fits the graph, else the estimate."""
    if measured is None:
        return estimate(graph, profile)
    instances = sum(chain.parallelism for chain in chains(graph))
    if len(measured.loads) != instances:
        raise PlanError(
            f"the traffic was measured between {len(measured.loads)} instances; topology"
            f" {graph.name!r} has {instances}. Measure it with the same parallelism and chains"
        )
    return measured


@dataclass(frozen=True)
class Locality:
    """How many records stay in their place, in their node, or go to another node."""

    same_place: float
    same_node: float
    """Between different places of a node."""
    other_node: float

    @property
    def leaving_fraction(self) -> float:
        """Of all records, those that leave their place."""
        total = self.same_place + self.same_node + self.other_node
        return (self.same_node + self.other_node) / total if total else 0.0

    @property
    def internode_fraction(self) -> float:
        """Of all records, those that go to another node."""
        total = self.same_place + self.same_node + self.other_node
        return self.other_node / total if total else 0.0

    @property
    def intranode_ipc_fraction(self) -> float:
        """Of the records that leave their worker, those that stay in the node."""
        between_workers = self.same_node + self.other_node
        return self.same_node / between_workers if between_workers else 0.0

    @property
    def internode_ipc_fraction(self) -> float:
        """Of the records that leave their worker, those that leave the node."""
        between_workers = self.same_node + self.other_node
        return self.other_node / between_workers if between_workers else 0.0


def locality(traffic: Traffic, place_of: Sequence[int], places: Sequence[Place]) -> Locality:
    """Where the records go when instances are placed so."""
    same_place = same_node = other_node = 0.0
    for (sender, receiver), records in traffic.records.items():
        here, there = place_of[sender], place_of[receiver]
        if here == there:
            same_place += records
        elif places[here].node == places[there].node:
            same_node += records
        else:
            other_node += records
    return Locality(same_place, same_node, other_node)
