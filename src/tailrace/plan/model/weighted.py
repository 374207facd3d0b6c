"""A weighted graph: what each vertex costs, and what flows between each two. And its split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Weighted:
    """Vertices 0, 1 ... with their loads, and for each the flow to and from its neighbours.

    `flows[u][v]` equals `flows[v][u]` and counts both directions; nobody is his own neighbour.
    """

    loads: tuple[float, ...]
    flows: tuple[Mapping[int, float], ...]

    @staticmethod
    def of(loads: Sequence[float], edges: Iterable[tuple[int, int, float]]) -> Weighted:
        """Edges (one end, other end, flow) in any direction and order are added up."""
        flows: list[dict[int, float]] = [{} for _ in loads]
        for one, other, flow in edges:
            if one != other and flow > 0:
                flows[one][other] = flows[one].get(other, 0.0) + flow
                flows[other][one] = flows[other].get(one, 0.0) + flow
        return Weighted(tuple(loads), tuple(flows))

    @property
    def size(self) -> int:
        """How many vertices there are."""
        return len(self.loads)

    def cut(self, part_of: Sequence[int]) -> float:
        """What flows between vertices of different parts."""
        return sum(
            flow
            for vertex, near in enumerate(self.flows)
            for other, flow in near.items()
            if vertex < other and part_of[vertex] != part_of[other]
        )

    def merged(self, parent_of: Sequence[int], parents: int) -> Weighted:
        """The graph of the parents: loads and flows added up, what is inside a parent left out."""
        loads = [0.0] * parents
        flows: list[dict[int, float]] = [{} for _ in range(parents)]
        for vertex, near in enumerate(self.flows):
            parent = parent_of[vertex]
            loads[parent] += self.loads[vertex]
            ours = flows[parent]
            for other, flow in near.items():
                there = parent_of[other]
                if there != parent:
                    ours[there] = ours.get(there, 0.0) + flow
        return Weighted(tuple(loads), tuple(flows))

    def only(self, vertices: Sequence[int]) -> Weighted:
        """The graph of these vertices alone, numbered in their order."""
        number = {vertex: i for i, vertex in enumerate(vertices)}
        return Weighted(
            tuple(self.loads[vertex] for vertex in vertices),
            tuple(
                {number[o]: flow for o, flow in self.flows[vertex].items() if o in number}
                for vertex in vertices
            ),
        )
