"""Which sources' records may be sent a second time, and why those of others may not.

What a source emits goes through a *stretch* of stateless operators, until it enters a chain with a
state, a side effect or a time of its own. There a run is claimed (`board.pyx`), so up to there it
may be under way twice. Whether operators are stateless is known by their kind: what a function of
a `map` does beside its result happens for each copy.
"""

from __future__ import annotations

from tailrace.graph.expand import Chain
from tailrace.graph.model import Graph, OnError, Rule
from tailrace.runtime.arrow import ArrowMap
from tailrace.runtime.deployment import NOWHERE, Deployment
from tailrace.runtime.operators import Filter, FlatMap, Map, Split

_STATELESS = (Map, FlatMap, Filter, Split, ArrowMap)
_SHUFFLED = (Rule.SHUFFLE, Rule.LOCAL_OR_SHUFFLE)


def stateless(graph: Graph, chain: Chain) -> bool:
    """Whether all that a chain does follows from the records it is doing it with."""
    return all(type(graph.operator(name).logic) in _STATELESS for name in chain.operators)


def why_not(deployment: Deployment, source: str) -> str:
    """Why what a source emits is never sent twice; empty: it may be."""
    graph, wiring = deployment.graph, deployment.wiring
    chain = wiring.home[source]
    for name in chain.operators[1:]:
        if type(graph.operator(name).logic) not in _STATELESS:
            return f"{name!r}, which runs fused with it, is not known to be stateless"
    numbers = [number for number, (sender, _) in wiring.streams.items() if sender is chain]
    if not numbers:
        return "nothing that it emits travels"
    for number in numbers:
        stream = graph.streams[number]
        if stream.grouping.rule not in _SHUFFLED:
            return (
                f"{stream.label} goes by {stream.grouping.rule.value}: only of shuffled records it"
                " does not matter where they go, and in which order"
            )
        workers = {gate.worker for gate in deployment.gates[number]} - {NOWHERE}
        if len(workers) < 2:
            return f"{stream.label} leads to one worker only, so there is no other way"
    for name in (name for chain in stretch(deployment, source) for name in chain.operators):
        if graph.operator(name).on_error is OnError.DEAD_LETTER:
            return f"{name!r} has dead letters: what cannot be sent would be told of twice"
    return ""


def stretch(deployment: Deployment, source: str) -> list[Chain]:
    """The chain of a source, and the stateless ones that its records go through."""
    wiring = deployment.wiring
    found = [wiring.home[source]]
    for chain in found:
        for sender, target in wiring.streams.values():
            if sender is chain and target not in found and stateless(deployment.graph, target):
                found.append(target)
    return found


def stretch_workers(deployment: Deployment, source: str) -> set[int]:
    """The workers through which runs of a source may go, those included where they end."""
    chains = stretch(deployment, source)
    found = {
        gate.worker
        for number, (sender, _) in deployment.wiring.streams.items()
        if sender in chains
        for gate in deployment.gates[number]
    }
    return found - {NOWHERE}
