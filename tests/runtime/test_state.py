"""The state of every stateful operator: taken out of one step and put into another."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.runtime.event_time import EventTime
from tailrace.runtime.join import Join, JoinKind
from tailrace.runtime.markers import BEGINNING
from tailrace.runtime.operators import Fold, Scan
from tailrace.runtime.process import Process
from tailrace.runtime.times import to_ns
from tailrace.runtime.windows import Windowed, append, session, sliding, tumbling
from tests.runtime.places import Place, World, move, shipped

Event = tuple[str, float, int]
"""Key, time, number."""


def key_of(event: Event) -> str:
    return event[0]


def time_of(event: Event) -> float:
    return event[1]


def gather(state: list[int] | None, event: Event) -> list[int] | None:
    """Forgets what it has at every seventh."""
    return None if event[2] % 7 == 6 else [*(state or []), event[2]]


class Alarm(tr.Operator):
    """Holds events behind timers, and sometimes takes them back."""

    def process(self, event: Event) -> None:
        self.state = [*(self.state or []), event[2]]
        if event[2] % 3 == 2:
            self.cancel_timer("soon")
        else:
            self.set_timer(event[2] % 5, "soon")
        self.emit((self.key, "seen", event[2]))

    def timer(self, tag: str) -> None:
        self.emit((self.key, tag, self.state))
        self.state = None

    def finish_key(self) -> None:
        self.emit((self.key, "end", self.state))


def windowed(window: Any, time: Callable[[Event], float] | None, lateness_s: float = 0) -> Windowed:
    return Windowed(window, key_of, time, lateness_s, append, None, lambda a, b: a + b, list)


def joined(kind: JoinKind, time: Callable[[Event], float] | None) -> Join:
    def pair(left: Event | None, right: Event | None) -> tuple[Any, Any, Any]:
        return (left or right or ("", 0, 0))[0], left, right

    return Join((key_of, key_of), (time, time), 1.5, pair, kind)


OPERATORS = {
    "scan": Scan(key_of, gather),
    "fold": Fold(key_of, gather),
    "process": Process(Alarm(), key_of, keyed=True),
    "tumbling": windowed(tumbling(2), time_of),
    "sliding, lateness": windowed(sliding(2, 0.5), time_of, 1.5),
    "sliding, processing time": windowed(sliding(2, 1), None),
    "session": windowed(session(1), time_of),
    "session, lateness": windowed(session(0.5), time_of, 2),
    "session, processing time": windowed(session(1), None),
    "join": joined(JoinKind.INNER, time_of),
    "outer join": joined(JoinKind.OUTER, time_of),
    "left join, processing time": joined(JoinKind.LEFT, None),
}
every_operator = pytest.mark.parametrize("logic", OPERATORS.values(), ids=OPERATORS.keys())


class Move(NamedTuple):
    """What happens at a moment: a record, and time goes on."""

    key: str
    port: int
    ahead: int
    watermark: int
    wait: int


moves = st.lists(
    st.builds(
        Move,
        st.sampled_from("abcd"),
        st.integers(0, 1),
        st.integers(-12, 8),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    max_size=40,
)


class Run:
    """Records and time, for one place or several."""

    def __init__(self, logic: Any) -> None:
        self.logic = logic
        self.world = World()
        self.watermark_s = 0.0

    def do(self, number: int, move: Move, place: Place, places: list[Place]) -> None:
        port = move.port if isinstance(self.logic, Join) else 0
        event = (move.key, self.watermark_s + move.ahead / 4, number)
        place.step.process(iter([event]), port)
        self.world.wall_ns += move.wait * 250_000_000
        self.watermark_s += move.watermark / 4
        for one in places:
            one.fire()
            one.step.advance(to_ns(self.watermark_s))


@every_operator
@given(moves, st.integers(0, 40), st.sets(st.sampled_from("abcd")), st.integers(-(2**60), 2**60))
def test_keys_that_move_change_no_result(
    logic: Any, moves: list[Move], when: int, moved: set[Hashable], clock_ahead_ns: int
) -> None:
    run = Run(logic)
    alone = Place(logic, run.world, 0)
    for number, one in enumerate(moves):
        run.do(number, one, alone, [alone])
    alone.step.finish()

    run = Run(logic)
    first, second = Place(logic, run.world, 77), Place(logic, run.world, clock_ahead_ns)
    for number, one in enumerate(moves):
        if number == when:
            move(first, second, moved)
            assert not moved & set(first.step.keys())
            assert set(second.step.keys()) <= moved
        place = second if number >= when and one.key in moved else first
        run.do(number, one, place, [first, second])
    for place in (first, second):
        place.step.finish()
    in_order = isinstance(logic, Scan | Process)
    for key in "abcd":
        found, expected = first.out(key) + second.out(key), alone.out(key)
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
        assert found == expected or not in_order
    assert not first.bench.log or all(kind != "fail" for kind, _ in first.bench.log)


@every_operator
@given(moves, st.integers(0, 40))
def test_what_changed_since_a_mark_is_all_that_has_to_be_kept_again(
    logic: Any, moves: list[Move], when: int
) -> None:
    run = Run(logic)
    place = Place(logic, run.world, 0)
    kept: dict[Hashable, Any] = {}
    place.step.changes.mark(1)
    for number, one in enumerate(moves):
        if number == when:
            kept = dict(shipped(list(place.step.entries())))
            assert set(kept) <= place.step.changes.since(1)
            place.step.changes.mark(2)
        run.do(number, one, place, [place])
    if len(moves) > when:
        changed = place.step.changes.since(2)
        kept = {key: value for key, value in kept.items() if key not in changed}
        kept.update(place.step.entries(changed))
        # Whether a window's result was given follows from the watermark, which all keys share.
        assert states_in(kept) == states_in(dict(place.step.entries()))


def states_in(entries: dict[Hashable, Any]) -> Any:
    return repr(sorted(entries.items())).replace("True", "False")


def test_state_is_handed_over_key_by_key_as_plain_values() -> None:
    place = Place(OPERATORS["tumbling"], World(), 0)
    place.step.process(iter([("a", 1, 1), ("b", 3, 2)]), 0)
    assert list(place.step.entries()) == [
        ("a", {0: ([("a", 1, 1)], False)}),
        ("b", {1: ([("b", 3, 2)], False)}),
    ]
    assert list(place.step.entries(["b", "c"])) == [("b", {1: ([("b", 3, 2)], False)})]


def test_timers_leave_as_times_of_the_wall_clock() -> None:
    world = World(wall_ns=1000)
    place = Place(OPERATORS["process"], world, 555)
    place.step.process(iter([("a", 0, 3)]), 0)
    assert place.step.take_out(["a"]) == [("a", ([3], [(3_000_001_000, "soon")]))]
    world.wall_ns += 10_000_000_000
    place.fire()
    assert place.out("a") == [("a", "seen", 3)]


def test_marks_go_forward_and_what_is_committed_is_forgotten() -> None:
    place = Place(OPERATORS["scan"], World(), 0)
    changes = place.step.changes
    place.step.process(iter([("z", 0, 0)]), 0)
    for epoch, key in [(1, "a"), (2, "b"), (3, "c")]:
        changes.mark(epoch)
        place.step.process(iter([(key, 0, 0)]), 0)
    assert changes.since(1) == {"a", "b", "c"}
    assert changes.since(2) == {"b", "c"}
    changes.forget(3)
    assert changes.since(3) == {"c"}
    with pytest.raises(KeyError, match=r"no mark of epoch 2; there are \[3\]"):
        changes.since(2)
    with pytest.raises(ValueError, match="the mark of epoch 3 comes after that of epoch 3"):
        changes.mark(3)


def test_event_time_goes_on_where_it_was_and_of_two_the_lower_counts() -> None:
    logic = EventTime(float, 1)
    first, second, third = (Place(logic, World(), ahead) for ahead in (0, 5, 9))
    first.step.process(iter([3.0, 10.0, 4.0]), 0)
    second.step.process(iter([7.0]), 0)
    third.step.put_shared(shipped(first.step.shared()))
    third.step.put_shared(shipped(second.step.shared()))
    third.step.process(iter([6.5]), 0)
    third.step.process(iter([8.0]), 0)
    declared = [value for kind, value in third.bench.log if kind == "watermark"]
    assert declared == [to_ns(9), to_ns(6), to_ns(7)]


def test_a_fresh_step_has_no_say_about_time() -> None:
    logic = OPERATORS["tumbling"]
    first, second = (Place(logic, World(), 0) for _ in range(2))
    first.step.put_shared(second.step.shared())
    assert first.step.shared()[0] == BEGINNING
    second.step.advance(5)
    first.step.put_shared(second.step.shared())
    assert first.step.shared()[0] == 5


def test_an_operator_without_keys_hands_over_what_its_snapshot_says() -> None:
    class Total(tr.Operator):
        def open(self) -> None:
            self.total = 0
            self.set_timer(5, "report")

        def process(self, record: int) -> None:
            self.total += record

        def timer(self, tag: str) -> None:
            self.emit(("total", self.total))

        def snapshot(self) -> int:
            return self.total

        def restore(self, snapshot: int) -> None:
            self.total += snapshot

    world = World()
    first = Place(Process(Total()), world, 0)
    first.step.process(iter([1, 2]), 0)
    world.wall_ns += 3_000_000_000
    second = Place(Process(Total()), world, 123)
    second.step.put_shared(shipped(first.step.shared()))
    second.step.process(iter([4]), 0)
    world.wall_ns += 2_000_000_000
    second.fire()
    assert second.out("total") == [("total", 7)]
