"""Where instances run, as far as routing has to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Home(NamedTuple):
    """Where an instance runs. Workers are numbered through all nodes."""

    node: int
    worker: int


Homes = Mapping[str, Sequence[Home]]
"""Of the instances of operators, by index."""


def side_by_side(
    operators: Sequence[str], workers: int, per_node: int = 1
) -> dict[str, list[Home]]:
    """Operators of as many instances as there are workers, instance i of each in worker i."""
    homes = [Home(worker // per_node, worker) for worker in range(workers)]
    return dict.fromkeys(operators, homes)
