"""A placement that a search changes step by step, and how good it can still become.

All loads are per record per second that the sources emit, several in proportion to what each could
emit alone, so when the fullest resource is used `u`, the layout sustains 1 / u (and more where a
source has nothing to do with what is full). For given sizes of the parts the rates between them
are fixed, and only fetching depends on where things are. With `cost[k][q]`, what all of part k
would cost in place q, a change of one part touches its neighbours' costs only; nothing is evaluated
anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import fsum, inf, pow
from operator import mul

from tailrace.graph.model import Rule
from tailrace.plan.model.flow import Counts, Edge, Flow, Matrix, PairRates
from tailrace.plan.model.loads import NS, loads, resource_uses, source_rates
from tailrace.plan.plan import Plan

SHARPNESS = 24.0
"""The power in `strain`: high enough for the fullest to count most, and others to break ties."""

Neighbour = tuple[int, Matrix | None, float]
"""A neighbour, what it pays by (place of the part that moves, its own place), bytes per record."""


class Layout:
    """Counts of instances per part and place, perhaps not all placed yet; loads are up to date."""

    def __init__(self, flow: Flow, sizes: Sequence[int]) -> None:
        self.flow = flow
        self.sizes = list(sizes)
        self.places = range(len(flow.places))
        self.parts = range(len(flow.parts))
        self.counts = [[0] * len(flow.places) for _ in self.parts]
        self.missing = list(sizes)
        self._here = [[False] * len(flow.places) for _ in self.parts]
        # Where receivers of the same place are preferred, a part's rates depend on the whole
        # layout: such parts and their streams count only once everything is placed.
        self._loose: list[bool] = []
        for k in self.parts:
            self._loose.append(any(self._loosens(flow.edges[e]) for e in flow.into[k]))
        emitted = source_rates(flow, None)
        together = [[size] for size in self.sizes]
        by_pair = flow.rates(emitted, together)
        rates = [sum(pairs.values()) for pairs in by_pair]
        self.base, self._memory_of = _bases(flow, emitted, together, by_pair)
        if not any(self.base):
            raise ValueError(
                f"topology {flow.graph.name!r} costs nothing by this profile: no rate limits it"
            )
        # How much each part of a loose chain gets is open; only what they get together is known.
        self._shares = [
            sum(self.base[j] for j in group) / sum(self.sizes[j] for j in group)
            for group in flow.siblings
        ]
        self.cost = [[self.base[k]] * len(flow.places) for k in self.parts]
        self.cpu = [0.0] * len(flow.places)
        self._forward: list[list[Neighbour]] = [[] for _ in self.parts]
        self._backward: list[list[Neighbour]] = [[] for _ in self.parts]
        for edge, rate in zip(flow.edges, rates, strict=True):
            if rate and not self._loose[edge.sender] and not self._loose[edge.receiver]:
                size = rate * edge.record_bytes
                send_ns, receive_ns = flow.carrying_ns(edge, self.sizes)
                receive = _scaled(receive_ns, rate * NS)
                send = _scaled(tuple(zip(*send_ns, strict=True)), rate * NS)
                self._forward[edge.sender].append((edge.receiver, receive, size))
                self._backward[edge.receiver].append((edge.sender, send, size))
        # Bytes per source record that a part gets from, and sends to, each place.
        self._pulls = [[0.0] * len(flow.places) for _ in self.parts]
        self._pushes = [[0.0] * len(flow.places) for _ in self.parts]
        self._per_core = [1 / place.cores for place in flow.places]
        self._all_cores = sum(place.cores for place in flow.places)
        self._number_limits()

    def _loosens(self, edge: Edge) -> bool:
        """Whether what goes along an edge depends on who is in the same place, here or before."""
        if edge.rule is Rule.FORWARD:
            return self._loose[edge.sender]
        return edge.rule is Rule.LOCAL_OR_SHUFFLE

    def _number_limits(self) -> None:
        """Number the things beyond the places' cores that can be full at all."""
        machine, places = self.flow.machine, self.flow.places
        capacity: list[float] = []
        number: dict[tuple[object, ...], int] = {}

        def limited(limit: float, *key: object) -> tuple[int, ...]:
            if limit == inf:
                return ()
            if key not in number:
                number[key] = len(capacity)
                capacity.append(limit)
            return (number[key],)

        self._memory = [
            limited(
                machine.nodes[place.node].sockets[place.socket].memory_bytes_per_s,
                "memory",
                place.node,
                place.socket,
            )
            for place in places
        ]
        wires: list[list[tuple[int, ...]]] = [[() for _ in places] for _ in places]
        for p, one in enumerate(places):
            for q, other in enumerate(places):
                if one.node != other.node:
                    link = machine.link_bytes_per_s
                    wires[p][q] = limited(link, "out", one.node) + limited(link, "in", other.node)
                elif one.socket != other.socket:
                    ends = (one.node, one.socket, other.socket)
                    wires[p][q] = limited(machine.channel(*ends), "channel", *ends)
        here = self.places
        self._wires_from = [[(q, limit) for q in here for limit in wires[p][q]] for p in here]
        self._wires_to = [[(q, limit) for q in here for limit in wires[q][p]] for p in here]
        self._wired = any(self._wires_from)
        self._other = [0.0] * len(capacity)
        self._per_other = [1 / limit for limit in capacity]
        at: dict[tuple[int, int], list[int]] = {}
        for p, place in enumerate(places):
            at.setdefault((place.node, place.socket), []).append(p)
        self._crowded = [
            (here, 1 / len(machine.nodes[node].sockets[s].cores))
            for (node, s), here in at.items()
            if sum(places[p].cores for p in here) > len(machine.nodes[node].sockets[s].cores)
        ]

    def put(self, k: int, place: int, instances: int) -> None:
        """Place so many more instances of a part; with a negative number take them away."""
        self.counts[k][place] += instances
        self.missing[k] -= instances
        self._here[k][place] = self.counts[k][place] > 0
        if self._loose[k]:
            return
        change = instances / self.sizes[k]
        self.cpu[place] += change * self.cost[k][place]
        for limit in self._memory[place]:
            self._other[limit] += change * self._memory_of[k]
        for b, receive, size in self._forward[k]:
            self._charge(b, receive, place, change)
            self._pulls[b][place] += change * size
        for a, send, size in self._backward[k]:
            self._charge(a, send, place, change)
            self._pushes[a][place] += change * size
        if self._wired:
            there, back, other = self._pushes[k], self._pulls[k], self._other
            for q, limit in self._wires_from[place]:
                other[limit] += change * there[q]
            for q, limit in self._wires_to[place]:
                other[limit] += change * back[q]

    def _charge(self, k: int, ns: Matrix | None, place: int, change: float) -> None:
        """Let a neighbour pay for so much more of a part in a place."""
        if ns is None:
            return
        cost, row, size, cpu = self.cost[k], self.counts[k], self.sizes[k], self.cpu
        for q, each in enumerate(ns[place]):
            if each:
                more = change * each
                cost[q] += more
                if row[q]:
                    cpu[q] += more * row[q] / size

    def fits(self, rate: float, allowance: float) -> bool:
        """Whether nothing that is shared is over-full at a source rate, with that much room."""
        return rate * max(self._shared_uses()) <= allowance * (1 + 1e-9)

    def fullest(self) -> float:
        """The use of the fullest resource, once everything is placed."""
        return max(self._uses())

    def strain(self, scale: float) -> float:
        """Falls when full resources become less so. Uses are compared with `scale`."""
        # What is far from full would not change the sum.
        return fsum([pow(use / scale, SHARPNESS) for use in self._uses() if use > scale / 2])

    def _uses(self) -> list[float]:
        if self.flow.has_local:
            return self._uses_by_the_model()
        uses = [
            max(map(mul, cost, here)) / size
            for cost, here, size in zip(self.cost, self._here, self.sizes, strict=True)
        ]
        uses += self._shared_uses()
        return uses

    def _shared_uses(self) -> list[float]:
        """Of what instances share: cores, memories, channels, links."""
        uses = [*map(mul, self.cpu, self._per_core), *map(mul, self._other, self._per_other)]
        uses += [sum(self.cpu[p] for p in here) * share for here, share in self._crowded]
        return uses

    def _uses_by_the_model(self) -> list[float]:
        found = loads(self.flow, self.counts, source_rates(self.flow, None))
        return [use.used for use in resource_uses(self.flow, found)] + [
            cpu / instances
            for row, used in zip(self.counts, found.part, strict=True)
            for instances, cpu in zip(row, used, strict=True)
            if instances
        ]

    def bound(self) -> float:
        """No way to place what is missing makes the fullest resource less full than this.

        As in BriskStream, what is placed keeps its cost and what is missing fetches for free from
        all that is missing too. Beyond it, what is missing pays for its way to what is placed as
        if it all went to its best place, and all work must fit into all cores.
        """
        highest = max(self._shared_uses())
        work = sum(self.cpu)
        for k, missing in enumerate(self.missing):
            size, cost = self.sizes[k], self.cost[k]
            if self._loose[k]:
                work += self.base[k]
                highest = max(highest, self._shares[k])
                continue
            if missing < size:
                placed = max(map(mul, cost, self._here[k]))
                highest = max(highest, placed / size)
            if missing:
                least = min(cost)
                work += least * missing / size
                highest = max(highest, least / size)
        return float(max(highest, work / self._all_cores))

    def copy_counts(self) -> list[list[int]]:
        """The counts as they are now."""
        return [row.copy() for row in self.counts]


def layout_of(flow: Flow, counts: Sequence[Sequence[int]]) -> Layout:
    """A layout with everything placed."""
    layout = Layout(flow, [sum(row) for row in counts])
    for k, row in enumerate(counts):
        for place, instances in enumerate(row):
            if instances:
                layout.put(k, place, instances)
    return layout


def layout_of_plan(flow: Flow, plan: Plan) -> Layout:
    """The layout of a plan for the flow's chains, with a parallelism of its own."""
    counts: list[list[int]] = []
    place_of = iter(plan.place_of)
    for k, part in enumerate(flow.parts):
        alone = len(flow.siblings[k]) == 1
        head = flow.chains[part.chain].operators[0]
        row = [0] * len(flow.places)
        for _ in range(plan.parallelism[head] if alone else len(part.instances)):
            row[next(place_of)] += 1
        counts.append(row)
    return layout_of(flow, counts)


def twins(flow: Flow) -> list[int]:
    """For each place the first one that it could change places with, and nothing would differ."""
    machine, places = flow.machine, flow.places
    everywhere = range(len(places))

    def boundary(p: int, q: int) -> tuple[object, ...]:
        one, other = places[p], places[q]
        near = one.node == other.node
        return (
            machine.crossing(p, q, places),
            near,
            near and one.socket == other.socket,
            machine.channel(one.node, one.socket, other.socket) if near else None,
        )

    def alike(p: int, q: int) -> bool:
        one, other = (machine.nodes[places[i].node].sockets[places[i].socket] for i in (p, q))
        return (
            places[p].cores == places[q].cores
            and (len(one.cores), one.memory_bytes_per_s)
            == (len(other.cores), other.memory_bytes_per_s)
            and boundary(p, q) == boundary(q, p)
            and all(
                boundary(p, r) == boundary(q, r) and boundary(r, p) == boundary(r, q)
                for r in everywhere
                if r not in (p, q)
            )
        )

    first: list[int] = []
    for q in everywhere:
        first.append(next((p for p in set(first) if alike(p, q)), q))
    return first


def _bases(
    flow: Flow, emitted: list[float], together: Counts, rates: Sequence[PairRates]
) -> tuple[list[float], list[float]]:
    """CPU and memory of each part without fetching, from what goes along the edges in one place."""
    cpu, memory = [], []
    for k in range(len(flow.parts)):
        duties = flow.duties_of(k, emitted, together, rates)
        dealing = sum(
            rate * flow.edges[e].deal_ns * NS for e in flow.out_of[k] for rate in rates[e].values()
        )
        cpu.append(dealing + sum(rate * reaction.cpu_ns * NS for reaction, _, rate in duties))
        memory.append(sum(rate * reaction.memory_bytes for reaction, _, rate in duties))
    return cpu, memory


def _scaled(matrix: Sequence[Sequence[float]], factor: float) -> Matrix | None:
    if not any(chain.from_iterable(matrix)):
        return None
    return tuple(tuple(value * factor for value in row) for row in matrix)
