"""TurboStream's algorithms 1 and 2 on a plain weighted graph.

Where the paper is silent we chose: equal neighbours come in the order of their numbers; a level at
which nothing could be consolidated is the last; when no start of algorithm 2 comes within the
factor, the one that comes nearest is taken; line 22 of algorithm 2 puts a new vertex into the queue
when the queue is empty (as printed, it would leave parts of a graph that hang together by nothing
unvisited).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.plan.model.weighted import Weighted
from tailrace.plan.search.effort import Effort


@dataclass(frozen=True)
class Level:
    """A graph, and the parent of each of its vertices in the next, smaller one."""

    graph: Weighted
    parent_of: tuple[int, ...]


@dataclass(frozen=True)
class Consolidated:
    """The levels from the instances upwards, and the graph at the top."""

    levels: tuple[Level, ...]
    top: Weighted

    def down(self, part_of: Sequence[int]) -> list[int]:
        """The parts of the bottom's vertices when those at the top have these."""
        for level in reversed(self.levels):
            part_of = [part_of[parent] for parent in level.parent_of]
        return list(part_of)


def consolidate_once(graph: Weighted, most_load: float = math.inf) -> tuple[int, ...]:
    """Algorithm 1, one level: the parent of each vertex, numbered without gaps.

    Each vertex in turn goes together with the free neighbour it exchanges most with, or stays
    alone when there is none. `most_load` is ours: no pair heavier than that is made, since one
    that fits no node could not be balanced.
    """
    parent_of = [-1] * graph.size
    parents = 0
    for vertex, near in enumerate(graph.flows):
        if parent_of[vertex] >= 0:
            continue
        parent_of[vertex] = parents
        room = most_load - graph.loads[vertex]
        free = [u for u in near if parent_of[u] < 0 and graph.loads[u] <= room]
        if free:
            parent_of[min(free, key=lambda u: (-near[u], u))] = parents
        parents += 1
    return tuple(parent_of)


def consolidated(
    graph: Weighted, threshold: int, effort: Effort, most_load: float = math.inf
) -> Consolidated:
    """Algorithm 1: level upon level, until no more than `threshold` parents are left."""
    levels: list[Level] = []
    while graph.size > threshold:
        parent_of = consolidate_once(graph, most_load)
        effort.spend(sum(map(len, graph.flows)))
        parents = max(parent_of) + 1
        if parents == graph.size:
            break
        levels.append(Level(graph, parent_of))
        graph = graph.merged(parent_of, parents)
    return Consolidated(tuple(levels), graph)


def split_in_two(graph: Weighted, target: float, factor: float, effort: Effort) -> set[int]:
    """Algorithm 2: the vertices of the first part, which is to carry `target` of the load.

    From each vertex in turn a part is gathered breadth first; of those that miss the target by
    less than `factor` of the whole load, the one that cuts the least flow is taken.
    """
    total = sum(graph.loads) or 1.0
    order = [sorted(near, key=lambda u: (-near[u], u)) for near in graph.flows]
    best: tuple[float, float] | None = None
    result: set[int] = set()
    for start in range(graph.size):
        part = _gather(graph, order, start, target * total, factor * total)
        cut = sum(f for v in part for u, f in graph.flows[v].items() if u not in part)
        effort.spend(graph.size + sum(len(graph.flows[v]) for v in part))
        missed = abs(sum(graph.loads[v] for v in part) / total - target)
        quality = (0.0 if missed < factor else missed, cut)
        if best is None or quality < best:
            best, result = quality, part
    return result


def _gather(
    graph: Weighted, order: list[list[int]], start: int, target_load: float, allowed: float
) -> set[int]:
    part: set[int] = set()
    load = 0.0
    queue = deque([start])
    seen = {start}
    fresh = iter(range(graph.size))
    while queue and load < target_load:
        vertex = queue.popleft()
        with_it = load + graph.loads[vertex]
        if abs(with_it - target_load) < abs(load - target_load):
            part.add(vertex)
            load = with_it
            for near in order[vertex]:
                if near not in seen:
                    seen.add(near)
                    queue.append(near)
        if not queue and abs(load - target_load) > allowed:
            unseen = next((v for v in fresh if v not in seen), None)
            if unseen is not None:
                seen.add(unseen)
                queue.append(unseen)
    return part


def assign(
    graph: Weighted, capacities: Sequence[float], factor: float, threshold: int, effort: Effort
) -> list[int]:
    """Both algorithms as the paper has them: the part of each vertex.

    Consolidates, and then splits in two until every part has one node. Each half of the nodes
    gets load in proportion to its capacity, so nodes may differ.
    """
    tree = consolidated(graph, threshold, effort)
    part_of = [0] * tree.top.size

    def halve(vertices: list[int], parts: list[int]) -> None:
        if len(parts) == 1 or not vertices:
            for vertex in vertices:
                part_of[vertex] = parts[0]
            return
        middle = math.ceil(len(parts) / 2)
        first, second = parts[:middle], parts[middle:]
        target = sum(capacities[p] for p in first) / sum(capacities[p] for p in parts)
        gathered = split_in_two(tree.top.only(vertices), target, factor, effort)
        halve([v for i, v in enumerate(vertices) if i in gathered], first)
        halve([v for i, v in enumerate(vertices) if i not in gathered], second)

    halve(list(range(tree.top.size)), list(range(len(capacities))))
    return tree.down(part_of)
