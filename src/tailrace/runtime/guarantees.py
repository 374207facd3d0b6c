"""Whether a topology can give what is asked of it when something fails, and what that needs."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args
from urllib.parse import quote

from tailrace.graph.model import Graph, Operator
from tailrace.graph.validate import TopologyError
from tailrace.runtime.reading import SourceLogic
from tailrace.runtime.sink import Guarantee


def check_guarantee(graph: Graph, wanted: Guarantee) -> None:
    """Raise TopologyError if records would be lost or counted twice that must not be.

    It is about sources and state: every sink says for itself what its results are, see
    `Sink.guarantee`. With less than "exactly once", what a source that cannot rewind had given and
    no epoch holds is lost when something fails; all else is as with "exactly once".
    """
    if wanted not in get_args(Guarantee):
        raise TopologyError(f"guarantee is {wanted!r}; it must be one of {get_args(Guarantee)}")
    if wanted != "exactly once":
        return
    for operator in graph.operators:
        if isinstance(operator.logic, SourceLogic) and not operator.logic.source.rewinds:
            kind = type(operator.logic.source).__name__
            raise TopologyError(
                f"exactly once is not possible with the source {operator.name!r}: {kind} cannot be"
                " read again from a position, so what was under way is lost when a worker fails."
                " Say journal=True (or wrap it in sources.journaled) to log records before they are"
                ' processed; or accept the loss, with guarantee="at most once", or guarantee='
                '"at least once" if other sources are to be read again'
            )


def bound(graph: Graph, folder: str) -> Graph:
    """The graph of a job with checkpoints in a folder: each source has a place of its own there."""

    def bind(operator: Operator) -> Operator:
        if not isinstance(operator.logic, SourceLogic):
            return operator
        place = f"{folder.rstrip('/')}/sources/{quote(operator.name, safe='')}"
        return replace(operator, logic=SourceLogic(operator.logic.source.bind(place)))

    return replace(graph, operators=tuple(map(bind, graph.operators)))
