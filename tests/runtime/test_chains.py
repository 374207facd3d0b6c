"""When all of a state is written, at once or in parts, and what is needed of what was written."""

from __future__ import annotations

import gc

import pytest

from tailrace.runtime.chains import NO_CHAIN, PARTS, SWEPT_BYTES, Chain, Kind, Sweep
from tailrace.runtime.hot import untracked

Written = list[tuple[Kind, int]]


def chain(*written: tuple[Kind, int]) -> Chain:
    found = NO_CHAIN
    for kind, size_bytes in written:
        found = found.longer(kind, size_bytes)
    return found


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ([], True),
        ([("full", 100_000)], False),
        ([("full", 100_000), ("delta", 100_000)], False),
        ([("full", 100_000), ("delta", 60_000), ("delta", 60_000)], True),
        ([("full", 10), ("delta", 60_000)], False),  # what is small may as well stay
        ([("full", 10), ("delta", 70_000)], True),
        ([("full", 10)] + [("delta", 1)] * 18, False),
        ([("full", 10)] + [("delta", 1)] * 19, True),
    ],
)
def test_a_small_state_is_written_at_once_now_and_then(written: Written, full: bool) -> None:
    found = chain(*written)
    assert found.full_is_due is full
    assert not found.is_swept


def test_a_large_state_is_swept_however_much_has_changed() -> None:
    large = chain(("full", SWEPT_BYTES))
    for _ in range(50):
        large = large.longer("delta", SWEPT_BYTES)
    assert large.is_swept
    assert not large.full_is_due


def test_only_what_was_written_since_a_sweep_began_is_needed_after_it() -> None:
    before: Written = [("full", SWEPT_BYTES), ("delta", 7)]
    swept: Written = [("part", SWEPT_BYTES), ("delta", 1), ("part", 5), ("delta", 2)]
    after = chain(*before, *swept, ("rest", 4), ("delta", 3))
    assert after == Chain(6, SWEPT_BYTES + 9, 6)
    assert chain(*before, ("rest", 4)) == Chain(1, 4), "it may have one part only"


def test_sweeps_that_are_broken_off_again_and_again_end_in_a_full_one() -> None:
    found, sections = chain(("full", SWEPT_BYTES)), 1
    while not found.full_is_due:
        found = found.longer("part", 1).longer("delta", 1)
        sections += 2
        assert sections < 200
    assert found.longer("full", 1) == Chain(1, 1)


class Plain:
    """Python's collector knows of it."""


def test_the_collector_passes_over_blocks_of_plain_keys() -> None:
    plain, mixed = untracked(str(n) for n in range(5)), untracked(["a", (Plain(),)])
    assert plain == ("0", "1", "2", "3", "4")
    assert not gc.is_tracked(plain)
    assert gc.is_tracked(mixed)
    assert untracked([]) == ()
    gc.collect()
    assert plain == ("0", "1", "2", "3", "4")


def keys_of(sweep: Sweep) -> list[tuple[Kind, int]]:
    found = []
    while True:
        kind, keys = sweep.part()
        found.append((kind, len(list(keys))))
        if kind == "rest":
            return found


@pytest.mark.parametrize(("size", "parts"), [(0, 1), (1, 1), (7, 7), (1000, 20), (1001, 20)])
def test_a_sweep_takes_every_key_once_in_parts_of_a_size(size: int, parts: int) -> None:
    sweep = Sweep()
    sweep.add(range(size // 2))
    sweep.add(range(size // 2, size))
    found = keys_of(sweep)
    assert len(found) == parts <= PARTS
    assert sum(count for _, count in found) == size
    assert max(count for _, count in found) == -(-size // PARTS)


def test_where_much_changes_a_sweep_is_over_soon() -> None:
    sweep = Sweep()
    sweep.add(range(1000))
    sweep.changed = 400
    assert keys_of(sweep) == [("part", 400), ("part", 400), ("rest", 200)]
