"""A plan in words: who runs where, what flows, what is full, and why it is no faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from tailrace.graph.expand import Chain
from tailrace.graph.model import Graph
from tailrace.graph.wiring import Wiring, wire
from tailrace.plan.model.loads import ExternalRate, Use
from tailrace.plan.model.machine import FREE, Machine
from tailrace.plan.model.prediction import Prediction, predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, check

_LINES = 12
"""So many pairs of places, and so many limits, are listed; the rest is summed up."""
_SHARERS = 4
_WORTH_TELLING = 0.01
_REASON_CHARACTERS = 100


@dataclass(frozen=True)
class Group:
    """Instances of one chain in one place: alike, for the model."""

    chain: Chain
    instances: tuple[int, ...]
    rate: float
    """Records per second into each (that a source emits)."""
    busy: float
    """Of a core, each."""


@dataclass(frozen=True)
class Explained:
    """A plan with its prediction, and how to speak of them."""

    graph: Graph
    plan: Plan
    machine: Machine
    prediction: Prediction
    wiring: Wiring
    work: tuple[float, ...]
    """Of each instance's time the part that is work; the rest is sending and fetching."""

    def place_name(self, place: int) -> str:
        """A worker, or a socket with threads inside."""
        return f"{'worker' if self.plan.places[place].cores == 1 else 'socket'} {place}"

    def node_name(self, node: int) -> str:
        """The node as the machine calls it."""
        name = self.machine.nodes[node].name
        return name if name.startswith("node ") else f"node {name}"

    def instance_name(self, instance: int) -> str:
        """The chain, and which of its instances."""
        chain = self.wiring.chain_of(instance)
        which = f" ({instance - chain.first + 1} of {chain.parallelism})"
        return chain.label + (which if chain.parallelism > 1 else "")

    def groups(self, place: int) -> list[Group]:
        """Who runs in a place, the busiest first."""
        found = []
        for chain in self.wiring.chains:
            here = tuple(i for i in chain.instances if self.plan.place_of[i] == place)
            if here:
                rates = [self.prediction.rates[i] for i in here]
                busy = [self.prediction.busy[i] for i in here]
                found.append(Group(chain, here, sum(rates) / len(here), sum(busy) / len(here)))
        return sorted(found, key=lambda group: -group.busy * len(group.instances))

    def used(self, what: str, *where: int) -> float:
        """How full something is, 1 is all; 0 for what the prediction does not name."""
        found = [use for use in self.prediction.uses if (use.what, use.where) == (what, where)]
        return found[0].used if found else 0.0

    def boundary(self, sender: int, receiver: int) -> str:
        """What lies between two places."""
        one, other = self.plan.places[sender], self.plan.places[receiver]
        if one.node != other.node:
            return "to another node"
        if one.socket != other.socket:
            return "to another socket"
        return "within the socket"


def explained(
    graph: Graph,
    plan: Plan,
    profile: Profile,
    machine: Machine,
    external_rate: ExternalRate = None,
) -> Explained:
    """Check the plan, and predict what it does."""
    applied = check(plan, graph)
    prediction = predict(graph, plan, profile, machine, external_rate)
    free = predict(graph, plan, profile, machine.crossed_by(FREE), prediction.source_rates)
    work = _work_shares(prediction, free)
    return Explained(graph, plan, machine, prediction, wire(applied), work)


def _work_shares(prediction: Prediction, free: Prediction) -> tuple[float, ...]:
    """What is left of each instance's time where sending and fetching are free."""
    return tuple(
        min(alone / busy, 1.0) if busy else 1.0
        for alone, busy in zip(free.busy, prediction.busy, strict=True)
    )


def explain(
    graph: Graph,
    plan: Plan,
    profile: Profile,
    machine: Machine,
    external_rate: ExternalRate = None,
) -> str:
    """The plan and what the model expects of it, as text for people."""
    return "\n".join(lines(explained(graph, plan, profile, machine, external_rate)))


def lines(told: Explained) -> Iterator[str]:
    """The text, line by line."""
    plan, prediction = told.plan, told.prediction
    nodes = len({place.node for place in plan.places})
    yield (
        f"{told.graph.name}: plan of {plan.scheduler!r}, {_count(len(plan.place_of), 'instance')}"
        f" on {_count(len(plan.places), _kind(plan))} of {_count(nodes, 'node')}"
    )
    if plan.reason:
        first, *others = wrap(plan.reason, _REASON_CHARACTERS)
        yield f"  why         {first}"
        yield from (f"              {line}" for line in others)
    yield f"  expected    {rates(told)}"
    first, *others = bottleneck_lines(told)
    yield f"  limited by  {first}"
    yield from (f"              {line}" for line in others)
    yield ""
    yield from _where(told)
    yield ""
    yield from _traffic(told)
    fullest = [use for use in prediction.uses if use.used >= _WORTH_TELLING and use.what != "place"]
    if fullest:
        yield ""
        yield "how full"
        for use in fullest[:_LINES]:
            yield f"  {use.used:6.1%}  {use_name(told, use)}"


def rates(told: Explained) -> str:
    """What goes in and out: the most that the plan sustains, unless less arrives."""
    found = told.prediction
    text = (
        f"{found.source_rate:,.0f} records/s from the sources,"
        f" {found.throughput:,.0f} records/s at the sinks"
    )
    arrives = found.bottleneck.what == "source"
    return text if arrives else f"at most {text}, however fast records arrive"


def bottleneck_lines(told: Explained) -> list[str]:
    """What holds the rate down, why, and what would help."""
    use = told.prediction.bottleneck
    if use.what == "source":
        return ["nothing: everything keeps up with the rate at which records arrive"]
    found = [f"{use_name(told, use)}, which is full"]
    if use.what == "instance":
        (instance,) = use.where
        share = told.work[instance]
        rate = told.prediction.rates[instance]
        spent_ns = told.prediction.busy[instance] / rate * 1e9 if rate else 0.0
        found.append(
            f"it runs on one core and spends {spent_ns:,.0f} ns on a record: {share:.0%} work,"
            f" {1 - share:.0%} sending and fetching"
        )
        found.append(_remedy(told, instance))
    elif use.what == "place":
        (place,) = use.where
        cores = told.plan.places[place].cores
        parts = [
            f"{group.chain.label}{_times(group)} {group.busy * len(group.instances) / cores:.0%}"
            for group in told.groups(place)
        ]
        more = f" and {len(parts) - _SHARERS} more" if len(parts) > _SHARERS else ""
        found.append("shared by " + ", ".join(parts[:_SHARERS]) + more)
        spare = [p for p in range(len(told.plan.places)) if told.used("place", p) < 0.7]
        if spare:
            names = ", ".join(told.place_name(p) for p in spare[:4])
            found.append(f"{names} would have room: another placement or more instances may help")
        else:
            found.append("all others are nearly as full: only more workers, or less work, help")
    elif use.what in ("memory", "channel", "link"):
        found.append("its bytes per second are all used: records should cross it less often")
    else:
        found.append("all its cores are used: only more sockets, or less work, help")
    if use.used > 1.05:
        found.append(f"the sources could go {use.used:.1f} times as fast")
    return found


def _remedy(told: Explained, instance: int) -> str:
    chain = told.wiring.chain_of(instance)
    if told.work[instance] < 0.5:
        return "a place nearer to those it exchanges records with would help"
    return f"more instances of {chain.label!r} would help"


def use_name(told: Explained, use: Use) -> str:
    """What a use is of, in words."""
    node_name = told.node_name(use.where[0]) if len(use.where) > 1 else ""
    match use.what, use.where:
        case "instance", (instance,):
            place = told.plan.place_of[instance]
            return f"instance {told.instance_name(instance)!r} on {told.place_name(place)}"
        case "place", (place,):
            return told.place_name(place)
        case "socket", (_, socket):
            return f"the cores of socket {socket} of {node_name}"
        case "memory", (_, socket):
            return f"the memory of socket {socket} of {node_name}"
        case "channel", (_, one, other):
            return f"the channel from socket {one} to socket {other} of {node_name}"
        case "link", (_, inward):
            return f"the link {'into' if inward else 'out of'} {node_name}"
    return use.what


def _where(told: Explained) -> Iterator[str]:
    plan = told.plan
    groups = [told.groups(p) for p in range(len(plan.places))]
    width = max((len(_label(group)) for here in groups for group in here), default=0)
    for node in sorted({place.node for place in plan.places}):
        yield told.node_name(node)
        for p, place in enumerate(plan.places):
            if place.node != node:
                continue
            core = plan.core_of[p] if plan.core_of else None
            bound = f", core {core}" if core is not None else ""
            yield f"  {told.place_name(p)} (socket {place.socket}{bound}): {_busy(told, p)}"
            for group in groups[p]:
                yield (
                    f"    {_label(group):{width}} {group.rate:>13,.0f} records/s"
                    f" {group.busy:6.1%} of a core{' each' if len(group.instances) > 1 else ''}"
                )
            if not groups[p]:
                yield "    nothing"


def _busy(told: Explained, place: int) -> str:
    cores = told.plan.places[place].cores
    used = told.used("place", place)
    return f"{used:.0%} busy" if cores == 1 else f"{used:.0%} of {cores} cores busy"


def _label(group: Group) -> str:
    """The chain; which instances, if not all of it are here."""
    chain = group.chain
    if len(group.instances) == 1 and chain.parallelism > 1:
        return f"{chain.label} ({group.instances[0] - chain.first + 1} of {chain.parallelism})"
    return chain.label + _times(group)


def _times(group: Group) -> str:
    return f" x {len(group.instances)}" if len(group.instances) > 1 else ""


def _traffic(told: Explained) -> Iterator[str]:
    traffic = told.prediction.traffic
    within = sum(records for (p, q), (records, _) in traffic.items() if p == q)
    everything = sum(records for records, _ in traffic.values())
    if not everything:
        yield "traffic: none; everything is fused"
        return
    yield f"traffic, of which {within / everything:.0%} stays in its {_kind(told.plan)}"
    between = sorted(
        ((pair, flow) for pair, flow in traffic.items() if pair[0] != pair[1]),
        key=lambda item: -item[1][1],
    )
    for (p, q), (records, size) in between[:_LINES]:
        yield (
            f"  {told.place_name(p):>10} -> {told.place_name(q):10} {records:>13,.0f} records/s"
            f" {size / 1e6:>10,.2f} MB/s  {told.boundary(p, q)}"
        )
    if len(between) > _LINES:
        rest = between[_LINES:]
        yield (
            f"  and {len(rest)} more pairs: {sum(flow[0] for _, flow in rest):,.0f} records/s,"
            f" {sum(flow[1] for _, flow in rest) / 1e6:,.2f} MB/s"
        )


def _kind(plan: Plan) -> str:
    return "worker" if all(place.cores == 1 for place in plan.places) else "socket"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
