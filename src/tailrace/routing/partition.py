"""Which instance each key of a key graph should go to: METIS, then moves of single keys.

Keys heavier than an instance should be get one of their own first. The rest is partitioned over
nodes, and what each node got over its workers, since a way between nodes costs most. METIS balances
all that a part has; the bounds of each operator's instances are seen to afterwards (`refine`). Of
several solutions the cheapest is taken; one that leaves keys where they are is among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tailrace.routing.keygraph import KeyGraph
from tailrace.routing.matching import best_matching
from tailrace.routing.packing import packed
from tailrace.routing.refine import Refining

_PASSES = 12
_SMALL = 256
"""Keys of a graph for which more can be tried."""
_WEIGHTS = 1 << 28
"""METIS counts in 31 bits."""


class Partition(NamedTuple):
    """The instance of each key."""

    where: Any
    apart: Any
    """Whether each instance has a key that is as much as it can take, and gets no slots."""
    most: Any
    """What each instance should have of keys that are known, at most."""
    excess: float
    """By how much instances have more than that; 0 unless there are no keys that would fit."""


class _Bounded(NamedTuple):
    """A key graph as `refine` wants it."""

    start: Any
    first: Any
    worker: Any
    node: Any
    weight: Any
    edges: Any
    adjacent: Any
    edge_weight: Any
    before: Any
    most: Any
    fixed: Any
    ring: float
    tcp: float
    keep: float


def partition(graph: KeyGraph) -> Partition:
    """The cheapest partition that was found. The same graph always has the same."""
    if not graph.size:
        none = np.zeros(0, np.int32)
        apart = np.zeros(len(graph.worker), bool)
        return Partition(none, apart, np.zeros(len(graph.worker)), 0.0)
    begin, fixed, most, apart = _hot_keys(graph)
    bounded = _Bounded(
        graph.start,
        graph.first,
        graph.worker,
        graph.node,
        graph.weight,
        graph.edges,
        graph.adjacent,
        graph.edge_weight,
        graph.before,
        most,
        fixed.astype(np.uint8),
        graph.ring,
        graph.tcp,
        graph.keep,
    )
    best: tuple[float, float] | None = None
    for where in _starts(graph, begin, fixed, most):
        where[fixed] = begin[fixed]
        refining = _refined(bounded, where)
        reached = refining.excess(), refining.cost()
        if best is None or reached < best:
            best, found = reached, where
    assert best is not None
    return Partition(found, apart, most, best[0])


def _refining(bounded: _Bounded, where: Any) -> Refining:
    nodes = int(bounded.node.max()) + 1
    scratch = np.zeros(len(bounded.node)), np.zeros(nodes)
    return Refining(bounded, where, np.zeros(len(bounded.worker)), scratch)


def _refined(bounded: _Bounded, where: Any) -> Refining:
    refining = _refining(bounded, where)
    refining.rebalance()
    if refining.excess() > 0 and packed(bounded, where):
        refining = _refining(bounded, where)
    refining.improve(_PASSES)
    return refining


def _hot_keys(graph: KeyGraph) -> tuple[Any, Any, Any, Any]:
    """Where hot keys go, which they are, the bound of each instance, and which are theirs."""
    where = graph.before.copy()
    fixed = np.zeros(graph.size, bool)
    most = np.zeros(len(graph.worker))
    apart = np.zeros(len(graph.worker), bool)
    hot: list[tuple[float, int, int]] = []
    for o in range(graph.operators):
        keys = slice(graph.start[o], graph.start[o + 1])
        instances = slice(graph.first[o], graph.first[o + 1])
        weight = graph.weight[keys]
        rest, left = graph.total[o], int(graph.first[o + 1] - graph.first[o])
        unknown = max(rest - weight.sum(), 0.0)
        for v in np.argsort(-weight, kind="stable"):
            if left <= 1 or weight[v] <= graph.alpha * rest / left:
                break
            hot.append((float(weight[v] / graph.total[o]), int(graph.start[o] + v), o))
            rest -= weight[v]
            left -= 1
        most[instances] = max(graph.alpha * rest - unknown, 0.0) / left
    pull = np.zeros(len(graph.node))
    for _, v, o in sorted(hot, key=lambda one: (-one[0], one[1])):
        pull[:] = 0.0
        for e in range(graph.edges[v], graph.edges[v + 1]):
            if fixed[graph.adjacent[e]]:
                pull[graph.worker[where[graph.adjacent[e]]]] += graph.edge_weight[e]
        free = [i for i in range(graph.first[o], graph.first[o + 1]) if not apart[i]]
        chosen = max(free, key=lambda i: (pull[graph.worker[i]], i == graph.before[v], -i))
        where[v], fixed[v], apart[chosen], most[chosen] = chosen, True, True, graph.weight[v]
    return where, fixed, most, apart


def _starts(graph: KeyGraph, begin: Any, fixed: Any, most: Any) -> Iterator[Any]:
    """Solutions to begin with: what is, and what METIS finds; of small graphs more of them."""
    yield begin.copy()
    if graph.size <= _SMALL:
        yield _grown(graph, begin, fixed, most)
    for seed in range(8 if graph.size <= _SMALL else 3 if graph.size <= 4096 else 1):
        yield _by_metis(graph, fixed, most, seed, recursive=seed % 2 == 0)


def _grown(graph: KeyGraph, begin: Any, fixed: Any, most: Any) -> Any:
    """One key after the other, the one that belongs most to those before, where it costs least.

    Of equal ones the instance that has most already: what fits into few places stays in few.
    """
    where = begin.copy()
    placed = fixed.copy()
    operator = graph.operator_of()
    load = np.zeros(len(graph.worker))
    pull = np.zeros((graph.size, len(graph.node)))

    def place(v: int) -> None:
        placed[v] = True
        load[where[v]] += graph.weight[v]
        for e in range(graph.edges[v], graph.edges[v + 1]):
            pull[graph.adjacent[e], graph.worker[where[v]]] += graph.edge_weight[e]

    for hot in np.flatnonzero(fixed):
        place(int(hot))
    shared = np.zeros((len(graph.node), len(graph.node)))
    shared[:] = graph.node[:, None] == graph.node[None, :]
    while not placed.all():
        attached = np.where(placed, -1.0, pull.sum(axis=1))
        v = int(np.lexsort((-graph.weight, -attached))[0])
        o = operator[v]
        choices = np.arange(graph.first[o], graph.first[o + 1])
        fits = choices[load[choices] + graph.weight[v] <= most[choices]]
        here = fits if len(fits) else choices[[(load[choices] - most[choices]).argmin()]]
        at = graph.worker[here]
        saved = graph.ring * pull[v, at] + (graph.tcp - graph.ring) * (shared[at] @ pull[v])
        at_worker = np.bincount(graph.worker, load, len(graph.node))[at]
        where[v] = here[np.lexsort((-at_worker, -saved))[0]]
        place(v)
    return where


def _by_metis(graph: KeyGraph, fixed: Any, most: Any, seed: int, recursive: bool) -> Any:
    operator = graph.operator_of()
    load = graph.weight / np.maximum(graph.total[operator], 1e-300)
    # What each worker may have of each operator, as a share of it.
    room = np.zeros((graph.operators, len(graph.node)))
    for o in range(graph.operators):
        for i in range(graph.first[o], graph.first[o + 1]):
            room[o, graph.worker[i]] += most[i] / max(graph.total[o], 1e-300)
    worker = np.full(graph.size, -1, np.int32)
    free = np.flatnonzero(~fixed)
    old = graph.worker[graph.before]
    nodes = np.unique(graph.node)
    by_node = np.stack([room[:, graph.node == n].sum(axis=1) for n in nodes], axis=1)
    level = _split(
        graph, free, load, by_node, np.searchsorted(nodes, graph.node)[old], seed, recursive
    )
    for n, node in enumerate(nodes):
        mine = free[level == n]
        workers = np.flatnonzero((graph.node == node) & (room.sum(axis=0) > 0))
        if len(workers) == 0:
            workers = np.flatnonzero(graph.node == node)
        place = np.full(len(graph.node), -1)
        place[workers] = np.arange(len(workers))
        worker[mine] = workers[
            _split(graph, mine, load, room[:, workers], place[old], seed, recursive)
        ]
    return _instances(graph, worker, fixed, most)


def _split(
    graph: KeyGraph, vertices: Any, load: Any, room: Any, old: Any, seed: int, recursive: bool
) -> Any:
    """The part of each of some vertices; parts have the room of each operator in columns.

    Parts are numbered so that as much as possible stays where it was, by `old` (-1: elsewhere).
    """
    parts = room.shape[1]
    shares = room.sum(axis=0)
    if parts == 1 or len(vertices) <= 1 or shares.sum() <= 0:
        return np.full(len(vertices), int(shares.argmax()))
    used = np.flatnonzero(shares > 0)
    if len(used) == 1:
        return np.full(len(vertices), used[0])
    found = _metis(graph, vertices, load, shares[used] / shares[used].sum(), seed, recursive)
    # A part may take the place of another only if both have the same room.
    stays = np.zeros((len(used), len(used)))
    staying = old[vertices]
    for k, place in enumerate(used):
        stays[:, k] = np.bincount(found, np.where(staying == place, load[vertices], 0.0), len(used))
    same = np.abs(room[:, used, None] - room[:, None, used]).max(axis=0) <= 1e-9 * shares.max()
    return used[np.array(best_matching(np.where(same, stays, -1.0)))[found]]


def _metis(
    graph: KeyGraph, vertices: Any, load: Any, shares: Any, seed: int, recursive: bool
) -> Any:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError("key graphs are partitioned by pymetis: pip install pymetis") from error
    number = np.full(graph.size, -1, np.int64)
    number[vertices] = np.arange(len(vertices))
    counts = np.diff(graph.edges)[vertices]
    begin = np.repeat(graph.edges[:-1][vertices] - np.cumsum(counts) + counts, counts)
    all_edges = begin + np.arange(counts.sum())
    to = number[graph.adjacent[all_edges]]
    inside = to >= 0
    row = np.repeat(np.arange(len(vertices)), counts)[inside]
    weights = graph.edge_weight[all_edges][inside]
    heavy = _WEIGHTS / max(float(load[vertices].sum()), 1e-300)
    far = _WEIGHTS / max(float(weights.sum()), 1e-300)
    _, found = pymetis.part_graph(
        len(shares),
        pymetis.CSRAdjacency(
            np.searchsorted(row, np.arange(len(vertices) + 1)).astype(np.int32),
            to[inside].astype(np.int32),
        ),
        vweights=np.maximum(load[vertices] * heavy, 1).astype(np.int32),
        eweights=np.maximum(weights * far, 1).astype(np.int32),
        tpwgts=_whole(shares),
        recursive=recursive,
        options=pymetis.Options(ufactor=max(1, round((graph.alpha - 1) * 1000)), seed=seed),
    )
    return np.array(found, np.int64)


def _whole(shares: Any) -> list[float]:
    """Shares whose sum is 1 to the last bit, or nearly."""
    told = [float(share) for share in shares]
    told[-1] = 1.0 - sum(told[:-1])
    return told


def _instances(graph: KeyGraph, worker: Any, fixed: Any, most: Any) -> Any:
    """The instance of each key: one of the worker's, or where there is none, one that is near."""
    where = graph.before.copy()
    for o in range(graph.operators):
        mine: dict[int, list[int]] = {}
        open_ones = [i for i in range(graph.first[o], graph.first[o + 1]) if most[i] > 0]
        open_ones = open_ones or list(range(graph.first[o], graph.first[o + 1]))
        for i in open_ones:
            mine.setdefault(int(graph.worker[i]), []).append(i)
        keys = np.arange(graph.start[o], graph.start[o + 1])
        keys = keys[~fixed[keys]]
        load = dict.fromkeys(open_ones, 0.0)
        for w in np.unique(worker[keys]):
            here = keys[worker[keys] == w]
            choices = mine.get(int(w)) or [
                i for i in open_ones if graph.node[graph.worker[i]] == graph.node[w]
            ]
            choices = choices or open_ones
            if len(choices) == 1:
                where[here] = choices[0]
                continue
            for v in here[np.argsort(-graph.weight[here], kind="stable")]:
                least = min(load[i] for i in choices)
                stays = int(graph.before[v])
                i = stays if load.get(stays) == least else min(choices, key=load.__getitem__)
                if stays in choices and load[stays] + graph.weight[v] <= most[stays]:
                    i = stays
                where[v] = i
                load[i] += float(graph.weight[v])
    return where
