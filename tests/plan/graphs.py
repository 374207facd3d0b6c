"""Small random weighted graphs, and what the best split of one is."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tailrace.plan.model.weighted import Weighted
from tailrace.plan.search.balance import Balance, carried


@dataclass(frozen=True)
class Case:
    """A graph to be split over nodes with these numbers of workers."""

    graph: Weighted
    workers: tuple[int, ...]
    factor: float
    threshold: int

    @property
    def capacities(self) -> list[float]:
        return [float(count) for count in self.workers]

    @property
    def balance(self) -> Balance:
        return Balance.of(self.graph.loads, self.capacities, self.factor)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    workers = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    size = draw(st.integers(1, 9 if len(workers) == 2 else 7))
    loads = draw(
        st.one_of(
            st.just([1.0] * size),
            st.lists(st.integers(1, 6).map(float), min_size=size, max_size=size),
        )
    )
    pairs = list(itertools.combinations(range(size), 2))
    flows = draw(st.lists(st.integers(0, 9), min_size=len(pairs), max_size=len(pairs)))
    edges = [(a, b, float(flow)) for (a, b), flow in zip(pairs, flows, strict=True)]
    return Case(
        Weighted.of(loads, edges),
        tuple(workers),
        draw(st.sampled_from([0.05, 0.1, 0.3])),
        draw(st.sampled_from([3, 64])),
    )


def some_case(seed: int) -> Case:
    """A case that is the same for the same seed."""
    chance = random.Random(seed)
    workers = tuple(chance.randint(1, 4) for _ in range(chance.choice([2, 2, 3])))
    size = chance.randint(4, 9 if len(workers) == 2 else 7)
    density = chance.choice([0.3, 0.6, 1.0])
    heavy = chance.choice([1, 1, 5])
    edges = [
        (a, b, float(chance.randint(1, 9)))
        for a in range(size)
        for b in range(a)
        if chance.random() < density
    ]
    loads = [float(chance.randint(1, heavy)) for _ in range(size)]
    return Case(Weighted.of(loads, edges), workers, 0.1, chance.choice([4, 64]))


def least_cut(graph: Weighted, balance: Balance) -> float:
    """What the best of all splits within the balance cuts."""
    parts = len(balance.shares)
    return min(
        graph.cut(part_of)
        for part_of in itertools.product(range(parts), repeat=graph.size)
        if within(balance, graph.loads, part_of)
    )


def within(balance: Balance, loads: Sequence[float], part_of: Sequence[int]) -> bool:
    """Whether each part carries what it may, said once more in other words."""
    return all(
        low <= load <= high
        for load, low, high in zip(
            carried(loads, part_of, len(balance.shares)), balance.low, balance.high, strict=True
        )
    )
