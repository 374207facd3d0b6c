"""One clock for a job: learned, followed and bounded, with hosts whose clocks are hours apart."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.control import clocks
from tailrace.control.clocks import AskClock, ClockTold, Follower, Reference
from tailrace.control.job_clock import JobClock

HOUR_NS = 3_600_000_000_000
SLACK_NS = 5
"""For values rounded to whole nanoseconds, a few times over."""


@dataclass
class World:
    """True time, which is the coordinator's, and a host whose clock is elsewhere and drifts."""

    apart_ns: int
    drift: float
    trip_ns: Callable[[], int]
    now_ns: int = 1_000_000_000
    turned_ns: int = 0
    reference: Reference = field(init=False)
    follower: Follower = field(init=False)

    def __post_init__(self) -> None:
        self.reference = Reference(lambda: self.now_ns, lambda: self.now_ns + 17 * HOUR_NS)
        self.follower = Follower(1, 2, self.raw_ns)

    def raw_ns(self) -> int:
        """What the host's own clock says."""
        since_ns = self.now_ns - self.turned_ns
        return self.apart_ns + self.now_ns + int(since_ns * self.drift)

    def change_drift(self, drift: float) -> None:
        self.apart_ns += int((self.now_ns - self.turned_ns) * self.drift)
        self.turned_ns, self.drift = self.now_ns, drift

    def exchange(self, ask: AskClock) -> None:
        self.now_ns += self.trip_ns()
        received_ns = self.now_ns
        self.now_ns += self.trip_ns() // 10
        told = self.reference.answer(ask, received_ns)
        self.now_ns += self.trip_ns()
        self.follower.hear(told)

    def settle(self) -> None:
        while not self.follower.settled:
            ask = self.follower.ask()
            assert ask is not None
            self.exchange(ask)

    def run(self, seconds: float, check: Callable[[], None], step_ns: int = 7_000_000) -> None:
        end_ns = self.now_ns + int(seconds * 1e9)
        while self.now_ns < end_ns:
            if (ask := self.follower.ask()) is not None:
                self.exchange(ask)
            check()
            self.now_ns += step_ns

    @property
    def error_ns(self) -> int:
        return abs(self.follower.clock_ns() - self.now_ns)


def jittery(seed: int, least_ns: int, most_ns: int) -> Callable[[], int]:
    """Trips that are mostly short and now and then long, each way by itself: asymmetric."""
    chance = random.Random(seed)
    return lambda: least_ns + int((most_ns - least_ns) * chance.random() ** 8)


@settings(max_examples=40, deadline=None)
@given(
    apart_ns=st.integers(-20_000 * HOUR_NS, 20_000 * HOUR_NS),
    drift=st.floats(-200e-6, 200e-6),
    least_ns=st.integers(1_000, 400_000),
    jitter_ns=st.integers(0, 50_000_000),
    seed=st.integers(0, 1_000),
)
def test_the_clock_is_never_further_off_than_it_says(
    apart_ns: int, drift: float, least_ns: int, jitter_ns: int, seed: int
) -> None:
    world = World(apart_ns, drift, jittery(seed, least_ns, least_ns + jitter_ns))
    world.settle()
    before_ns = world.follower.clock_ns()

    def check() -> None:
        nonlocal before_ns
        now_ns = world.follower.clock_ns()
        assert now_ns >= before_ns
        before_ns = now_ns
        assert world.error_ns <= world.follower.uncertainty_ns + SLACK_NS

    world.run(20, check)


def test_a_lopsided_way_shifts_the_clock_by_no_more_than_half_the_round_trip() -> None:
    trips = cycle([3_000_000, 0, 20_000])
    world = World(5 * HOUR_NS, 0.0, lambda: next(trips))
    world.settle()
    assert 1_400_000 < world.error_ns <= world.follower.uncertainty_ns + SLACK_NS < 1_600_000


def test_of_many_round_trips_the_shortest_counts() -> None:
    trips = iter([9_000_000, 0, 9_000_000, 10_000, 0, 10_000, *[9_000_000] * 100])
    world = World(-3 * HOUR_NS, 0.0, lambda: next(trips))
    world.settle()
    drifted_ns = 2 * clocks.MOST_DRIFT * 150_000_000
    assert world.follower.uncertainty_ns <= 10_000 + drifted_ns


def test_a_drift_is_learned_so_that_silence_costs_little() -> None:
    world = World(HOUR_NS, 200e-6, jittery(1, 40_000, 100_000))
    world.settle()
    world.run(20, lambda: None)
    world.now_ns += 1_000_000_000  # nobody answers for a second
    assert world.error_ns <= world.follower.uncertainty_ns < 100_000


def test_a_correction_is_a_slightly_different_speed_and_no_jump() -> None:
    # The first answers are bad by 8 ms, later ones are good.
    slow = [True]
    chance = jittery(3, 20_000, 30_000)
    world = World(HOUR_NS, 50e-6, chance)
    world.trip_ns = lambda: (
        random.Random(world.now_ns).choice([0, 16_000_000]) if slow[0] else chance()
    )
    world.settle()
    slow[0] = False
    last = (world.now_ns, world.follower.clock_ns())

    def check() -> None:
        nonlocal last
        here = (world.now_ns, world.follower.clock_ns())
        true_ns, shown_ns = here[0] - last[0], here[1] - last[1]
        assert 0.94 * true_ns - SLACK_NS <= shown_ns <= 1.06 * true_ns + SLACK_NS
        last = here

    world.run(10, check, step_ns=1_000_000)
    assert world.error_ns < 50_000


def test_a_clock_whose_speed_changes_is_found_out_and_followed() -> None:
    world = World(HOUR_NS, 200e-6, jittery(2, 40_000, 60_000))
    world.settle()
    world.run(10, lambda: None)
    world.change_drift(-200e-6)
    world.run(3, lambda: None)
    world.run(10, lambda: _assert_bounded(world))


def _assert_bounded(world: World) -> None:
    assert world.error_ns <= world.follower.uncertainty_ns + SLACK_NS


def test_a_host_that_was_asleep_catches_up_at_once() -> None:
    world = World(HOUR_NS, 0.0, jittery(2, 40_000, 60_000))
    world.settle()
    world.apart_ns -= 10 * HOUR_NS  # its clock stood still meanwhile
    world.now_ns += 10 * HOUR_NS
    world.run(3, lambda: None)
    assert world.error_ns < 1_000_000


def test_wall_clock_time_is_the_same_on_every_host() -> None:
    worlds = [World(apart_ns, 1e-5, jittery(4, 9_000, 20_000)) for apart_ns in (0, 9 * HOUR_NS)]
    for world in worlds:
        world.settle()
        uncertainty_ns = world.follower.uncertainty_ns + SLACK_NS
        assert abs(world.follower.wall_ns() - (world.now_ns + 17 * HOUR_NS)) <= uncertainty_ns


def test_on_the_coordinators_host_the_clock_is_the_hosts_own() -> None:
    reference, follower = Reference(), Follower(0, 1)
    ask = follower.ask()
    assert ask is not None
    follower.hear(reference.answer(ask, time.monotonic_ns()))
    assert follower.settled
    assert follower.clock_ns is time.monotonic_ns
    assert follower.uncertainty_ns == 0
    assert follower.ask() is None
    assert abs(follower.wall_ns() - time.time_ns()) < 60_000_000_000


def test_a_clone_of_the_host_with_the_same_name_is_not_taken_for_it() -> None:
    """Virtual machines that were restored from one image share even the id of their boot."""
    reference = Reference(lambda: time.monotonic_ns() + HOUR_NS)
    follower = Follower(0, 1)
    while not follower.settled:
        ask = follower.ask()
        assert ask is not None
        follower.hear(reference.answer(ask, reference.clock_ns()))
    assert abs(follower.clock_ns() - reference.clock_ns()) < HOUR_NS // 60
    assert follower.ask() is None
    assert follower.uncertainty_ns > 0


def test_a_time_that_nobody_told_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody has told the time yet"):
        clocks.Estimator().offset_ns(0)


def test_an_answer_without_a_question_to_a_settled_clock_only_narrows_it() -> None:
    world = World(HOUR_NS, 0.0, jittery(5, 9_000, 20_000))
    world.settle()
    before_ns = world.follower.uncertainty_ns
    old = ClockTold(world.raw_ns() - HOUR_NS, world.now_ns, world.now_ns, 0, "elsewhere")
    world.follower.hear(old)
    assert world.follower.uncertainty_ns <= before_ns


def test_a_clock_without_an_offset_is_this_hosts() -> None:
    clock = JobClock()
    before_ns = time.monotonic_ns()
    assert before_ns <= clock.now_ns() <= time.monotonic_ns()
