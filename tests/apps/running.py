"""How the applications are tested: on one to three workers, whose turns follow from a seed."""

from collections.abc import Callable
from typing import Any

import pytest

from tailrace import Stream, Topology
from tailrace.runtime.core import Limits
from tailrace.runtime.source import Source
from tailrace.sources import items
from tailrace.testing import collect, run

on_workers = pytest.mark.parametrize(
    ("workers", "seed"), [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4), (3, 5)]
)


def first(make: Callable[[int], Any], count: int) -> list[Any]:
    return [make(i) for i in range(count)]


def results_of(
    build: Callable[..., tuple[Topology, Stream]],
    records: list[Any],
    workers: int,
    seed: int,
    **options: Any,
) -> list[Any]:
    """What comes out, with batches so small that the instances have to take turns."""
    source: Source = items(records)
    topology, stream = build(source, **options)
    results = collect(stream)
    run(topology, workers=workers, seed=seed, limits=Limits(poll_records=7))
    return results
