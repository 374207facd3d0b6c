"""How workers wait, decided under a simulated clock."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.control.sockets import Sockets
from tailrace.control.waiting import (
    LONGEST_SLEEP_NS,
    POLICIES,
    WAKING_UP_NS,
    Balanced,
    Policy,
    Rest,
    Sleep,
    Waiting,
    policy_of,
)
from tailrace.transport.ring import Doorbell, Reader, Ring

MS = 1_000_000
US = 1_000


@dataclass
class World:
    """A worker whose messages come at given times; each turn with some of them takes a while."""

    policy: Policy
    arrivals_ns: list[int]
    turn_ns: int = 40 * US
    due: bool = False
    """Whether the worker knows when they come, like a source's."""
    crowded: bool = False
    now_ns: int = 1_000 * MS
    worked_ns: int = 0
    spun_ns: int = 0
    naps: int = 0
    rests: int = 0
    late_ns: list[int] = field(default_factory=list)

    def run(self, until_ns: int) -> None:
        arrivals = [self.now_ns + at_ns for at_ns in self.arrivals_ns]
        until_ns += self.now_ns
        while self.now_ns < until_ns:
            came = [at_ns for at_ns in arrivals if at_ns <= self.now_ns]
            arrivals = arrivals[len(came) :]
            worked_ns = self.turn_ns if came else 0
            self.now_ns += worked_ns
            self.worked_ns += worked_ns
            self.late_ns += [self.now_ns - at_ns for at_ns in came]
            self._wait(worked_ns, arrivals[0] if arrivals else until_ns)

    def _wait(self, worked_ns: int, next_ns: int) -> None:
        due_ns = next_ns if self.due else None
        nap_ns = self.policy.nap_ns(self.now_ns, worked_ns, due_ns)
        if nap_ns:
            self.naps += 1
            self.now_ns += nap_ns
            return
        self.rests += 1
        rest = self.policy.decide(self.now_ns, due_ns, self.crowded)
        spun_ns = max(0, min(rest.spin_ns, next_ns - self.now_ns))
        self.spun_ns += spun_ns
        self.policy.spun(spun_ns)
        self.now_ns += spun_ns
        if self.now_ns < next_ns:
            woken_ns = self.now_ns + rest.sleep_ns if self.due else next_ns + 60 * US
            self.now_ns = max(min(self.now_ns + rest.sleep_ns, woken_ns), self.now_ns + 1)


def poisson(per_s: float, seconds: float, seed: int = 0) -> list[int]:
    chance = random.Random(seed)
    arrivals: list[int] = []
    at_s = chance.expovariate(per_s)
    while at_s < seconds:
        arrivals.append(int(at_s * 1e9))
        at_s += chance.expovariate(per_s)
    return arrivals


@given(st.floats(20, 20_000), st.integers(0, 2**32), st.integers(5 * US, 500 * US), st.booleans())
def test_balanced_spins_no_more_than_it_works_and_a_twentieth_of_a_core(
    per_s: float, seed: int, turn_ns: int, due: bool
) -> None:
    world = World(Balanced(), poisson(per_s, 0.2, seed), turn_ns, due)
    world.run(200 * MS)
    one_spin_ns = WAKING_UP_NS
    elapsed_ns = world.now_ns - 1_000 * MS
    allowed_ns = world.worked_ns + 0.05 * elapsed_ns + Balanced.BUCKET_NS + one_spin_ns
    assert world.spun_ns <= allowed_ns


def test_balanced_naps_when_work_comes_often_and_stops_when_it_does_not() -> None:
    world = World(Balanced(), poisson(10_000, 0.5))
    world.run(500 * MS)
    naps, rests = world.naps, world.rests
    assert naps > 20 * rests
    world.arrivals_ns = [MS]
    world.run(2_000 * MS)
    assert world.naps < naps + 20
    assert world.rests < rests + 20


def test_naps_make_many_records_one_turn() -> None:
    world = World(Balanced(), poisson(10_000, 0.5))
    world.run(500 * MS)
    assert world.worked_ns < 0.7 * len(world.late_ns) * world.turn_ns
    assert sorted(world.late_ns)[len(world.late_ns) // 2] < 150 * US


def napping(due_in_ns: int | None) -> tuple[Balanced, int]:
    """A policy under which work has come often, and what was due so much later; and the time."""
    policy, now_ns = Balanced(), 1_000 * MS
    for _ in range(100):
        now_ns += 100 * US
        policy.nap_ns(now_ns, 40 * US, None if due_in_ns is None else now_ns + due_in_ns)
    return policy, now_ns


@given(st.integers(-MS, 2 * MS), st.integers(1, 200 * US))
def test_who_has_much_to_do_gets_up_when_that_is_due(due_in_ns: int, worked_ns: int) -> None:
    policy, now_ns = napping(100 * US)
    nap_ns = policy.nap_ns(now_ns, worked_ns, now_ns + due_in_ns)
    up_after_ns = worked_ns + nap_ns
    assert nap_ns >= Balanced.BREATH_NS
    assert up_after_ns <= max(Balanced.MOST_NS, worked_ns + Balanced.BREATH_NS)
    if nap_ns > Balanced.BREATH_NS:
        assert up_after_ns >= Balanced.LEAST_NS
        assert nap_ns == due_in_ns or up_after_ns in (Balanced.LEAST_NS, Balanced.MOST_NS)


@pytest.mark.parametrize("due_in_ns", [None, 5 * MS])
def test_who_lives_on_messages_looks_for_them_in_every_beat(due_in_ns: int | None) -> None:
    policy, now_ns = napping(due_in_ns)
    due_ns = None if due_in_ns is None else now_ns + due_in_ns
    assert policy.nap_ns(now_ns, 40 * US, due_ns) == Balanced.BEAT_NS - 40 * US
    assert policy.nap_ns(now_ns, 500 * US, due_ns) == Balanced.BREATH_NS


@pytest.mark.parametrize("stretch_ns", [1 * MS, 5 * MS, 50 * MS])
def test_long_work_without_a_rest_does_not_end_naps(stretch_ns: int) -> None:
    """Who never sleeps shares a core with another, a tick of the system's clock each in turn."""
    policy, now_ns = napping(100 * US)
    for _ in range(10):
        now_ns += stretch_ns
        assert policy.nap_ns(now_ns, stretch_ns - 50 * US, now_ns) == Balanced.BREATH_NS


@given(st.integers(0, 2**32))
def test_what_is_known_to_be_due_is_done_sooner_in_fewer_turns(seed: int) -> None:
    arrivals = poisson(5_000, 0.2, seed)
    known, unknown = World(Balanced(), arrivals, due=True), World(Balanced(), arrivals)
    for world in (known, unknown):
        world.run(200 * MS)
    assert sum(known.late_ns) < sum(unknown.late_ns)
    assert known.naps + known.rests < unknown.naps + unknown.rests


def test_balanced_is_up_in_time_for_what_is_due_rarely() -> None:
    world = World(Balanced(), [i * 20 * MS for i in range(1, 50)], due=True)
    world.run(1_000 * MS)
    assert world.naps == 0
    assert max(world.late_ns[5:]) <= world.turn_ns


@pytest.mark.parametrize("due", [True, False])
def test_balanced_does_not_spin_when_others_want_the_core(due: bool) -> None:
    world = World(Balanced(), poisson(1_000, 0.2), due=due, crowded=True)
    world.run(200 * MS)
    assert world.spun_ns == 0


@pytest.mark.parametrize("name", ["balanced", "sleep"])
def test_an_idle_worker_sleeps_as_long_as_it_may(name: str) -> None:
    world = World(policy_of(name), [])
    world.run(60_000 * MS)
    assert world.spun_ns == 0
    assert world.rests <= 60_000 * MS // LONGEST_SLEEP_NS + 1


def test_sleep_never_spins_and_never_naps() -> None:
    world = World(Sleep(), poisson(5_000, 0.2))
    world.run(200 * MS)
    assert (world.spun_ns, world.naps) == (0, 0)


def test_spin_never_sleeps() -> None:
    policy = policy_of("spin")
    for due_ns in (None, 5 * MS, 1 * MS, 0):
        assert policy.nap_ns(1 * MS, 40 * US, due_ns) == 0
        assert policy.decide(1 * MS, due_ns, crowded=True).sleep_ns == 0


@dataclass
class Room:
    """A ring of this process, and the sockets beside it."""

    ring: Ring
    reader: Reader
    doorbell: Doorbell
    sockets: Sockets


@pytest.fixture
def room() -> Iterator[Room]:
    doorbell = Doorbell()
    with Ring.create(1 << 16) as ring, ring.reader(doorbell) as reader:
        sockets = Sockets(doorbell, lambda connection, frame: None)
        yield Room(ring, reader, doorbell, sockets)
        sockets.close()
    doorbell.close()


class _Napper(Policy):
    BEAT_NS = MS
    vain_ns = 20 * MS

    def nap_ns(self, now_ns: int, worked_ns: int, due_ns: int | None) -> int:
        return MS


def test_who_naps_in_vain_naps_on_until_its_patience_or_what_is_due(room: Room) -> None:
    waiting = Waiting(_Napper(), room.reader, room.sockets, 2)
    for due_in_ns, least_ns in ((None, 20 * MS), (5 * MS, 5 * MS), (0, MS)):
        now_ns = time.monotonic_ns()
        due_ns = None if due_in_ns is None else now_ns + due_in_ns
        assert waiting.nap(now_ns, 0, due_ns)
        assert time.monotonic_ns() - now_ns >= least_ns


def test_who_has_sources_to_ask_does_not_nap_on_in_vain(room: Room) -> None:
    policy = _Napper()
    policy.vain_ns = 3_600_000 * MS
    waiting = Waiting(policy, room.reader, room.sockets, 2)
    assert waiting.nap(time.monotonic_ns(), 0, None, [0])  # within an hour


def test_a_nap_ends_at_the_beat_in_which_a_message_has_come(room: Room) -> None:
    policy = _Napper()
    policy.vain_ns = 3_600_000 * MS
    waiting = Waiting(policy, room.reader, room.sockets, 2)
    with room.ring.writer() as writer:
        assert writer.send(b"hello", 0, 2, wait=False)
    assert waiting.nap(time.monotonic_ns(), 0, None)  # within an hour
    assert room.reader.read_bytes() == b"hello"


def test_a_nap_ends_at_once_when_the_bell_rings(room: Room) -> None:
    policy = _Napper()
    policy.BEAT_NS = policy.vain_ns = 3_600_000 * MS
    waiting = Waiting(policy, room.reader, room.sockets, 2)
    room.doorbell.ring()
    assert waiting.nap(time.monotonic_ns(), 0, None)  # and not after an hour
    assert not room.sockets.sleep(0.0)  # it was served


@pytest.mark.parametrize("cores", [0.5, 1.5])
def test_a_small_quota_of_cores_is_crowded(cores: float, room: Room) -> None:
    told: list[bool] = []

    class Told(Policy):
        def decide(self, now_ns: int, due_ns: int | None, crowded: bool) -> Rest:
            told.append(crowded)
            return Rest()

    Waiting(Told(), room.reader, room.sockets, cores).rest(None, ())
    assert told == [True]


def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'nap'; it must be one of .*balanced.*spin.*sleep"):
        policy_of("nap")
    assert set(POLICIES) == {"balanced", "spin", "sleep"}
