"""From operators to instances: numbering, and which operators run fused."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.graph.model import Graph, Rule
from tailrace.graph.validate import order


@dataclass(frozen=True)
class Chain:
    """Operators that run fused: same parallelism, joined by forward streams, called directly.

    Instance `first + index` runs copy `index` of each of them.
    """

    operators: tuple[str, ...]
    parallelism: int
    first: int

    @property
    def instances(self) -> range:
        """The ids of its instances."""
        return range(self.first, self.first + self.parallelism)

    @property
    def label(self) -> str:
        """The chain as people read it."""
        return " + ".join(self.operators)


def chains(graph: Graph) -> list[Chain]:
    """The graph's operators as chains, sources first. Instance ids are theirs, without gaps.

    An operator joins the chain of its producer when that is the only thing it reads and the
    stream between them is forwarded.
    """
    members: dict[str, list[str]] = {}
    head_of: dict[str, str] = {}
    for name in order(graph):
        entering = graph.into(name)
        if len(entering) == 1 and entering[0].grouping.rule is Rule.FORWARD:
            head_of[name] = head_of[entering[0].source]
            members[head_of[name]].append(name)
        else:
            head_of[name] = name
            members[name] = [name]
    result = []
    first = 0
    for head, names in members.items():
        parallelism = graph.operator(head).parallelism
        result.append(Chain(tuple(names), parallelism, first))
        first += parallelism
    return result
