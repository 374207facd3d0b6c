"""The state of every stateful operator: taken out of one step and put into another."""

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import islice, pairwise
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
from tailrace.runtime.state import FORGOTTEN, GoingOn, thawed
from tailrace.runtime.times import to_ns
from tailrace.runtime.windows import Windowed, append, session, sliding, tumbling
from tests.runtime.feeding import feed
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
        feed(place.step, [event], port)
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


class Kept:
    """What would be on disk: the chain of cuts of one step, and how it stood when each was made."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.chain: list[dict[Hashable, Any]] = []
        self.expected: list[Any] = [None, states_in({})]  # of the committed cut: shared, keys
        self.cutting: Any = None
        self.cut: dict[Hashable, Any] = {}
        self.stood: list[Any] = []
        self.settling: Any = iter(())

    def begin(self, full: bool) -> None:
        if self.cutting is None:
            for _ in self.settling:  # a cut may come before all is settled: both orders are right
                if not full:
                    break
            step = self.place.step
            self.stood = [shipped(step.shared()), states_in(dict(shipped(list(step.entries()))))]
            self.full = full
            self.cutting = step.cut(full=full)
            self.cut = {}

    def encode(self, entries: int) -> None:
        if self.cutting is not None:
            self.cut.update(shipped(list(islice(self.cutting, entries))))

    def commit(self) -> None:
        if self.cutting is not None:
            self.cut.update(shipped(list(self.cutting)))
            self.cutting = None
            self.chain = [self.cut] if self.full else [*self.chain, self.cut]
            self.expected = self.stood
            self.settling = self.place.step.committed()

    def merged(self) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = {}
        for cut in self.chain:
            found.update(cut)
        return {key: thawed(one) for key, one in found.items() if one is not FORGOTTEN}


class Doing(NamedTuple):
    """What a checkpoint does between records."""

    what: str
    full: bool
    entries: int


cuts = st.lists(
    st.builds(
        Doing,
        st.sampled_from(["begin", "encode", "encode", "commit", "settle", "lose", ""]),
        st.booleans(),
        st.integers(1, 3),
    ),
    min_size=40,
    max_size=40,
)


@every_operator
@given(moves, cuts)
def test_a_cut_is_of_its_moment_and_the_way_back_leads_to_the_committed_one(
    logic: Any, moves: list[Move], events: list[Doing]
) -> None:
    run = Run(logic)
    place = Place(logic, run.world, 0)
    place.step.watch()
    kept = Kept(place)
    for number, (one, event) in enumerate(zip(moves, events, strict=False)):
        run.do(number, one, place, [place])
        if event.what == "begin":
            kept.begin(event.full)
        elif event.what == "encode":
            kept.encode(event.entries)
        elif event.what == "settle":
            next(kept.settling, None)
        elif event.what == "commit":
            kept.commit()
            assert states_in(kept.merged()) == kept.expected[1]
        elif event.what == "lose":
            place.step.retire()
            other = Place(logic, run.world, 0, before=place.step)
            other.step.watch()
            other.step.take_over(place.step)
            if kept.chain:
                assert shipped(other.step.shared()) == kept.expected[0]
            assert states_in(dict(shipped(list(other.step.entries())))) == kept.expected[1]
            place = kept.place = other
            kept.cutting, kept.settling = None, iter(())
            run.watermark_s = 0.0 if not kept.chain else run.watermark_s


@every_operator
@given(moves, st.integers(0, 40), st.integers(0, 20), st.booleans())
def test_what_comes_after_a_cut_is_done_again_with_the_same_results(
    logic: Any, moves: list[Move], when: int, more: int, from_disk: bool
) -> None:
    run = Run(logic)
    alone = Place(logic, run.world, 0)
    for number, one in enumerate(moves):
        run.do(number, one, alone, [alone])
    alone.step.finish()

    run = Run(logic)
    first = Place(logic, run.world, 0)
    first.step.watch()
    kept = Kept(first)
    for number, one in enumerate(moves[:when]):
        run.do(number, one, first, [first])
    kept.begin(full=False)
    results = {key: first.out(key) for key in "abcd"}
    then = run.world.wall_ns, run.watermark_s
    for number, one in enumerate(moves[when : when + more], when):
        kept.encode(1)
        run.do(number, one, first, [first])
    kept.commit()
    run.world.wall_ns, run.watermark_s = then
    if from_disk:
        again = Place(logic, run.world, 9)
        again.step.watch()
        again.step.go_on(GoingOn(1, list(kept.merged().items()), [kept.expected[0]]))
    else:
        first.step.retire()
        again = Place(logic, run.world, 0, before=first.step)
        again.step.watch()
        again.step.take_over(first.step)
    for number, one in enumerate(moves[when:], when):
        run.do(number, one, again, [again])
    again.step.finish()
    for key in "abcd":
        found = results[key] + again.out(key)
        assert Counter(map(repr, found)) == Counter(map(repr, alone.out(key)))


@pytest.mark.parametrize("name", ["scan", "process", "tumbling"])
def test_a_committed_cut_is_settled_a_few_keys_at_a_time(name: str) -> None:
    """To let go of much at once stops the stream, as does to move it all."""
    place = Place(OPERATORS[name], World(), 0)
    place.step.watch()
    left: list[int] = []
    for number in range(2):  # what comes first is taken as it is
        feed(place.step, [(f"{key}", 0.0, number) for key in range(1000)])
        list(place.step.cut())
        images = place.step._before
        assert images is not None and len(images) == 1000
        left = [len(images) for _ in place.step.committed()]
    assert left[-1] <= 64
    assert all(many - few <= 64 for many, few in pairwise([1000, *left]))


def states_in(entries: dict[Hashable, Any]) -> Any:
    return repr(sorted(entries.items())).replace("True", "False")


def test_state_is_handed_over_key_by_key_as_plain_values() -> None:
    place = Place(OPERATORS["tumbling"], World(), 0)
    feed(place.step, [("a", 1, 1), ("b", 3, 2)])
    assert list(place.step.entries()) == [
        ("a", {0: ([("a", 1, 1)], False)}),
        ("b", {1: ([("b", 3, 2)], False)}),
    ]
    assert list(place.step.entries(["b", "c"])) == [("b", {1: ([("b", 3, 2)], False)})]


def test_timers_leave_as_times_of_the_wall_clock() -> None:
    world = World(wall_ns=1000)
    place = Place(OPERATORS["process"], world, 555)
    feed(place.step, [("a", 0, 3)])
    assert place.step.take_out(["a"]) == [("a", ([3], ((3_000_001_000, "soon"),)))]
    world.wall_ns += 10_000_000_000
    place.fire()
    assert place.out("a") == [("a", "seen", 3)]


def test_event_time_goes_on_where_it_was_and_of_two_the_lower_counts() -> None:
    logic = EventTime(float, 1)
    first, second, third = (Place(logic, World(), ahead) for ahead in (0, 5, 9))
    feed(first.step, [3.0, 10.0, 4.0])
    feed(second.step, [7.0])
    third.step.put_shared(shipped(first.step.shared()))
    third.step.put_shared(shipped(second.step.shared()))
    feed(third.step, [6.5])
    feed(third.step, [8.0])
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
    feed(first.step, [1, 2])
    world.wall_ns += 3_000_000_000
    second = Place(Process(Total()), world, 123)
    second.step.put_shared(shipped(first.step.shared()))
    feed(second.step, [4])
    world.wall_ns += 2_000_000_000
    second.fire()
    assert second.out("total") == [("total", 7)]


WHOLE_S = 1_700_000_000


def fired_window(window: Any) -> tuple[Any, World, Place]:
    """A step whose window is over, by a clock that stands at its end."""
    logic, world = windowed(window, None), World(WHOLE_S * 1_000_000_000)
    place = Place(logic, world, 0)
    place.step.watch()
    feed(place.step, [("a", 0.0, 1)])
    world.wall_ns += 10_000_000_000
    place.fire()
    [result] = place.out("a")
    assert result.end == WHOLE_S + 10
    return logic, world, place


@pytest.mark.parametrize(
    "way", ["the same", "dealt anew", "new", "keys that move", "two become one"]
)
def test_a_window_of_processing_time_that_is_over_stays_so_by_a_clock_that_is_behind(
    way: str,
) -> None:
    logic, world, first = fired_window(tumbling(10))
    entries = [shipped(entry) for entry in first.step.cut(full=True)]
    shared = shipped(first.step.shared())
    world.wall_ns -= 2_000_000_000  # another host's
    second = Place(logic, world, 9)
    second.step.watch()
    other = shipped(second.step.shared())
    match way:
        case "the same":
            second.step.go_on(GoingOn(1, entries, [shared]))
        case "dealt anew":  # which has a place, and keys of others
            second.step.go_on(GoingOn(1, entries, [other], beside=[other, shared]))
        case "new":
            second.step.go_on(GoingOn(1, entries, beside=[shared]))
        case "keys that move":
            second.step.hear_of(shared)
        case _:
            second.step.merge_shared(shared)
    feed(second.step, [("a", 0.0, 2)])
    world.wall_ns += 3_000_000_000
    second.fire()
    assert second.out("a") == []
    world.wall_ns += 9_000_000_000
    second.fire()
    [result] = second.out("a")
    assert (result.start, result.value) == (WHOLE_S + 10, [("a", 0.0, 2)])


def test_state_of_before_processing_time_was_kept_is_gone_on_from() -> None:
    logic, world, first = fired_window(session(10))
    second = Place(logic, world, 9)
    second.step.put_shared(first.step.shared()[:2])
    second.step.merge_shared(first.step.shared()[:2])
    assert second.step.shared() == (BEGINNING, False, BEGINNING)
