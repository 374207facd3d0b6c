"""Which worker takes which place of a plan.

A plan knows nodes by number. On which host Spark runs which worker is known only when all workers
have said so; from then on places have ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from tailrace.control.protocol import Hello

GONE = -1
"""As the rank of a place: nobody has it any more."""


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


def reseat(
    wanted: tuple[int, ...], seats: tuple[int, ...], homes: Sequence[Hashable]
) -> tuple[int, ...]:
    """The rank for each place, where some may be `GONE` in the `seats` of before."""
    if not wanted:
        return tuple(range(len(homes)))
    places = [place for place in range(len(wanted)) if not seats or seats[place] != GONE]
    made = [GONE] * len(wanted)
    for place, rank in zip(places, seat([wanted[one] for one in places], homes), strict=True):
        made[place] = rank
    return tuple(made)


def more_places(
    seats: tuple[int, ...],
    wanted: tuple[int, ...],
    hellos: Sequence[Hello],
    ranks: range,
    node: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Seats and nodes when workers of these ranks have joined, each with a place of its own.

    `hellos` are those of all. Who joins takes a place that is free, or one behind the others; on
    the node of a worker that it shares a home with, or on a new one.
    """
    taken, nodes = list(seats), list(wanted)
    for rank in ranks:
        place = taken.index(GONE) if GONE in taken else len(taken)
        if wanted:
            mine = home(hellos[rank], node)
            others = (
                nodes[at]
                for at, other in enumerate(taken)
                if other != GONE and home(hellos[other], node) == mine
            )
            nodes[place : place + 1] = [next(others, max(nodes) + 1)]
        taken[place : place + 1] = [rank]
    return tuple(taken), tuple(nodes)


def fewer_places(
    seats: tuple[int, ...], wanted: tuple[int, ...], workers: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Seats and nodes when only so many workers are left; places keep their numbers.

    >>> fewer_places((0, 2, 1), (0, 1, 0), 2)
    ((0, -1, 1), (0, 1, 0))
    """
    left = [rank if rank < workers else GONE for rank in seats]
    while left and left[-1] == GONE:
        left.pop()
    return tuple(left), wanted[: len(left)]


def follows(known: Hello, hello: Hello) -> bool:
    """Whether a worker takes the place of another, as its supervisor's next one."""
    who = (hello.host, hello.supervisor)
    same = bool(hello.supervisor) and (known.host, known.supervisor) == who
    return same and known.life < hello.life


def named(hello: Hello) -> str:
    """A worker, for people."""
    return f"worker {hello.rank} (pid {hello.pid} on {hello.host})"


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
