"""A graph as chains of operators that run fused, and the streams between them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tailrace.graph.expand import Chain, chains
from tailrace.graph.model import Graph


class InstanceId(NamedTuple):
    """An instance by what stays its own whatever else changes: its first operator, and which copy.

    >>> print(InstanceId("split", 3))
    split[3]
    """

    operator: str
    index: int  # type: ignore[assignment]  # tuples have a method of that name, of no use here

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]"


@dataclass(frozen=True)
class Wiring:
    """A graph and its chains. Streams inside a chain join nothing: its operators call each other.

    Plans number instances chain by chain; everything that runs knows them by `InstanceId`.
    """

    graph: Graph
    chains: tuple[Chain, ...]

    @property
    def instances(self) -> int:
        """How many instances there are; plans number them from 0."""
        return sum(chain.parallelism for chain in self.chains)

    @cached_property
    def ids(self) -> tuple[InstanceId, ...]:
        """The id of each instance, in the order in which plans number them."""
        return tuple(
            InstanceId(chain.operators[0], index)
            for chain in self.chains
            for index in range(chain.parallelism)
        )

    @cached_property
    def home(self) -> dict[str, Chain]:
        """The chain of each operator."""
        return {name: chain for chain in self.chains for name in chain.operators}

    @cached_property
    def streams(self) -> dict[int, tuple[Chain, Chain]]:
        """The streams between chains, by their number in the graph: from which, to which."""
        joined = {}
        for number, stream in enumerate(self.graph.streams):
            ends = self.home[stream.source], self.home[stream.target]
            if ends[0] is not ends[1]:
                joined[number] = ends
        return joined

    def chain_of(self, instance: int) -> Chain:
        """The chain that an instance runs a copy of, by its number in plans."""
        if not 0 <= instance < self.instances:
            raise KeyError(f"no instance {instance}; there are {self.instances}")
        return self.chains[bisect_right(self.chains, instance, key=lambda chain: chain.first) - 1]


def wire(graph: Graph) -> Wiring:
    """The graph's chains, and the streams between them."""
    return Wiring(graph, tuple(chains(graph)))
