"""RLAS, BriskStream's scheduler: how many instances, and where, by what the model predicts.

Its algorithm 1: start with one instance of everything, place them (algorithm 2,
`branch_and_bound`), give the over-supplied operator nearest to the sinks more instances, by how
much too much it gets, and so on until all cores are taken. When no operator gets too much, the
sources give too little; when the places are the limit, the heaviest instances are cut finer (the
paper's "failed to allocate").

Beyond the paper: a placement is worth what it sustains under back-pressure, so there is always
one; the best few are then refined by moving, swapping, adding and exchanging single instances; and
where the whole space is small enough it is searched to the end, so that small plans are optimal.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from math import ceil, inf

from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.flow import Flow, flow_of
from tailrace.plan.model.loads import loads, oversupply, resource_uses, source_rates
from tailrace.plan.model.machine import FREE, Machine, Place, total_cores
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, plan_for, with_parallelism
from tailrace.plan.search.branch_and_bound import Search, Solution
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.layout import Layout, layout_of, layout_of_plan
from tailrace.plan.search.refine import refine, search_to_the_end

COMPRESSION = 5
LAYOUTS = 60_000
"""The default effort of the refinement: one or two seconds for 144 cores."""
PLACEMENT_LAYOUTS = 400
"""What one step of the scaling may look at; its first way down the tree always ends."""


def rlas(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    compression: int = COMPRESSION,
    max_instances: int | None = None,
    keep: Collection[str] = (),
    start: Plan | None = None,
    layouts: int = LAYOUTS,
    budget_s: float = inf,
    seed: int = 0,
) -> Plan:
    """The plan with the highest predicted throughput that the search finds.

    Chains stay as the graph has them. Operators in `keep` stay as many as they are, and so do
    chains that read a global or broadcast stream or have a forwarded one that is not fused. There
    are at most `max_instances` (unless told, as many as cores, or a few more on small machines).
    The plan is never worse than `start`, which must be of the same chains. `layouts` bounds the
    refinement: the result depends on the arguments alone, except when `budget_s` ends it earlier:
    then it is the best so far.
    """
    flow = flow_of(graph, profile, machine, places)
    limit = max(max_instances or _most_instances(flow), len(flow.parts))
    ends = time.monotonic() + budget_s

    def late() -> bool:
        return time.monotonic() > ends

    free = _free_parts(flow, keep)
    tried = list(_scale(flow, free, limit, compression, late))
    starts = [] if start is None else [start]
    alone = _fewer_nodes(places)
    if alone:
        # What costs little and talks much may do better on few nodes than on all.
        few = rlas(
            graph,
            profile,
            machine,
            tuple(places[p] for p in alone),
            compression=compression,
            max_instances=limit,
            keep=keep,
            layouts=layouts // 4,
            budget_s=ends - time.monotonic(),
            seed=seed,
        )
        starts.append(replace(few, place_of=tuple(alone[p] for p in few.place_of)))
    for plan in starts:
        given = layout_of_plan(flow, plan)
        tried.append(Solution(given.copy_counts(), given.fullest()))
    best = min(tried, key=lambda solution: solution.fullest)
    effort = Effort(layouts, late)
    best = refine(flow, best, free, limit, effort, random.Random(seed))
    proven = search_to_the_end(flow, best, free, limit, effort)
    assert best.counts is not None
    plan = _plan_of(flow, best.counts)
    prediction = predict(graph, plan, profile, machine)
    instances = sum(map(sum, best.counts))
    spent = "there may be better ones that the search did not come to"
    if proven:
        spent = "searched to its end, so none is better"
    elif late():
        spent = "stopped by its time budget"
    reason = (
        f"{prediction.throughput:,.0f} records/s at the sinks with {instances} of at most {limit}"
        f" instances; limited by {prediction.bottleneck.what} {prediction.bottleneck.where};"
        f" {spent}"
    )
    return replace(plan, reason=reason)


def rlas_fix_l(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    keep: Collection[str] = (),
    layouts: int = LAYOUTS,
) -> Plan:
    """RLAS that takes every record to come from as far away as possible (the paper's fix(L))."""
    crossings = [machine.same_socket, *machine.other_socket]
    if len(machine.nodes) > 1:
        crossings.append(machine.other_node)
    farthest = max(crossings, key=lambda one: one.send_ns(100) + one.receive_ns(100))
    plan = rlas(graph, profile, machine.crossed_by(farthest), places, keep=keep, layouts=layouts)
    return replace(plan, scheduler="rlas fix l")


def rlas_fix_u(
    graph: Graph,
    profile: Profile,
    machine: Machine,
    places: tuple[Place, ...],
    *,
    keep: Collection[str] = (),
    layouts: int = LAYOUTS,
) -> Plan:
    """RLAS that takes fetching to be free (the paper's fix(U))."""
    plan = rlas(graph, profile, machine.crossed_by(FREE), places, keep=keep, layouts=layouts)
    return replace(plan, scheduler="rlas fix u")


def _free_parts(flow: Flow, keep: Collection[str]) -> list[int]:
    """The parts whose size may change."""
    bound = {Rule.GLOBAL, Rule.ALL, Rule.FORWARD}
    return [
        k
        for k, part in enumerate(flow.parts)
        if len(flow.siblings[k]) == 1
        and not any(flow.edges[e].rule in bound for e in flow.into[k])
        and not any(flow.edges[e].rule is Rule.FORWARD for e in flow.out_of[k])
        and not any(name in keep for name in flow.chains[part.chain].operators)
    ]


def _fewer_nodes(places: tuple[Place, ...]) -> list[int]:
    """The places of half the nodes or more, those with the most; none if there is one node.

    So many that it is a power of two: with its own halves they are 1, 2, 4 ... nodes.
    """
    nodes = Counter(place.node for place in places)
    half = 1 << (len(nodes) - 1).bit_length() - 1 if len(nodes) > 1 else 0
    chosen = {node for node, _ in nodes.most_common(half)}
    return [p for p, place in enumerate(places) if place.node in chosen]


def _most_instances(flow: Flow) -> int:
    """As many as cores, as in the paper; where those are few, enough to balance their work."""
    cores, parts = total_cores(flow.places), len(flow.parts)
    return max(cores, min(parts * len(flow.places), 2 * max(cores, parts)))


def _plan_of(flow: Flow, counts: list[list[int]]) -> Plan:
    sizes = [sum(row) for row in counts]
    heads = {}
    for k, part in enumerate(flow.parts):
        heads[flow.chains[part.chain].operators[0]] = sum(sizes[j] for j in flow.siblings[k])
    graph = with_parallelism(flow.graph, heads)
    place_of = [
        place for row in counts for place, instances in enumerate(row) for _ in range(instances)
    ]
    return plan_for(graph, flow.places, place_of, scheduler="rlas", reason="")


def _scale(
    flow: Flow, free: list[int], limit: int, compression: int, late: Callable[[], bool]
) -> Iterator[Solution]:
    """Algorithm 1: ever more instances, each time with the best placement found."""
    sizes = [1 if k in free else len(part.instances) for k, part in enumerate(flow.parts)]
    while True:
        found = Solution()
        effort = Effort(PLACEMENT_LAYOUTS, late)
        Search(Layout(flow, sizes), compression, effort, found, exact=False).run()
        even = _even(flow, sizes)
        if even.fullest < found.fullest:
            found = even
        assert found.counts is not None
        yield found
        room = limit - sum(sizes)
        grown = _bottleneck(flow, found.counts, free)
        if room < 1 or grown is None or late():
            return
        k, more = grown
        sizes[k] += min(more, room)


def _even(flow: Flow, sizes: list[int]) -> Solution:
    """Instances in turn: what greedy packing may miss where there are many small places."""
    counts = [[0] * len(flow.places) for _ in sizes]
    instances = [k for k, size in enumerate(sizes) for _ in range(size)]
    for i, k in enumerate(instances):
        counts[k][i % len(flow.places)] += 1
    return Solution(counts, layout_of(flow, counts).fullest())


def _bottleneck(flow: Flow, counts: list[list[int]], free: list[int]) -> tuple[int, int] | None:
    """Which part needs more instances, and how many more; None when no growth can help."""
    emitted = source_rates(flow, None)
    unit = loads(flow, counts, emitted)
    uses = {
        k: max(cpu / n for cpu, n in zip(unit.part[k], counts[k], strict=True) if n)
        for k in range(len(flow.parts))
    }
    sources = [k for k, part in enumerate(flow.parts) if part.source]
    fastest = max(uses[k] for k in sources) or max(uses.values())
    over = oversupply(flow, counts, [rate / fastest for rate in emitted])
    for k in reversed(range(len(flow.parts))):
        ratio = max(over[k])
        if k in free and ratio > 1 + 1e-6:
            # The paper adds ceil(ratio); many instances need more to make up for it at once.
            return k, max(ceil(ratio), ceil(sum(counts[k]) * (ratio - 1)))
    crowded = max(resource_uses(flow, unit), key=lambda use: use.used)
    slowest = [k for k in sources if k in free]
    if slowest and crowded.used <= max(uses.values()):
        return max(slowest, key=uses.__getitem__), 1
    # Instances do not fit beside each other: finer ones may.
    heaviest = max(free, key=uses.__getitem__, default=None)
    return None if heaviest is None else (heaviest, 1)
