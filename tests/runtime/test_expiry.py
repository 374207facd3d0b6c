"""Keys that live for a time only, in running steps: with and without checkpoints."""

from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.validate import TopologyError
from tailrace.runtime.operators import Fold, Scan
from tailrace.runtime.process import Process
from tailrace.runtime.times import to_ns
from tailrace.runtime.ttl import TimeToLive
from tests.runtime.feeding import feed
from tests.runtime.places import Place, World

Event = tuple[str, int]


def key_of(event: Event) -> str:
    return event[0]


class Counting(tr.Operator):
    def process(self, event: Event) -> None:
        self.state = [*(self.state or []), event[1]]
        if event[1] < 0:
            self.set_timer(100, "late")


def gather(state: list[int] | None, event: Event) -> list[int]:
    state = state or []
    state.append(event[1])
    return state


LOGICS: dict[str, Any] = {
    "scan": lambda ttl: Scan(key_of, gather, ttl=ttl),
    "fold": lambda ttl: Fold(key_of, gather, ttl=ttl),
    "process": lambda ttl: Process(Counting(), key_of, keyed=True, ttl=ttl),
}
each = pytest.mark.parametrize("make", LOGICS.values(), ids=LOGICS.keys())


def pass_time(world: World, place: Place, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        world.wall_ns += 100_000_000
        place.fire()


def states(place: Place) -> dict[Any, Any]:
    return {
        key: value[0] if isinstance(value, tuple) else value for key, value in place.step.entries()
    }


@each
@pytest.mark.parametrize("watched", [False, True])
def test_what_nobody_touches_is_forgotten_and_what_somebody_does_is_not(
    make: Any, watched: bool
) -> None:
    world = World()
    place = Place(make(TimeToLive(8)), world, 0, epoch=0 if watched else None)
    step = place.step
    if watched:
        step.watch()

    def settle() -> None:
        if watched:  # as epochs do
            for _ in step.cut():
                pass
            for _ in step.committed():
                pass

    feed(step, [("a", 1), ("b", 2)])
    for number in range(6):
        pass_time(world, place, 2)
        feed(step, [("b", number)])
        settle()
    assert states(place) == {"b": [2, 0, 1, 2, 3, 4, 5]}
    pass_time(world, place, 12)
    assert states(place) == {}
    feed(step, [("a", 7)])
    assert states(place) == {"a": [7]}


@each
def test_by_event_time_nothing_is_forgotten_while_none_passes(make: Any) -> None:
    world = World()
    place = Place(make(TimeToLive(8, "event")), world, 0)
    feed(place.step, [("a", 1)])
    pass_time(world, place, 100)
    place.step.advance(to_ns(1000))
    pass_time(world, place, 100)
    feed(place.step, [("b", 1)])
    pass_time(world, place, 10)
    assert set(states(place)) == {"a", "b"}
    place.step.advance(to_ns(1020))
    pass_time(world, place, 3)
    assert set(states(place)) == set()


def test_a_key_with_a_timer_lives_on() -> None:
    world = World()
    place = Place(LOGICS["process"](TimeToLive(2)), world, 0)
    feed(place.step, [("a", -1), ("b", 1)])
    pass_time(world, place, 20)
    assert set(states(place)) == {"a"}


def test_what_was_forgotten_is_forgotten_in_the_next_cut_too() -> None:
    world = World()
    place = Place(LOGICS["scan"](TimeToLive(1)), world, 0, epoch=0)
    place.step.watch()
    feed(place.step, [("a", 1), ("b", 2)])
    kept = dict(place.step.cut())
    list(place.step.committed())
    assert set(kept) == {"a", "b"}
    pass_time(world, place, 5)
    changed = dict(place.step.cut())
    assert {key: repr(value) for key, value in changed.items()} == dict.fromkeys("ab", "FORGOTTEN")


def test_a_time_to_live_that_makes_no_sense_is_refused() -> None:
    keyed = tr.Topology().source([1]).key_by()
    with pytest.raises(TopologyError, match="ttl_s"):
        keyed.scan(gather, ttl_s=-1)
    with pytest.raises(TopologyError, match="ttl_by='event' needs event time"):
        keyed.scan(gather, ttl_s=1, ttl_by="event")
    with pytest.raises(TopologyError, match="there is no ttl_s"):
        keyed.fold(gather, ttl_by="event")
    with pytest.raises(TopologyError, match="state_version of 'scan' is -1"):
        keyed.scan(gather, state_version=-1)
