"""A topology cut down to one source, one sink, and what lies between: what a history run needs."""

from __future__ import annotations

from dataclasses import replace

from tailrace.graph.model import DEAD_LETTERS, Graph, OnError, Operator
from tailrace.graph.validate import TopologyError


def ends(graph: Graph, source: str | None, sink: str | None) -> tuple[str, str]:
    """The source and the sink that are meant: the named ones, or the only ones."""
    sources = [operator.name for operator in graph.operators if operator.is_source]
    sinks = [operator.name for operator in graph.operators if is_sink(operator)]
    return _pick("source", source, sources), _pick("sink", sink, sinks)


def is_sink(operator: Operator) -> bool:
    """Whether records end there."""
    return set(operator.outputs) <= {DEAD_LETTERS}


def cut(graph: Graph, source: str, sink: str) -> Graph:
    """The graph with only what leads to a sink.

    Records for dead letters that nobody reads any more are skipped, and counted.
    """
    kept = {sink}
    waiting = [sink]
    while waiting:
        for stream in graph.into(waiting.pop()):
            if stream.source not in kept:
                kept.add(stream.source)
                waiting.append(stream.source)
    if source not in kept:
        raise TopologyError(
            f"no stream leads from the source {source!r} to the sink {sink!r};"
            f" what leads there is {sorted(kept - {sink})}"
        )
    streams = tuple(s for s in graph.streams if s.source in kept and s.target in kept)
    read = {stream.source for stream in streams if stream.output == DEAD_LETTERS}
    operators = [operator for operator in graph.operators if operator.name in kept]
    for i, operator in enumerate(operators):
        if operator.on_error is OnError.DEAD_LETTER and operator.name not in read:
            operators[i] = replace(operator, on_error=OnError.SKIP)
    return Graph(graph.name, tuple(operators), streams)


def with_logic(graph: Graph, logics: dict[str, object]) -> Graph:
    """The graph with other logic for some operators."""
    operators = tuple(
        replace(operator, logic=logics.get(operator.name, operator.logic))
        for operator in graph.operators
    )
    return replace(graph, operators=operators)


def _pick(kind: str, wanted: str | None, there: list[str]) -> str:
    if wanted is not None:
        if wanted not in there:
            raise TopologyError(f"there is no {kind} {wanted!r}; there are {there}")
        return wanted
    if len(there) != 1:
        raise TopologyError(f"the topology has {len(there)} {kind}s, {there}: say {kind}=<name>")
    return there[0]
