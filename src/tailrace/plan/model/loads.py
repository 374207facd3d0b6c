"""What every place has to do at some source rates, and how full that makes everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.plan.model.flow import Counts, Duty, Flow, PairRates

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


def loads(flow: Flow, counts: Counts, emitted: list[float]) -> Loads:
    """What every place has to do when the sources' parts emit so many records per second."""
    found = Loads([], [], [0.0] * len(flow.places))
    sizes = [sum(row) for row in counts]
    rates = flow.rates(emitted, counts)
    for k in range(len(flow.parts)):
        arriving = [0.0] * len(flow.places)
        duties = flow.duties_of(k, emitted, counts, rates)
        for reaction, p, rate in duties:
            arriving[p] += rate
            found.memory[p] += rate * reaction.memory_bytes
            found.sunk += rate * reaction.sunk
        found.part.append(_cpu(flow, k, duties, rates, sizes))
        found.arriving.append(arriving)
    for edge, pairs in zip(flow.edges, rates, strict=True):
        for pair, rate in pairs.items():
            records, size = found.traffic.get(pair, (0.0, 0.0))
            found.traffic[pair] = (records + rate, size + rate * edge.record_bytes)
    return found


def oversupply(flow: Flow, counts: Counts, emitted: list[float]) -> list[list[float]]:
    """By part and place, the paper's r_i / r_o: what comes, as a multiple of what can be done.

    A part sends on no more than its instances can do, the rest piles up before it.
    """
    over = [[0.0] * len(flow.places) for _ in flow.parts]
    sizes = [sum(row) for row in counts]

    def slow(k: int, rates: list[PairRates]) -> None:
        cpu = _cpu(flow, k, flow.duties_of(k, emitted, counts, rates), rates, sizes)
        over[k] = [used / n if n else 0.0 for used, n in zip(cpu, counts[k], strict=True)]
        for e in flow.out_of[k]:
            for p, q in rates[e]:
                rates[e][p, q] /= max(over[k][p], 1.0)

    flow.rates(emitted, counts, slow)
    return over


def _cpu(
    flow: Flow, k: int, duties: Sequence[Duty], rates: Sequence[PairRates], sizes: Sequence[int]
) -> list[float]:
    """The CPU of a part by place: working, receiving, sending and dealing."""
    cpu = [0.0] * len(flow.places)
    for reaction, p, rate in duties:
        cpu[p] += rate * reaction.cpu_ns * NS
    for e in flow.into[k]:
        _, receive_ns = flow.carrying_ns(flow.edges[e], sizes)
        for (p, q), rate in rates[e].items():
            cpu[q] += rate * receive_ns[p][q] * NS
    for e in flow.out_of[k]:
        dealing_ns = flow.edges[e].deal_ns
        send_ns, _ = flow.carrying_ns(flow.edges[e], sizes)
        for (p, q), rate in rates[e].items():
            cpu[p] += rate * (send_ns[p][q] + dealing_ns) * NS
    return cpu


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
