"""Time to live: against a plain dictionary of when each key was last touched."""

from __future__ import annotations

import random
from collections.abc import Hashable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime.ttl import Forgetter, TimeToLive

TTL = 800
PERIOD = TTL // 8


class States:
    """States with a layer on top of those touched since it was last put down."""

    def __init__(self, ttl: int = TTL) -> None:
        self.now = 0
        self.states: dict[Hashable, int] = {}
        self.top: dict[Hashable, None] = {}
        self.forgotten: list[tuple[int, Hashable]] = []
        self.forgetter = Forgetter(ttl, self._forget, self.top_has)

    def top_has(self, key: Hashable) -> bool:
        return key in self.top

    def touch(self, *keys: Hashable) -> None:
        for key in keys:
            self.states[key] = self.now
            self.top[key] = None

    def tell(self) -> None:
        top, self.top = self.top, {}
        self.forgetter.touched(top, self.now)

    def _forget(self, keys: list[Hashable]) -> None:
        assert keys
        for key in keys:
            if key in self.states:
                self.forgotten.append((self.now, key))
                assert self.now - self.states.pop(key) >= TTL, "too early"

    def sweep(self, budget: int = 1 << 60) -> bool:
        ticks = count()  # every look at the clock is a tick
        return self.forgetter.sweep(self.now, lambda: next(ticks), budget)


def test_a_key_is_forgotten_after_its_time_and_not_before() -> None:
    states = States()
    states.touch("a", "b")
    states.tell()
    states.now = 700
    states.touch("b")
    states.tell()
    states.now = TTL - 1
    assert not states.sweep()
    assert states.states.keys() == {"a", "b"}
    states.now = TTL + PERIOD
    states.sweep()
    assert states.states.keys() == {"b"}
    states.now = 700 + TTL + PERIOD
    states.sweep()
    assert not states.states
    assert len(states.forgetter) == 0
    assert states.forgetter.due_ns() is None


def test_it_says_when_there_is_something_to_do() -> None:
    states = States()
    assert states.forgetter.due_ns() is None
    states.touch("a")
    states.tell()
    assert states.forgetter.due_ns() == 0
    states.sweep()
    assert states.forgetter.due_ns() == TTL + PERIOD
    states.now = TTL + PERIOD - 1
    states.sweep()
    assert states.states
    states.now = TTL + PERIOD
    states.sweep()
    assert not states.states


def test_a_key_that_was_touched_a_moment_ago_stays_though_nobody_told() -> None:
    states = States()
    states.touch("a")
    states.tell()
    states.sweep()
    states.now = 10 * TTL
    states.touch("a")
    states.sweep()
    assert states.states == {"a": 10 * TTL}
    states.tell()
    states.sweep()
    states.now += TTL + PERIOD
    states.sweep()
    assert not states.states


def test_what_was_told_is_noted_before_anything_is_forgotten() -> None:
    states = States()
    states.touch(*range(1000))
    states.tell()
    states.sweep()
    states.now = 10 * TTL
    states.touch(*range(0, 1000, 2))
    states.tell()
    while states.sweep(budget=1):
        assert all(key % 2 for _, key in states.forgotten)  # type: ignore[operator]
    assert states.states.keys() == set(range(0, 1000, 2))


def test_a_slice_is_short_however_much_there_is_to_do() -> None:
    states = States()
    states.touch(*range(100_000))
    states.tell()
    slices = 1
    while states.sweep(budget=1):
        slices += 1
    assert slices > 1000
    states.now = 10 * TTL
    before = len(states.forgotten)
    while states.sweep(budget=1):
        assert len(states.forgotten) - before <= 64
        before = len(states.forgotten)
    assert not states.states


def test_hot_keys_take_no_more_room_than_there_are_periods() -> None:
    states = States()
    for states.now in range(0, 100 * TTL, PERIOD // 4):
        states.touch("hot")
        states.tell()
        states.sweep()
    assert states.states
    assert sum(len(keys) for _, keys in states.forgetter._keys) <= 8 + 3
    assert len(states.forgetter) == 1


@given(seed=st.integers(0, 1 << 30), slices=st.booleans())
def test_any_history_forgets_what_is_old_and_nothing_else(seed: int, slices: bool) -> None:
    chance = random.Random(seed)
    states = States()
    longest = 0  # between two tellings
    told_at = 0
    for _ in range(300):
        states.now += chance.choice([0, 1, 10, PERIOD // 2, PERIOD, 3 * PERIOD])
        if chance.random() < 0.1:
            key = chance.randint(0, 20)
            states.states.pop(key, None)  # the user forgets it
        else:
            states.touch(*(chance.randint(0, 20) for _ in range(chance.randint(0, 5))))
        if chance.random() < 0.3:
            longest, told_at = max(longest, states.now - told_at), states.now
            states.tell()
        states.sweep(budget=chance.choice([1, 1 << 60]) if slices else 1 << 60)
    if not slices:
        for one, touched in states.states.items():
            assert one in states.top or states.now < touched + longest + PERIOD + TTL, "too late"
    states.tell()
    states.sweep()
    states.now += TTL + PERIOD
    states.sweep()
    assert not states.states


@given(seed=st.integers(0, 1 << 30))
def test_by_event_time_keys_live_as_long_as_the_watermark_stands_still(seed: int) -> None:
    """The same, with a watermark that moves in leaps: `now` is what passes, whatever it is."""
    chance = random.Random(seed)
    states = States()
    states.touch("a")
    states.tell()
    for _ in range(50):
        states.touch(chance.randint(0, 5))
        states.tell()
        states.sweep()
    assert "a" in states.states
    states.now += TTL + PERIOD
    states.sweep()
    assert "a" not in states.states


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, "ttl_s is 0"),
        ({"seconds": -1.0}, r"ttl_s is -1\.0"),
        ({"seconds": float("nan")}, "ttl_s is nan"),
        ({"seconds": 1, "by": "moon"}, "ttl_by is 'moon'; it must be one of"),
    ],
)
def test_what_is_no_time_to_live_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TimeToLive(**arguments)


def test_the_shortest_time_to_live_has_periods_still() -> None:
    assert TimeToLive(1e-9).ns >= 8
    assert TimeToLive(60, "event").ns == 60_000_000_000
