"""How records flow: what a chain makes of a record, and which instances are alike.

Shuffling and keys spread a stream evenly, so instances of a chain in the same place have the same
rate and the same cost. The model and the searches therefore count instances per place and never
look at single ones. A chain whose instances are not alike (the first of a global grouping, the
ends of a forwarded stream that is not fused) is cut into parts whose instances are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tailrace.graph.expand import Chain, chains
from tailrace.graph.model import DEAD_LETTERS, Graph, Rule, Stream
from tailrace.plan.model.machine import Jumbo, Machine, Place
from tailrace.plan.model.profile import Profile, input_key, stream_key
from tailrace.plan.plan import Plan, apply

Counts = Sequence[Sequence[int]]
"""`counts[part][place]`: how many instances of a part run there."""
PairRates = dict[tuple[int, int], float]
"""Records per second of a stream from place to place."""
Matrix = tuple[tuple[float, ...], ...]
UNDEALT = (Rule.ALL, Rule.GLOBAL, Rule.FORWARD)
"""Rules by which all records of a poll go to the same receivers."""


@dataclass(frozen=True)
class Reaction:
    """What a chain takes and makes for one record of one input (BriskStream's equation 6)."""

    cpu_ns: float
    memory_bytes: float
    sunk: float
    """Records that reach sinks of the chain."""
    out: Mapping[tuple[str, str], float]
    """Records that leave it, by operator and output."""


Duty = tuple[Reaction, int, float]
"""What there is to do, in which place, and how often per second."""


@dataclass(frozen=True)
class Part:
    """Instances of a chain that are alike."""

    chain: int
    instances: range
    source: Reaction | None
    """For each record that a source emits; None for other chains."""


@dataclass(frozen=True)
class Edge:
    """A stream between two parts."""

    stream: Stream
    sender: int
    receiver: int
    rule: Rule
    reaction: Reaction
    record_bytes: float
    jumbo: Jumbo | None = None
    """How records travel, if the profile says it."""
    deal_ns: float = 0.0
    """What the sender pays on top to pick the receiver."""


@dataclass(frozen=True)
class Flow:
    """A topology on places: parts in the order of the streams, and the edges between them."""

    graph: Graph
    machine: Machine
    places: tuple[Place, ...]
    chains: tuple[Chain, ...]
    parts: tuple[Part, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def into(self) -> list[list[int]]:
        """The edges that end at each part."""
        return [
            [e for e, edge in enumerate(self.edges) if edge.receiver == k]
            for k in range(len(self.parts))
        ]

    @cached_property
    def out_of(self) -> list[list[int]]:
        """The edges that start at each part."""
        return [
            [e for e, edge in enumerate(self.edges) if edge.sender == k]
            for k in range(len(self.parts))
        ]

    @cached_property
    def siblings(self) -> list[list[int]]:
        """For each part the parts of its chain, itself included."""
        return [
            [j for j, other in enumerate(self.parts) if other.chain == part.chain]
            for part in self.parts
        ]

    @cached_property
    def has_local(self) -> bool:
        """Whether a stream prefers receivers of the same place, so that rates depend on places."""
        return any(edge.rule is Rule.LOCAL_OR_SHUFFLE for edge in self.edges)

    @cached_property
    def source_weights(self) -> dict[int, float]:
        """For each chain of sources, its share of what all of them could emit.

        That is what the slowest chain behind it could do if it had nothing else to do, everything
        were in one place, and machines were unlimited.
        """
        sizes = [len(part.instances) for part in self.parts]
        together = [[size] for size in sizes]
        could: dict[int, float] = {}
        for chain in dict.fromkeys(part.chain for part in self.parts if part.source):
            emitted = [
                self.fraction(k, sizes) if part.chain == chain else 0.0
                for k, part in enumerate(self.parts)
            ]
            rates = self.rates(emitted, together)
            slowest_ns = max(
                sum(rate * reaction.cpu_ns for reaction, _, rate in duties) / sizes[k]
                for k in range(len(self.parts))
                if (duties := self.duties_of(k, emitted, together, rates))
            )
            could[chain] = 1 / slowest_ns if slowest_ns else 0.0
        most = max(could.values()) or 1.0
        could = {chain: rate or most for chain, rate in could.items()}
        total = sum(could.values())
        return {chain: rate / total for chain, rate in could.items()}

    def rates(
        self,
        emitted: Sequence[float],
        counts: Counts,
        slow: Callable[[int, list[PairRates]], None] | None = None,
    ) -> list[PairRates]:
        """What goes along each edge when sources emit so many records per second by part.

        `slow` is called with each part, in order, and may lessen what leaves it. Counts of one
        place alone give what goes along the edges wherever instances are; streams that prefer
        receivers of the same place then count as shuffled.
        """
        sizes = [sum(row) for row in counts]
        rates: list[PairRates] = [{} for _ in self.edges]
        for k in range(len(self.parts)):
            duties = self.duties_of(k, emitted, counts, rates)
            for e in self.out_of[k]:
                edge = self.edges[e]
                key = (edge.stream.source, edge.stream.output)
                leaving: dict[int, float] = {}
                for reaction, p, rate in duties:
                    leaving[p] = leaving.get(p, 0.0) + rate * reaction.out[key]
                for p, rate in leaving.items():
                    if rate:
                        for q, share in self._receivers(edge, p, counts, sizes):
                            rates[e][p, q] = rate * share
            if slow is not None:
                slow(k, rates)
        return rates

    def duties_of(
        self, k: int, emitted: Sequence[float], counts: Counts, rates: Sequence[PairRates]
    ) -> list[Duty]:
        """What a part has to do, by input and place."""
        duties: list[Duty] = []
        for e in self.into[k]:
            by_place: dict[int, float] = {}
            for (_, q), rate in rates[e].items():
                by_place[q] = by_place.get(q, 0.0) + rate
            duties += [(self.edges[e].reaction, q, rate) for q, rate in by_place.items()]
        source = self.parts[k].source
        if source:
            rate, size = emitted[k], sum(counts[k])
            duties += [(source, p, rate * n / size) for p, n in enumerate(counts[k]) if n]
        return duties

    def _receivers(
        self, edge: Edge, sender: int, counts: Counts, sizes: Sequence[int]
    ) -> list[tuple[int, float]]:
        """How many records of one that is sent from a place go to each place."""
        row = counts[edge.receiver]
        if edge.rule is Rule.LOCAL_OR_SHUFFLE:
            near = sum(counts[k][sender] for k in self.siblings[edge.receiver])
            if near:
                return [(sender, row[sender] / near)] if row[sender] else []
        share = self.shares(edge, sizes) / sizes[edge.receiver]
        return [(q, share * instances) for q, instances in enumerate(row) if instances]

    def counts(self, place_of: Sequence[int]) -> list[list[int]]:
        """Instances per part and place."""
        counts = [[0] * len(self.places) for _ in self.parts]
        for row, part in zip(counts, self.parts, strict=True):
            for instance in part.instances:
                row[place_of[instance]] += 1
        return counts

    def shares(self, edge: Edge, sizes: Sequence[int]) -> float:
        """Of each record that the sender puts on the stream, how many the receiving part gets."""
        if edge.rule in (Rule.FORWARD, Rule.GLOBAL):
            return 1.0
        if edge.rule is Rule.ALL:
            return float(sizes[edge.receiver])
        return self.fraction(edge.receiver, sizes)

    def carrying_ns(self, edge: Edge, sizes: Sequence[int]) -> tuple[Matrix, Matrix]:
        """What a record costs its sender and its receiver, by their places.

        The more workers a stream is dealt to, the fewer records share a message; that their
        instances are many costs nothing. How many of the places have receivers depends on the
        layout and is not asked: as many as there can be.
        """
        jumbo = edge.jumbo
        if jumbo is not None and edge.rule not in UNDEALT:
            receivers = sum(sizes[k] for k in self.siblings[edge.receiver])
            jumbo = jumbo.among(min(receivers, len(self.places)))
        key = (edge.record_bytes, jumbo)
        if key not in self._carrying:
            self._carrying[key] = _crossing_costs(self.machine, self.places, *key)
        return self._carrying[key]

    @cached_property
    def _carrying(self) -> dict[tuple[float, Jumbo | None], tuple[Matrix, Matrix]]:
        return {}

    def fraction(self, part: int, sizes: Sequence[int]) -> float:
        """How many of its chain's instances a part has."""
        return sizes[part] / sum(sizes[k] for k in self.siblings[part])


def reaction(graph: Graph, profile: Profile, chain: Chain, entering: Stream | None) -> Reaction:
    """What a chain does with one record that enters its first operator."""
    cpu_ns = memory_bytes = sunk = 0.0
    out: dict[tuple[str, str], float] = {}
    arriving = {chain.operators[0]: (1.0, None if entering is None else input_key(entering))}
    for name in chain.operators:
        rate, input_ = arriving[name]
        work = profile.of(name).work_for(input_)
        cpu_ns += rate * work.execute_ns
        memory_bytes += rate * work.memory_bytes
        leaving = graph.out_of(name)
        if all(stream.output == DEAD_LETTERS for stream in leaving):
            sunk += rate
        for stream in leaving:
            records = rate * work.records(stream.output)
            if stream.target in chain.operators:
                arriving[stream.target] = (records, input_key(stream))
            else:
                out[name, stream.output] = records
    return Reaction(cpu_ns, memory_bytes, sunk, out)


def flow_of(graph: Graph, profile: Profile, machine: Machine, places: Sequence[Place]) -> Flow:
    """The flow of a graph as it is: its parallelism, its chains.

    The profile's times count as on this machine's cores, where both say how fast theirs were.
    """
    profile = profile.at_speed(machine.yardstick_ns)
    places = tuple(places)
    chained = chains(graph)
    chain_of = {name: c for c, chain in enumerate(chained) for name in chain.operators}
    single, first_apart = set(), set()
    outer = [s for s in graph.streams if chain_of[s.source] != chain_of[s.target]]
    for stream in outer:
        if stream.grouping.rule is Rule.FORWARD:
            single |= {chain_of[stream.source], chain_of[stream.target]}
        if stream.grouping.rule is Rule.GLOBAL:
            first_apart.add(chain_of[stream.target])

    parts: list[Part] = []
    parts_of: list[list[int]] = []
    for c, chain in enumerate(chained):
        ids = chain.instances
        cuts = [ids]
        if c in single:
            cuts = [range(i, i + 1) for i in ids]
        elif c in first_apart and len(ids) > 1:
            cuts = [ids[:1], ids[1:]]
        is_source = graph.operator(chain.operators[0]).is_source
        source = reaction(graph, profile, chain, None) if is_source else None
        parts_of.append(list(range(len(parts), len(parts) + len(cuts))))
        parts += [Part(c, cut, source) for cut in cuts]

    edges = []
    for stream in outer:
        target = chained[chain_of[stream.target]]
        size = profile.of(stream.source).bytes_of(stream.output)
        jumbo = profile.of(stream.source).jumbos.get(stream_key(stream))
        for a in parts_of[chain_of[stream.source]]:
            receivers = parts_of[chain_of[stream.target]]
            if stream.grouping.rule is Rule.GLOBAL:
                receivers = receivers[:1]
            elif stream.grouping.rule is Rule.FORWARD:
                index = parts_of[chain_of[stream.source]].index(a)
                receivers = receivers[index : index + 1]
            edges += [
                Edge(
                    stream,
                    a,
                    b,
                    stream.grouping.rule,
                    reaction(graph, profile, target, stream),
                    size,
                    jumbo,
                    profile.of(stream.source).deal_ns.get(stream_key(stream), 0.0),
                )
                for b in receivers
            ]
    return Flow(graph, machine, places, tuple(chained), tuple(parts), tuple(edges))


def flow_of_plan(graph: Graph, plan: Plan, profile: Profile, machine: Machine) -> Flow:
    """The flow of a graph as a plan wants it."""
    return flow_of(apply(plan, graph), profile, machine, plan.places)


def _crossing_costs(
    machine: Machine, places: tuple[Place, ...], record_bytes: float, jumbo: Jumbo | None
) -> tuple[Matrix, Matrix]:
    everywhere = range(len(places))
    crossings = [[machine.crossing(p, q, places) for q in everywhere] for p in everywhere]
    send = tuple(tuple(c.send_ns(record_bytes, jumbo) for c in row) for row in crossings)
    receive = tuple(tuple(c.receive_ns(record_bytes, jumbo) for c in row) for row in crossings)
    return send, receive
