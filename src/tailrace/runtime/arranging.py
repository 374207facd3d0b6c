"""What a running job may be asked for, as deployments: other plans, numbers, workers.

Deployments are by places, as plans are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.graph.model import Graph, Rule
from tailrace.graph.validate import whole_number
from tailrace.graph.wiring import InstanceId, wire
from tailrace.runtime.deployment import Deployment, changed, forwarded_in


def rescaled(
    before: Deployment, parallelism: Mapping[str, int], places: Sequence[int]
) -> Deployment:
    """With other numbers of instances; new ones in those of the places that have least to do.

    Operators that run fused with one that is named have as many, and so have those that a stream
    joins to it instance by instance.
    """
    graph = before.graph
    names = {one.name for one in graph.operators}
    if unknown := set(parallelism) - names:
        raise ValueError(f"there is no operator {min(unknown)!r}; there are {sorted(names)}")
    wanted: dict[str, int] = {}
    for name, count in parallelism.items():
        if whole_number(count) is None:
            raise TypeError(f"parallelism of {name!r} is {count!r}; it must be a whole number")
        if count < 1:
            raise ValueError(f"parallelism of {name!r} is {count!r}; it must be at least 1")
        together = _together(graph, name)
        for one in together:
            if wanted.setdefault(one, count) != count:
                raise ValueError(
                    f"{' and '.join(map(repr, together))} have as many instances as each other, for"
                    f" records go from one to the next instance by instance; both {wanted[one]} and"
                    f" {count} were asked for"
                )
    load = dict.fromkeys(places, 0)
    for worker in before.workers.values():
        if worker in load:
            load[worker] += 1
    placed = {}
    for chain in before.wiring.chains:
        for index in range(chain.parallelism, wanted.get(chain.operators[0], 0)):
            worker = min(load, key=lambda one: (load[one], one))
            load[worker] += 1
            placed[InstanceId(chain.operators[0], index)] = worker
    return changed(before, parallelism=wanted, workers=placed)


def _together(graph: Graph, name: str) -> list[str]:
    """The operators that have as many instances as one, in the order of the graph."""
    found, looked = {name}, set[str]()
    while todo := found - looked:
        looked |= todo
        for stream in graph.streams:
            ends = {stream.source, stream.target}
            if stream.grouping.rule is Rule.FORWARD and ends & todo:
                found |= ends
    return [one.name for one in graph.operators if one.name in found]


def recast(before: Deployment, wanted: Graph, place_of: Sequence[int]) -> Deployment:
    """As a plan wants its graph, with every instance in the place that is given, as plans number.

    Of the graph its numbers of instances count, and which streams are forwarded.
    """
    ids = wire(wanted).ids
    if len(place_of) != len(ids):
        raise ValueError(f"{len(place_of)} places for {len(ids)} instances")
    return changed(
        before,
        parallelism={one.name: one.parallelism for one in wanted.operators},
        workers=dict(zip(ids, place_of, strict=True)),
        forwarded=forwarded_in(wanted),
    )


def spread_over(before: Deployment, places: Sequence[int], fixed: Sequence[str] = ()) -> Deployment:
    """With about as many instances in each of these places, and as few moved as can be.

    Those of `fixed` operators stay where they are; ValueError if that is none of them.
    """
    movable = {
        one: worker
        for one, worker in before.workers.items()
        if worker >= 0 and not set(before.wiring.home[one.operator].operators) & set(fixed)
    }
    load = dict.fromkeys(places, 0)
    for one, worker in before.workers.items():
        if one in movable or worker < 0:
            continue
        if worker not in load:
            raise ValueError(f"{one} cannot move, and would have to: its worker is to leave")
        load[worker] += 1
    total = sum(1 for worker in before.workers.values() if worker >= 0)
    most, extra = divmod(total, len(places))
    moved: dict[InstanceId, int] = {}
    homeless = []
    full = {worker: most + (at < extra) for at, worker in enumerate(places)}
    # Of each operator some stay everywhere: they are taken in turn, one copy after the other.
    for one, worker in sorted(movable.items(), key=lambda pair: (pair[0].index, pair[0].operator)):
        if worker in load and load[worker] < full[worker]:
            load[worker] += 1
        else:
            homeless.append(one)
    for one in homeless:
        worker = min(places, key=lambda place: (load[place] - full[place], place))
        load[worker] += 1
        moved[one] = worker
    return changed(before, workers=moved)
