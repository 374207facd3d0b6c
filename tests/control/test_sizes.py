"""The sizes of records that are never encoded: about right, and found within limits."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from tailrace.control.progress.sizes import MOST_BYTES, size_of


@pytest.mark.parametrize(
    "records",
    [
        ["a word or two"] * 64,
        [b"x" * 100] * 16,
        [{"id": n, "name": f"no {n}"} for n in range(64)],
    ],
)
def test_small_records_take_about_what_they_would_in_a_message(records: list[object]) -> None:
    whole = len(pickle.dumps(records, 5))
    assert whole / 3 < size_of(records) < 3 * whole


def test_large_bytes_and_arrays_count_whole_and_are_not_copied() -> None:
    assert size_of([bytes(50 << 20)]) >= 50 << 20
    assert size_of([np.zeros(10 << 20, np.uint8)] * 4) >= 40 << 20


class Greedy:
    """A record whose parts are made while it is encoded; notes how many were."""

    made = 0

    def __reduce__(self) -> tuple[type, tuple[()], None, Iterator[str]]:
        return list, (), None, self._parts()

    def _parts(self) -> Iterator[str]:
        for number in count():
            Greedy.made = number
            yield f"{number:0100}"


def test_a_record_without_end_is_left_when_enough_was_seen() -> None:
    assert size_of([Greedy()]) >= MOST_BYTES
    assert Greedy.made < 50 * MOST_BYTES // 100


def test_when_time_is_over_the_rest_is_taken_to_be_alike() -> None:
    ticks = count(0, 60_000)
    few = size_of(["abc"] * 1000, lambda: next(ticks))
    assert 3000 < few < 40_000


def test_what_cannot_be_encoded_has_no_size() -> None:
    assert size_of([threading.Lock()]) == 0
    assert size_of([]) == 0
