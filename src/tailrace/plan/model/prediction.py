"""The performance model: what a plan does on a machine.

It is BriskStream's rate model. An instance spends on a record the time to execute it and the time
to fetch it, which depends on where its producer is; a socket has so many cores and so much memory
bandwidth, and channels between sockets and links between nodes take so many bytes. Beyond the
paper, each boundary (place, socket, node) has a cost of its own, senders pay too, work may depend
on the input stream, and groupings are told apart.

There are two questions, and two answers:

- *What goes through?* Queues are bounded, so an instance that cannot keep up slows its producers
  and in the end the sources. Every rate is proportional to the sources', and these rise until the
  most loaded instance, place, socket, channel or link is exactly full. Several sources rise in
  proportion to what each could emit if all else were free, since what is over-supplied takes from
  its producers in proportion; a source that uses nothing of what is full goes on rising (`fill`).
  `throughput`, `rates` and every `use` are at those rates.
- *Who is to blame?* Let the sources run as fast as they can (or at the external rate) and let
  whoever is too slow simply work off what it can, the rest piling up. That is the paper's r_o, and
  `oversupply` is its r_i / r_o for each chain. It is what scaling goes by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tailrace.graph.model import Graph
from tailrace.plan.model.filling import fill
from tailrace.plan.model.flow import Counts, Flow, flow_of_plan
from tailrace.plan.model.loads import (
    ExternalRate,
    Loads,
    Use,
    loads,
    oversupply,
    resource_uses,
    source_rates,
)
from tailrace.plan.model.machine import Machine
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan


@dataclass(frozen=True)
class Prediction:
    """What the model expects of a plan at its sustainable rate."""

    throughput: float
    """Records per second that reach sinks."""
    source_rates: Mapping[str, float]
    """Records per second that each source operator emits."""
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

    @property
    def source_rate(self) -> float:
        """Records per second that all sources emit."""
        return sum(self.source_rates.values())


def predict(
    graph: Graph,
    plan: Plan,
    profile: Profile,
    machine: Machine,
    external_rate: ExternalRate = None,
) -> Prediction:
    """The model's answer for a plan.

    Without an external rate the sources emit as much as the plan sustains.
    """
    flow = flow_of_plan(graph, plan, profile, machine)
    counts = flow.counts(plan.place_of)
    wanted = source_rates(flow, external_rate)
    sources = sorted({part.chain for part in flow.parts if part.source})

    def scaled(factors: Sequence[float]) -> list[float]:
        by_chain = dict(zip(sources, factors, strict=True))
        return [
            rate * by_chain[part.chain] if part.source else 0.0
            for rate, part in zip(wanted, flow.parts, strict=True)
        ]

    def limits(found: Loads) -> list[Use]:
        return _instance_uses(flow, plan, counts, found) + resource_uses(flow, found)

    # Each source by itself: what it takes of everything. (What only others use is not named.)
    alone = [loads(flow, counts, scaled([s == c for c in sources])) for s in sources]
    named = [{(use.what, use.where): use.used for use in limits(found)} for found in alone]
    keys = list(dict.fromkeys(key for row in named for key in row))
    uses = [[row.get(key, 0.0) for key in keys] for row in named]
    factors = fill(uses, inf if external_rate is None else 1.0)
    if inf in factors:
        raise ValueError(
            f"topology {graph.name!r} costs nothing by this profile: no rate limits it"
            if not any(map(any, uses))
            else f"a source of topology {graph.name!r} costs nothing by this profile, and neither"
            " does what it feeds: no rate limits it"
        )
    emitted = scaled(factors)
    at = loads(flow, counts, emitted)
    freely = [1.0] * len(sources)
    if external_rate is None:
        freely = [
            _free_factor(flow, counts, found, row) for found, row in zip(alone, uses, strict=True)
        ]
    bottleneck = _bottleneck(limits(at), limits(loads(flow, counts, scaled(freely))))
    if external_rate is not None and min(factors) == 1.0:
        bottleneck = Use("source", (), 1.0)
    return Prediction(
        throughput=at.sunk,
        source_rates=_by_source(flow, emitted),
        rates=_per_instance(flow, plan, counts, at.arriving),
        busy=_per_instance(flow, plan, counts, at.part),
        uses=tuple(sorted(resource_uses(flow, at), key=lambda use: -use.used)),
        bottleneck=bottleneck,
        oversupply=_oversupply(flow, counts, scaled(freely)),
        traffic=at.traffic,
        latency_ms=_latency_ns(flow, counts, at) / 1e6,
    )


def _bottleneck(sustained: Sequence[Use], freely: Sequence[Use]) -> Use:
    """Of what is full, what sources that run freely would need most of."""
    needed = {(use.what, use.where): use for use in freely}
    fullest = max(use.used for use in sustained)
    return max(
        (needed[use.what, use.where] for use in sustained if use.used >= fullest * (1 - 1e-9)),
        key=lambda use: use.used,
    )


def _by_source(flow: Flow, emitted: Sequence[float]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for part, rate in zip(flow.parts, emitted, strict=True):
        if part.source:
            head = flow.chains[part.chain].operators[0]
            rates[head] = rates.get(head, 0.0) + rate
    return rates


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


def _free_factor(flow: Flow, counts: Counts, alone: Loads, uses: Sequence[float]) -> float:
    """By how much to multiply a source's rate so that the first of its instances is full.

    A source that costs nothing could emit without end; what it feeds then says the rate.
    """
    instances = [
        (bool(part.source), cpu / n)
        for part, row, used in zip(flow.parts, counts, alone.part, strict=True)
        for n, cpu in zip(row, used, strict=True)
        if n
    ]
    emitting = max(used for is_source, used in instances if is_source)
    return 1 / (emitting or max(used for _, used in instances) or max(uses))


def _oversupply(flow: Flow, counts: Counts, emitted: list[float]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for part, row in zip(flow.parts, oversupply(flow, counts, emitted), strict=True):
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
                spent += at.part[k][p] * 1e9 / (1 - full)
        before = max((time[flow.edges[e].sender] for e in flow.into[k]), default=0.0)
        time.append(before + (spent / rate if rate else 0.0))
    return max(time)
