"""Who sends to whom: every pair of instances that a stream joins, numbered.

The number of such a link travels in every message, so that the receiver knows the stream, the
sender and the port without being told. Every worker computes the same numbers from graph alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tailrace.graph.expand import Chain, chains
from tailrace.graph.model import Graph, Rule, Stream


@dataclass(frozen=True)
class Link:
    """From one instance to another, along one stream."""

    id: int
    stream: Stream
    sender: int
    receiver: int


@dataclass(frozen=True)
class Wiring:
    """A graph, its chains, and the links between their instances."""

    graph: Graph
    chains: tuple[Chain, ...]
    links: tuple[Link, ...]

    @property
    def instances(self) -> int:
        """How many instances there are; their ids count from 0."""
        return sum(chain.parallelism for chain in self.chains)

    def chain_of(self, instance: int) -> Chain:
        """The chain that an instance runs a copy of."""
        if not 0 <= instance < self.instances:
            raise KeyError(f"no instance {instance}; there are {self.instances}")
        return self.chains[bisect_right(self.chains, instance, key=lambda chain: chain.first) - 1]

    @cached_property
    def links_into(self) -> list[list[Link]]:
        """The links that end at each instance, in the order of their numbers."""
        return self._by_instance(lambda link: link.receiver)

    @cached_property
    def links_out_of(self) -> list[list[Link]]:
        """The links that start at each instance, in the order of their numbers."""
        return self._by_instance(lambda link: link.sender)

    def _by_instance(self, end: Callable[[Link], int]) -> list[list[Link]]:
        found: list[list[Link]] = [[] for _ in range(self.instances)]
        for link in self.links:
            found[end(link)].append(link)
        return found


def wire(graph: Graph) -> Wiring:
    """Number all links of a graph. Streams inside a chain have none."""
    chained = chains(graph)
    home = {name: chain for chain in chained for name in chain.operators}
    links: list[Link] = []
    for stream in graph.streams:
        source, target = home[stream.source], home[stream.target]
        if source is target:
            continue
        for sender in source.instances:
            receivers: range | list[int] = target.instances
            if stream.grouping.rule is Rule.FORWARD:
                receivers = [target.first + sender - source.first]
            for receiver in receivers:
                links.append(Link(len(links), stream, sender, receiver))
    return Wiring(graph, tuple(chained), tuple(links))
