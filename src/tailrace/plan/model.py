"""The performance model: what a plan does on a machine.

It is BriskStream's rate model. An instance spends on a record the time to execute it and the time
to fetch it, which depends on where its producer is; a socket has so many cores and so much memory
bandwidth, and the ways between sockets and nodes take so many bytes. Beyond the paper, each
boundary (place, socket, node) has a cost of its own, senders pay too, work may depend on the input
stream, and groupings are told apart.

There are two questions, and two answers:

- *What goes through?* Queues are bounded, so an instance that cannot keep up slows its producers
  and in the end the sources, all by the same factor. Every rate is then proportional to the
  sources', and the sustainable rate is the one at which the most loaded instance, place, socket,
  channel or link is exactly full. `throughput`, `rates` and every `use` are at that rate.
- *Who is to blame?* Let the sources run as fast as they can (or at the external rate) and let
  whoever is too slow simply work off what it can, the rest piling up. That is the paper's r_o, and
  `oversupply` is its r_i / r_o for each chain. It is what scaling goes by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tailrace.graph.model import Graph, Rule
from tailrace.plan.flow import Counts, Flow, flow_of_plan
from tailrace.plan.machine import Machine
from tailrace.plan.plan import Plan
from tailrace.plan.profile import Profile

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


@dataclass(frozen=True)
class Prediction:
    """What the model expects of a plan at its sustainable rate."""

    throughput: float
    """Records per second that reach sinks."""
    source_rate: float
    """Records per second that all sources emit."""
    rates: tuple[float, ...]
    """Records per second into each instance (that a source emits)."""
    busy: tuple[float, ...]
    """The part of a core that each instance uses."""
    uses: tuple[Use, ...]
    """Places, sockets, memories, channels and links, the fullest first."""
    bottleneck: Use
    """What limits the rate. `used` says how much of it the sources would need if they ran freely
    (at the external rate, if there is one): 1.5 means it would have to be half as big again."""
    oversupply: Mapping[str, float]
    """By chain (its label), the paper's r_i / r_o: above 1, more comes than it can do."""
    traffic: Mapping[tuple[int, int], tuple[float, float]]
    """Records and bytes per second from place to place."""
    latency_ms: float
    """Mean time along the slowest path from source to sink, by a rough rule: each instance is a
    queue with random arrivals (M/M/1); jumbos and flow control are left out. Infinite at full
    load. It is for comparing plans, not for promises."""


def predict(
    graph: Graph,
    plan: Plan,
    profile: Profile,
    machine: Machine,
    external_rate: ExternalRate = None,
) -> Prediction:
    """The model's answer for a plan.

    Without an external rate the sources emit as much as the plan sustains, each source operator
    equally much.
    """
    flow = flow_of_plan(graph, plan, profile, machine)
    counts = flow.counts(plan.place_of)
    wanted = source_rates(flow, external_rate)
    unit = loads(flow, counts, wanted)
    limits = _instance_uses(flow, plan, counts, unit) + resource_uses(flow, unit)
    fullest = max(limits, key=lambda use: use.used)
    scale = 1 / fullest.used if fullest.used > 0 else inf
    if external_rate is not None:
        scale = min(scale, 1.0)
    elif scale == inf:
        raise ValueError(
            f"topology {graph.name!r} costs nothing by this profile: no rate limits it"
        )
    at = loads(flow, counts, [rate * scale for rate in wanted])
    free = _free_scale(flow, counts, wanted, external_rate)
    bottleneck = Use(fullest.what, fullest.where, fullest.used * free)
    if external_rate is not None and scale == 1.0:
        bottleneck = Use("source", (), 1.0)
    busy = _per_instance(flow, plan, counts, at.part)
    return Prediction(
        throughput=at.sunk,
        source_rate=sum(wanted) * scale,
        rates=_per_instance(flow, plan, counts, at.arriving),
        busy=busy,
        uses=tuple(sorted(resource_uses(flow, at), key=lambda use: -use.used)),
        bottleneck=bottleneck,
        oversupply=_oversupply(flow, counts, [rate * free for rate in wanted]),
        traffic=at.traffic,
        latency_ms=_latency_ns(flow, counts, at) / 1e6,
    )


def source_rates(flow: Flow, external_rate: ExternalRate) -> list[float]:
    """Records per second of each part; without an external rate, shares of one in all."""
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
        each = dict.fromkeys(sources, 1 / len(sources) if external_rate is None else external_rate)
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
            receive_ns = flow.edges[e].receive_ns
            for (p, q), rate in ways[e].items():
                cpu[q] += rate * receive_ns[p][q] * NS
        for e in flow.out_of[k]:
            edge = flow.edges[e]
            out = leaving.get((edge.stream.source, edge.stream.output))
            dealing_ns = flow.dealing_ns(edge, sizes)
            for p in places:
                if out and out[p]:
                    for q, share in _receivers(flow, e, p, counts, sizes).items():
                        ways[e][p, q] = out[p] * share
                        cpu[p] += out[p] * share * (edge.send_ns[p][q] + dealing_ns) * NS
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


def _instance_uses(flow: Flow, plan: Plan, counts: Counts, found: Loads) -> list[Use]:
    each = _per_instance(flow, plan, counts, found.part)
    return [Use("instance", (instance,), used) for instance, used in enumerate(each)]


def _per_instance(
    flow: Flow, plan: Plan, counts: Counts, values: list[list[float]]
) -> tuple[float, ...]:
    each = [0.0] * len(plan.place_of)
    for part, row, value in zip(flow.parts, counts, values, strict=True):
        for instance in part.instances:
            place = plan.place_of[instance]
            each[instance] = value[place] / row[place]
    return tuple(each)


def _free_scale(
    flow: Flow, counts: Counts, wanted: list[float], external_rate: ExternalRate
) -> float:
    """By how much to multiply `wanted` so that the first source instance is full."""
    if external_rate is not None:
        return 1.0
    unit = loads(flow, counts, wanted)
    fullest = max(
        cpu / instances
        for part, row, used in zip(flow.parts, counts, unit.part, strict=True)
        for instances, cpu in zip(row, used, strict=True)
        if part.source and instances
    )
    # A source that costs nothing could emit without end; what it feeds then says the rate.
    return 1 / fullest if fullest else 1 / max(max(row) for row in unit.part)


def _oversupply(flow: Flow, counts: Counts, emitted: list[float]) -> dict[str, float]:
    over = [[0.0] * len(flow.places) for _ in flow.parts]
    loads(flow, counts, emitted, over)
    ratios: dict[str, float] = {}
    for part, row in zip(flow.parts, over, strict=True):
        label = flow.chains[part.chain].label
        ratios[label] = max(ratios.get(label, 0.0), *row)
    return ratios


def _latency_ns(flow: Flow, counts: Counts, at: Loads) -> float:
    """Along the slowest path, by the M/M/1 rule for every instance."""
    everywhere = range(len(flow.places))
    use = [sum(row[p] for row in at.part) / flow.places[p].cores for p in everywhere]
    time: list[float] = []
    for k, row in enumerate(counts):
        rate = sum(at.arriving[k])
        spent = 0.0
        for p in everywhere:
            if at.arriving[k][p]:
                # One core runs one instance at a time, and a place of one core all of its own.
                full = max(at.part[k][p] / row[p], use[p])
                if full >= 1 - 1e-9:
                    return inf
                spent += at.part[k][p] / NS / (1 - full)
        before = max((time[flow.edges[e].sender] for e in flow.into[k]), default=0.0)
        time.append(before + (spent / rate if rate else 0.0))
    return max(time)
