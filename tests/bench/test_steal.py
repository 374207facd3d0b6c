"""Rounds from which the host stole time are run again, boundedly, and counted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from harness.steal import MOST_REPEATS, Rounds, Ticks, steal_ticks


def machine(*stolen: int) -> Iterator[Ticks]:
    """One that has 1,000 ticks a round, of which so many are stolen; read before and after."""
    for before, after in zip([0, *accumulate(stolen)], accumulate(stolen), strict=False):
        yield before, 0
        yield after, 1000


def run(rounds: Rounds, discarded: list[int], may_repeat: bool = True) -> int:
    numbers = iter(range(100))
    return rounds.run(lambda: next(numbers), discarded.append, lambda: may_repeat)


def test_a_round_without_theft_counts() -> None:
    discarded: list[int] = []
    rounds = Rounds(machine(5, 9).__next__)
    assert run(rounds, discarded) == 0
    assert (discarded, rounds.stolen) == ([], 0)


def test_a_round_with_theft_is_run_again() -> None:
    discarded: list[int] = []
    rounds = Rounds(machine(6, 5).__next__)
    assert run(rounds, discarded) == 1
    assert (discarded, rounds.stolen) == ([0], 1)


def test_repetitions_are_bounded_and_the_last_round_counts() -> None:
    discarded: list[int] = []
    rounds = Rounds(machine(*[100] * 9).__next__)
    assert run(rounds, discarded) == MOST_REPEATS
    assert discarded == list(range(MOST_REPEATS))
    assert rounds.stolen == MOST_REPEATS + 1


def test_nothing_is_repeated_when_there_is_no_time() -> None:
    rounds = Rounds(machine(100).__next__)
    assert run(rounds, [], may_repeat=False) == 0
    assert rounds.stolen == 1


def test_the_steal_column_is_the_eighth(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 80 900 900\ncpu0 0 0\n")
    assert steal_ticks(stat) == (80, 108)
