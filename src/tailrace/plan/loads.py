"""What every place has to do at some source rates, and how full that makes everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.graph.model import Rule
from tailrace.plan.flow import Counts, Flow

NS = 1e-9
ExternalRate = float | Mapping[str, float] | None
"""Records per second that arrive at every source, or by source; None: as many as it takes."""


@dataclass
class Loads:
    """What the places of a flow have to do at some source rates. Times in cores (s per s)."""

    part: list[list[float]]
    """CPU of a part in a place, all its instances together."""
    arriving: list[list[float]]
    """Records per second that enter a part in a place (that its sources emit)."""
    memory: list[float]
    """Bytes per second, by place."""
    traffic: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """Records and bytes per second from place to place, inside a place too."""
    sunk: float = 0.0
    """Records per second that reach sinks."""


@dataclass(frozen=True)
class Use:
    """A limited thing and how much of it is used; 1 is all."""

    what: str
    """instance, place, socket, memory, channel, link, or source (the external rate)."""
    where: tuple[int, ...]
    """Instance or place number; (node, socket); (node, socket, socket); (node, 0 out or 1 in)."""
    used: float


def source_rates(flow: Flow, external_rate: ExternalRate) -> list[float]:
    """Records per second of each part.

    Without an external rate, shares of one in all, in proportion to what each source could emit.
    """
    heads = [flow.chains[part.chain].operators[0] for part in flow.parts]
    sizes = [len(part.instances) for part in flow.parts]
    sources = {head for head, part in zip(heads, flow.parts, strict=True) if part.source}
    if isinstance(external_rate, Mapping):
        if external_rate.keys() != sources:
            raise ValueError(
                f"external rates are given for {sorted(external_rate)}; the sources are"
                f" {sorted(sources)}"
            )
        each = dict(external_rate)
    else:
        each = dict.fromkeys(sources, external_rate or 0.0)
        if external_rate is None:
            each = {flow.chains[chain].operators[0]: w for chain, w in flow.source_weights.items()}
    return [
        each[head] * flow.fraction(k, sizes) if part.source else 0.0
        for k, (head, part) in enumerate(zip(heads, flow.parts, strict=True))
    ]


def loads(
    flow: Flow, counts: Counts, emitted: list[float], capped: list[list[float]] | None = None
) -> Loads:
    """What every place has to do when the sources' parts emit so many records per second.

    With `capped`, the paper's r_o: a part sends on no more than its instances can do, the rest
    piles up before it. What came, as a multiple of that, is put into `capped[part][place]`.
    """
    places = range(len(flow.places))
    sizes = [sum(row) for row in counts]
    found = Loads([], [], [0.0] * len(flow.places))
    ways: list[dict[tuple[int, int], float]] = [{} for _ in flow.edges]
    for k, (part, row) in enumerate(zip(flow.parts, counts, strict=True)):
        cpu, arriving, memory, sunk = ([0.0] * len(flow.places) for _ in range(4))
        leaving: dict[tuple[str, str], list[float]] = {}
        inputs = [(flow.edges[e].reaction, _by_receiver(ways[e])) for e in flow.into[k]]
        if part.source:
            inputs.append(
                (part.source, {p: emitted[k] * row[p] / sizes[k] for p in places if row[p]})
            )
        for reaction, rates in inputs:
            for p, rate in rates.items():
                arriving[p] += rate
                cpu[p] += rate * reaction.cpu_ns * NS
                memory[p] += rate * reaction.memory_bytes
                sunk[p] += rate * reaction.sunk
                for key, records in reaction.out.items():
                    leaving.setdefault(key, [0.0] * len(flow.places))[p] += rate * records
        for e in flow.into[k]:
            _, receive_ns = flow.carrying_ns(flow.edges[e], sizes)
            for (p, q), rate in ways[e].items():
                cpu[q] += rate * receive_ns[p][q] * NS
        for e in flow.out_of[k]:
            edge = flow.edges[e]
            out = leaving.get((edge.stream.source, edge.stream.output))
            dealing_ns = flow.dealing_ns(edge, sizes)
            send_ns, _ = flow.carrying_ns(edge, sizes)
            for p in places:
                if out and out[p]:
                    for q, share in _receivers(flow, e, p, counts, sizes).items():
                        ways[e][p, q] = out[p] * share
                        cpu[p] += out[p] * share * (send_ns[p][q] + dealing_ns) * NS
        if capped is not None:
            _cap(flow, k, row, cpu, ways, capped[k])
        found.part.append(cpu)
        found.arriving.append(arriving)
        found.memory = [a + b for a, b in zip(found.memory, memory, strict=True)]
        found.sunk += sum(sunk)
    for edge, way in zip(flow.edges, ways, strict=True):
        for pair, rate in way.items():
            records, size = found.traffic.get(pair, (0.0, 0.0))
            found.traffic[pair] = (records + rate, size + rate * edge.record_bytes)
    return found


def _cap(
    flow: Flow,
    k: int,
    row: Sequence[int],
    cpu: list[float],
    ways: list[dict[tuple[int, int], float]],
    over: list[float],
) -> None:
    """Let part k send on only what its instances can do."""
    for p, instances in enumerate(row):
        if instances:
            over[p] = cpu[p] / instances
    for p, ratio in enumerate(over):
        for e in flow.out_of[k]:
            for pair in ways[e]:
                if pair[0] == p and ratio > 1:
                    ways[e][pair] /= ratio


def _receivers(
    flow: Flow, e: int, sender: int, counts: Counts, sizes: list[int]
) -> dict[int, float]:
    """How many records of one that is sent from a place go to each place."""
    edge = flow.edges[e]
    row = counts[edge.receiver]
    if edge.rule is Rule.LOCAL_OR_SHUFFLE:
        near = sum(counts[k][sender] for k in flow.siblings[edge.receiver])
        if near:
            return {sender: row[sender] / near} if row[sender] else {}
    share = flow.shares(edge, sizes) / sizes[edge.receiver]
    return {q: share * instances for q, instances in enumerate(row) if instances}


def _by_receiver(way: Mapping[tuple[int, int], float]) -> dict[int, float]:
    rates: dict[int, float] = {}
    for (_, q), rate in way.items():
        rates[q] = rates.get(q, 0.0) + rate
    return rates


def resource_uses(flow: Flow, found: Loads) -> list[Use]:
    """How full places, sockets, memories, channels and links are."""
    machine, places = flow.machine, flow.places
    uses = [
        Use("place", (p,), sum(cpu[p] for cpu in found.part) / place.cores)
        for p, place in enumerate(places)
    ]
    at: dict[tuple[int, int], list[int]] = {}
    for p, place in enumerate(places):
        at.setdefault((place.node, place.socket), []).append(p)
    for (node, s), here in at.items():
        socket = machine.nodes[node].sockets[s]
        cpu = sum(row[p] for row in found.part for p in here)
        uses.append(Use("socket", (node, s), cpu / len(socket.cores)))
        memory = sum(found.memory[p] for p in here)
        uses.append(Use("memory", (node, s), memory / socket.memory_bytes_per_s))
    between: dict[tuple[str, tuple[int, ...]], float] = {}
    for (p, q), (_, size) in found.traffic.items():
        one, other = places[p], places[q]
        keys: list[tuple[str, tuple[int, ...]]] = []
        if one.node != other.node:
            keys = [("link", (one.node, 0)), ("link", (other.node, 1))]
        elif one.socket != other.socket:
            keys = [("channel", (one.node, one.socket, other.socket))]
        for key in keys:
            between[key] = between.get(key, 0.0) + size
    for (what, where), size in between.items():
        limit = machine.link_bytes_per_s if what == "link" else machine.channel(*where)
        uses.append(Use(what, where, size / limit))
    return uses
