"""Which worker takes which place of a plan.

A plan knows nodes by number. On which host Spark runs which worker is known only when all workers
have said so; from then on places have ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from tailrace.control.protocol import Hello


class SeatingError(ValueError):
    """The workers do not stand as the plan wants them."""


def home(hello: Hello, node: str) -> Hashable:
    """What counts as the node of a worker, by the option `node` of a job."""
    if node == "memory":
        return hello.host
    return hello.executor if node == "executor" else hello.rank


def seat(wanted: Sequence[int], homes: Sequence[Hashable]) -> tuple[int, ...]:
    """The rank for each place: `wanted` has the node of each place, `homes` of each worker.

    Nodes and homes that have as many are matched, each in the order of its first; inside of them
    places and workers go in order. So if all is one node, place i is worker i.
    """
    places, workers = Counter(wanted), Counter(homes)
    if sorted(places.values()) != sorted(workers.values()):
        raise SeatingError(f"the plan wants {_told(places)}; Spark gave {_told(workers)}")
    free = list(workers)
    seats = [0] * len(wanted)
    for node, count in places.items():
        chosen = next(one for one in free if workers[one] == count)
        free.remove(chosen)
        ranks = [rank for rank, where in enumerate(homes) if where == chosen]
        mine = [place for place, where in enumerate(wanted) if where == node]
        for place, rank in zip(mine, ranks, strict=True):
            seats[place] = rank
    return tuple(seats)


def _told(counts: Counter[Hashable] | Counter[int]) -> str:
    """Such as: 2 nodes with 5 and 3 workers."""
    sizes = sorted(counts.values(), reverse=True)
    if len(set(sizes)) == 1:
        each = " each" if len(sizes) > 1 else ""
        return f"{_many(len(sizes), 'node')} with {_many(sizes[0], 'worker')}{each}"
    *most, last = map(str, sizes)
    return f"{_many(len(sizes), 'node')} with {', '.join(most)} and {last} workers"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
