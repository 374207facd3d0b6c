"""What a topology means does not depend on parallelism, placement or fusion.

Random topologies, with errors in every function, are run by one instance of each operator in one
worker, and then in other ways; results, dead letters and counts must be the same. A failing case is
replayed by what Hypothesis prints: everything follows from the seed and the way.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace.testing import run
from tests.meaning.random_topologies import PLAIN, Way, outcome_of
from tests.seeds import seeds

SEEDS = st.integers(0, 2**32)
LIMITS = st.sampled_from(
    [
        tr.Limits(),
        tr.Limits(window_records=8, gathered_records=4, poll_records=3, round_messages=2),
        tr.Limits(poll_records=1),
    ]
)
WAYS = st.builds(
    Way,
    most=st.sampled_from([1, 2, 3, 5]),
    fused=st.booleans(),
    workers=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    limits=LIMITS,
)


def check_same(seed: int, way: Way, bad_keys: bool) -> None:
    plain, other = (outcome_of(seed, one, bad_keys=bad_keys) for one in (PLAIN, way))
    assert not plain.failed
    assert not other.failed
    assert other.results == plain.results
    assert other.dead == plain.dead
    assert other.skipped == plain.skipped
    assert other.records_in == plain.records_in


@settings(max_examples=seeds(600))
@given(seed=SEEDS, way=WAYS)
def test_results_dead_letters_and_counts_are_the_same_in_every_way(seed: int, way: Way) -> None:
    check_same(seed, way, bad_keys=False)


@settings(max_examples=seeds(300))
@given(seed=SEEDS, way=WAYS)
def test_errors_of_key_functions_go_by_the_policy_in_every_way(seed: int, way: Way) -> None:
    check_same(seed, way, bad_keys=True)


@settings(max_examples=seeds(200))
@given(seed=SEEDS, way=WAYS)
def test_a_job_fails_in_every_way_or_in_none(seed: int, way: Way) -> None:
    """One operator and what belongs to it fails the job on a record that it cannot process."""
    plain, other = (outcome_of(seed, one, fatal=True) for one in (PLAIN, way))
    assert bool(other.failed) == bool(plain.failed)


@settings(max_examples=seeds(100))
@given(seed=SEEDS, way=WAYS)
def test_strict_mode_finds_nothing_where_nothing_is_wrong(seed: int, way: Way) -> None:
    check_same(seed, replace(way, strict=True), bad_keys=True)


@settings(max_examples=seeds(150))
@given(numbers=st.lists(st.integers(0, 40), max_size=60), way=WAYS)
def test_records_of_a_key_stay_in_order_in_every_way(numbers: list[int], way: Way) -> None:
    """From one instance of a source, through as many steps by that key as there may be."""
    expected: dict[int, list[tuple[int, ...]]] = {}
    for number in numbers:
        if number % 7:
            seen = expected.setdefault(number % 5, [])
            seen.append((*(seen[-1] if seen else ()), number))
    found: dict[int, list[tuple[int, ...]]] = {}

    def note(result: tuple[int, tuple[int, ...]]) -> None:
        found.setdefault(result[0], []).append(result[1])

    def add(seen: tuple[int, ...], number: int) -> tuple[int, ...]:
        if number % 7 == 0:
            raise ValueError(f"{number} is not liked")
        return (*seen, number)

    topology = tr.Topology()
    stream = topology.source(numbers)
    once = stream.key_by(lambda number: number % 5).scan(
        add, initial=(), parallelism=way.most, on_error="skip"
    )
    again = once.key_by(lambda result: result[0]).scan(
        lambda _, result: result[1], initial=(), parallelism=way.workers
    )
    (again if way.fused else again.key_by(lambda result: result[0])).sink(note)
    run(topology, workers=way.workers, seed=way.seed, limits=way.limits)
    assert found == expected
