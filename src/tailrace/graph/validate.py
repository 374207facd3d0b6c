"""Whether a topology makes sense, and if not, what to do about it."""

from __future__ import annotations

from collections import Counter
from operator import index
from typing import SupportsIndex

from tailrace.graph.model import DEAD_LETTERS, Graph, OnError, Rule


class TopologyError(ValueError):
    """The topology cannot run as it is; the message says why and what to change."""


def validate(graph: Graph) -> None:
    """Raise a TopologyError for the first thing wrong with the graph."""
    if not graph.operators:
        raise TopologyError(f"topology {graph.name!r} is empty; start it with .source(...)")
    for name, count in Counter(operator.name for operator in graph.operators).items():
        if count > 1:
            raise TopologyError(
                f"{count} operators are named {name!r}; give each a name of its own"
            )
    for operator in graph.operators:
        whole_parallelism(operator.name, operator.parallelism)
    if not any(operator.is_source for operator in graph.operators):
        raise TopologyError(f"topology {graph.name!r} has no source; start it with .source(...)")
    _check_streams(graph)
    order(graph)


def _check_streams(graph: Graph) -> None:
    known = {operator.name: operator for operator in graph.operators}
    for stream in graph.streams:
        for name in (stream.source, stream.target):
            if name not in known:
                raise TopologyError(
                    f"stream {stream.label!r} names the operator {name!r}; there are {list(known)}"
                )
        source, target = known[stream.source], known[stream.target]
        if stream.output not in source.outputs:
            raise TopologyError(
                f"{source.name!r} has no output {stream.output!r}; it has {list(source.outputs)}"
            )
        if target.is_source:
            raise TopologyError(
                f"{target.name!r} is a source; the stream {stream.label!r} cannot enter it"
            )
        if not 0 <= stream.port < target.ports:
            raise TopologyError(
                f"stream {stream.label!r} enters port {stream.port};"
                f" {target.name!r} has {target.ports}"
            )
        if stream.grouping.rule is Rule.FORWARD and source.parallelism != target.parallelism:
            raise TopologyError(
                f"stream {stream.label!r} goes instance by instance, but the parallelisms are"
                f" {source.parallelism} and {target.parallelism}; make them equal or use .shuffle()"
            )
    for operator in graph.operators:
        entered = {stream.port for stream in graph.into(operator.name)}
        if not operator.is_source and entered != set(range(operator.ports)):
            missing = sorted(set(range(operator.ports)) - entered)
            raise TopologyError(f"nothing enters {operator.name!r} at port {missing[0]}")
        if operator.on_error is OnError.DEAD_LETTER and not any(
            stream.output == DEAD_LETTERS for stream in graph.out_of(operator.name)
        ):
            raise TopologyError(
                f"{operator.name!r} sends failed records to its dead letters, but nothing reads"
                " them; use .dead_letters() on its stream, or on the topology with its name"
            )


def order(graph: Graph) -> list[str]:
    """The operators' names, each after all that it reads from. Raises when there is a cycle."""
    waiting = {
        operator.name: {stream.source for stream in graph.into(operator.name)}
        for operator in graph.operators
    }
    done: list[str] = []
    while waiting:
        ready = [name for name, before in waiting.items() if not before - set(done)]
        if not ready:
            cycle = " -> ".join(_cycle(waiting))
            raise TopologyError(f"the streams {cycle} form a cycle; that cannot run")
        for name in ready:
            del waiting[name]
        done += ready
    return done


def _cycle(waiting: dict[str, set[str]]) -> list[str]:
    """One cycle among operators of which each waits for another, in the direction of its streams.

    Going against the streams from any of them must come round.
    """
    path = [next(iter(waiting))]
    while True:
        before = min(waiting[path[-1]] & waiting.keys())
        if before in path:
            return [before, *reversed(path[path.index(before) :])]
        path.append(before)


def whole_parallelism(name: str, parallelism: SupportsIndex) -> int:
    """The parallelism of the operator with this name as an int; raises if it cannot be one."""
    number = whole_number(parallelism)
    if number is None or number < 1:
        raise TopologyError(
            f"parallelism of {name!r} is {parallelism!r}; it must be a whole number, at least 1"
        )
    return number


def whole_number(value: SupportsIndex) -> int | None:
    """The value as an int, if it is a whole number: one of numpy's is, True is not."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None
