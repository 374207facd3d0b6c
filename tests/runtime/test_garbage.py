"""The collector's settings while a stream runs."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from tailrace.runtime.garbage import collected_rarely, let_stay, pass_over, tidy


@pytest.fixture(autouse=True)
def pythons_own() -> Iterator[None]:
    """Tests have another threshold."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_within_it_comes_rarely_and_passes_over_what_was_there() -> None:
    with collected_rarely():
        assert gc.get_threshold()[0] == 5_000
        assert gc.get_freeze_count() > 0


def test_afterwards_all_is_as_before_also_after_a_failure() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="on purpose"), collected_rarely():
        raise ValueError("on purpose")
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_who_wants_it_more_rarely_still_gets_that() -> None:
    gc.set_threshold(100_000)
    with collected_rarely():
        assert gc.get_threshold()[0] == 100_000


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collected_rarely():
            assert not gc.isenabled()
    finally:
        gc.enable()


class State:
    """What the collector looks at."""


def test_states_that_take_the_place_of_others_are_looked_at_while_there_is_time() -> None:
    states = [State() for _ in range(20_000)]
    with collected_rarely():
        for _ in range(10):
            for place in range(0, len(states), 10):
                states[place] = State()
        assert young() > 2_000, "the collector counts as many that are freed"
        tidy()
        assert young() < 100
        assert gc.get_threshold()[0] == 5_000


def test_circles_go_when_it_is_tidied_up() -> None:
    with collected_rarely():
        circle = State()
        circle.self = circle  # type: ignore[attr-defined]
        gone = weakref.ref(circle)
        del circle
        tidy()
        assert gone() is None


def test_what_has_come_to_stay_is_looked_at_once() -> None:
    with collected_rarely():
        stays = [State() for _ in range(1000)]
        circle = State()
        circle.self = circle  # type: ignore[attr-defined]
        gone = weakref.ref(circle)
        del circle
        let_stay()
        assert gone() is None
        assert young() < 100
        assert len(gc.get_objects(generation=1)) < 100
        assert stays


def young() -> int:
    return len(gc.get_objects(generation=0))


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self, size_bytes: int) -> None:
        self.held = b"x" * size_bytes  # zeros would take no memory
        self.itself = self


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing has been frozen, before and after."""
    gc.disable()
    yield
    gc.unfreeze()
    gc.collect()
    gc.enable()


@pytest.mark.usefixtures("clean")
def test_between_jobs_garbage_is_collected_when_it_may_be_much() -> None:
    pass_over()  # from here on it is known how much memory there is without garbage
    little = weakref.ref(Cycle(100))
    pass_over()
    assert little() is not None, "not worth a look"
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
    much = weakref.ref(Cycle(1 << 26))
    pass_over()
    assert much() is None
    assert little() is None
    gc.collect()
    assert gc.get_freeze_count() > 0, "what is left is not looked at again"
