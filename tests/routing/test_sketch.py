"""SpaceSaving: what a sketch of pairs of keys guarantees, against exact counts."""

from __future__ import annotations

import pickle
import weakref
from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.routing.pairs import PairCounts, Sketched, merged
from tailrace.routing.sketch import PairSketch

SMALL_BYTES = 1 << 13

keys = st.one_of(
    st.integers(0, 40), st.text("ab", max_size=3), st.tuples(st.booleans(), st.integers(0, 3))
)
skewed = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.integers(0, 400), st.integers(0, 400)),
    ),
    max_size=1000,
)
"""Some pairs come over and over, and most once."""


def sketched(pairs: list[tuple[Any, Any]], size_bytes: int = SMALL_BYTES) -> PairSketch:
    sketch = PairSketch(size_bytes)
    for key_in, key_out in pairs:
        sketch.add(key_in, key_out)
    return sketch


def counted(source: str, target: str, sketch: PairSketch, scale: float = 1.0) -> PairCounts:
    told = Sketched(source, target, sketch.counts(), sketch.total, sketch.floor, scale)
    arrived: Sketched = pickle.loads(pickle.dumps(told))
    return arrived.value()


def check(counts: PairCounts, true: Counter[tuple[Hashable, Hashable]]) -> None:
    for pair, count in counts.counts.items():
        assert count - counts.errors.get(pair, 0) <= true[pair] <= count
    assert all(pair in counts.counts for pair, often in true.items() if often > counts.floor)
    assert counts.total == true.total()


@given(skewed)
def test_counts_are_within_their_errors_and_the_frequent_are_there(
    pairs: list[tuple[int, int]],
) -> None:
    sketch = sketched(pairs)
    check(counted("a", "b", sketch), Counter(pairs))
    assert sketch.used_bytes <= SMALL_BYTES


@given(skewed)
def test_whatever_is_more_frequent_than_one_in_as_many_as_have_room_is_there(
    pairs: list[tuple[int, int]],
) -> None:
    same_size = [(one + 1000, other + 1000) for one, other in pairs]
    sketch = sketched(same_size)
    if sketch.floor:
        assert sketch.floor <= sketch.total / len(sketch)
    there = {(key_in, key_out) for key_in, key_out, _, _ in sketch.counts()}
    for pair, often in Counter(same_size).items():
        assert pair in there or often <= sketch.total / len(sketch)


@given(st.lists(st.tuples(keys, keys), max_size=300))
def test_with_room_for_all_counts_are_exact(pairs: list[tuple[Hashable, Hashable]]) -> None:
    sketch = sketched(pairs, 1 << 20)
    assert sketch.floor == 0
    assert dict(counted("a", "b", sketch).counts) == Counter(pairs)


@given(st.lists(skewed, max_size=4))
@settings(max_examples=50)
def test_what_is_merged_keeps_the_guarantees(parts: list[list[tuple[int, int]]]) -> None:
    together = merged(counted("a", "b", sketched(part)) for part in parts)
    if parts:
        check(together[0], Counter(pair for part in parts for pair in part))


@given(skewed, st.integers(0, 20))
def test_the_top_are_the_highest_counts_in_their_order(
    pairs: list[tuple[int, int]], most: int
) -> None:
    sketch = sketched(pairs)
    highest = sorted((count for _, _, count, _ in sketch.counts()), reverse=True)
    assert [count for _, _, count, _ in sketch.top(most)] == highest[:most]


@given(skewed, skewed)
def test_a_cleared_sketch_is_as_a_new_one(
    first: list[tuple[int, int]], then: list[tuple[int, int]]
) -> None:
    sketch = sketched(first)
    sketch.clear()
    for key_in, key_out in then:
        sketch.add(key_in, key_out)
    new = sketched(then)
    assert sorted(sketch.counts()) == sorted(new.counts())
    assert (sketch.total, sketch.floor, len(sketch)) == (new.total, new.floor, len(new))


@given(skewed, st.integers(1, 20))
def test_the_heaviest_pairs_keep_the_guarantees(pairs: list[tuple[int, int]], most: int) -> None:
    few = counted("a", "b", sketched(pairs)).heaviest(most)
    assert len(few.counts) <= most
    check(few, Counter(pairs))


def test_equal_keys_are_one_key_as_in_a_dict() -> None:
    sketch = sketched([(1, "a"), (1.0, "a"), (True, "a")])
    assert sketch.top(9) == [(1, "a", 3, 0)]


def test_a_pair_too_large_for_it_is_left_out_and_counted_as_such() -> None:
    sketch = sketched([("x" * SMALL_BYTES, 1), (1, 1)])
    assert (len(sketch), sketch.left_out, sketch.total) == (1, 1, 2)


def test_keys_without_a_hash_are_refused_and_change_nothing() -> None:
    sketch = PairSketch()
    with pytest.raises(TypeError):
        sketch.add([], 1)  # type: ignore[arg-type]
    assert (len(sketch), sketch.total) == (0, 0)


def test_a_size_without_room_for_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="12 bytes has room for nothing"):
        PairSketch(12)


class Key:
    """Something whose end can be seen."""


def test_keys_that_are_given_up_or_cleared_are_let_go() -> None:
    kept = [Key() for _ in range(200)]
    gone = [weakref.ref(key) for key in kept]
    sketch = sketched([(key, 0) for key in kept])
    kept.clear()
    assert sum(ref() is not None for ref in gone) == len(sketch) < 200
    sketch.clear()
    assert not any(ref() for ref in gone)
    again = sketched([(Key(), Key())])
    last = weakref.ref(again.counts()[0][0])
    del again
    assert last() is None


def test_what_was_counted_travels_as_plain_data() -> None:
    counts = counted("a", "b", sketched([("x", 1), ("x", 1), ("y", 2)]), scale=2.0)
    assert pickle.loads(pickle.dumps(counts)) == counts
    assert counts.counts["x", 1] == 4.0
    assert counts.total == 6.0


def test_pairs_of_other_operators_are_not_mixed() -> None:
    one, other = PairCounts("a", "b", {}, 0), PairCounts("a", "c", {}, 0)
    assert merged([one, other, one]) == [one, other]
    with pytest.raises(ValueError, match="'a' and 'b' cannot be put together"):
        one.merge(other)
