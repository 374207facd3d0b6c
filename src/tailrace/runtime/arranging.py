"""What a running job may be asked for, as deployments: other plans, numbers, workers.

Deployments are by places, as plans are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import Deployment, changed


def rescaled(before: Deployment, parallelism: Mapping[str, int], workers: int) -> Deployment:
    """With other numbers of instances; new ones in the workers that have least to do.

    Operators that run fused with one that is named, or take its records instance by instance, have
    as many.
    """
    graph = before.graph
    names = {one.name for one in graph.operators}
    if unknown := set(parallelism) - names:
        raise ValueError(f"there is no operator {min(unknown)!r}; there are {sorted(names)}")
    wanted: dict[str, int] = {}
    for name, count in parallelism.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"parallelism of {name!r} is {count!r}; it must be at least 1")
        for one in before.wiring.home[name].operators:
            if wanted.setdefault(one, count) != count:
                raise ValueError(
                    f"{one!r} runs fused in {before.wiring.home[name].label!r}, for which both"
                    f" {wanted[one]} and {count} instances were asked for"
                )
    load = Counter(dict.fromkeys(range(workers), 0))
    load.update(worker for worker in before.workers.values() if worker >= 0)
    placed = {}
    for chain in before.wiring.chains:
        for index in range(chain.parallelism, wanted.get(chain.operators[0], 0)):
            worker = min(load, key=lambda one: (load[one], one))
            load[worker] += 1
            placed[InstanceId(chain.operators[0], index)] = worker
    return changed(before, parallelism=wanted, workers=placed)


def placed(before: Deployment, place_of: Sequence[int]) -> Deployment:
    """With every instance in the place that is given, in the order in which plans number them."""
    ids = before.wiring.ids
    if len(place_of) != len(ids):
        raise ValueError(f"{len(place_of)} places for {len(ids)} instances")
    return changed(before, workers=dict(zip(ids, place_of, strict=True)))


def spread_over(before: Deployment, workers: int, fixed: Sequence[str] = ()) -> Deployment:
    """With about as many instances in each of so many workers, and as few moved as can be.

    Those of `fixed` operators stay where they are, if that is still there.
    """
    movable = {
        one: worker
        for one, worker in before.workers.items()
        if worker >= 0 and not set(before.wiring.home[one.operator].operators) & set(fixed)
    }
    load = Counter(dict.fromkeys(range(workers), 0))
    load.update(
        worker for one, worker in before.workers.items() if one not in movable and worker >= 0
    )
    total = sum(1 for worker in before.workers.values() if worker >= 0)
    most, extra = divmod(total, workers)
    moved: dict[InstanceId, int] = {}
    homeless = []
    full = {worker: most + (worker < extra) for worker in range(workers)}
    # Of each operator some stay everywhere: they are taken in turn, one copy after the other.
    for one, worker in sorted(movable.items(), key=lambda pair: (pair[0].index, pair[0].operator)):
        if worker < workers and load[worker] < full[worker]:
            load[worker] += 1
        else:
            homeless.append(one)
    for one in homeless:
        worker = min(range(workers), key=lambda place: (load[place] - full[place], place))
        load[worker] += 1
        moved[one] = worker
    return changed(before, workers=moved)
