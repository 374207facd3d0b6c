"""What the operators compute."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run

WORDS = ["to", "be", "or", "not", "to", "be"]


def results_of(records: Any, build: Callable[[tr.Stream], tr.Stream], **how: Any) -> list[Any]:
    topology = tr.Topology()
    results = collect(build(topology.source(records)))
    run(topology, **how)
    return results


def test_map_filter_and_flat_map() -> None:
    found = results_of(
        range(6),
        lambda stream: (
            stream.filter(lambda n: n % 2).map(lambda n: n * 10).flat_map(lambda n: range(n, n + 2))
        ),
    )
    assert found == [10, 11, 30, 31, 50, 51]


def test_scan_gives_each_new_state() -> None:
    found = results_of(WORDS, lambda s: s.key_by().scan(lambda count, word: (count or 0) + 1))
    assert found == [("to", 1), ("be", 1), ("or", 1), ("not", 1), ("to", 2), ("be", 2)]


def test_scan_by_a_key_function_with_an_initial_state() -> None:
    found = results_of(
        range(6), lambda s: s.key_by(lambda n: n % 2).scan(lambda sum, n: sum + n, initial=100)
    )
    assert found == [(0, 100), (1, 101), (0, 102), (1, 104), (0, 106), (1, 109)]


def test_fold_gives_the_last_state_of_each_key_in_the_end() -> None:
    found = results_of(WORDS, lambda s: s.key_by().fold(lambda count, word: (count or 0) + 1))
    assert dict(found) == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_fold_of_nothing_is_nothing() -> None:
    assert results_of([], lambda s: s.key_by().fold(lambda count, _: 1)) == []


def test_keys_do_not_share_an_initial_state_that_changes_in_place() -> None:
    def append(state: list[int], n: int) -> list[int]:
        state.append(n)
        return state

    found = results_of(range(6), lambda s: s.key_by(lambda n: n % 2).fold(append, initial=[]))
    assert found == [(0, [0, 2, 4]), (1, [1, 3, 5])]


def test_split_sends_each_record_one_way() -> None:
    topology = tr.Topology()
    sides = topology.source(range(6)).split(lambda n: "odd" if n % 2 else "even", ["odd", "even"])
    odd, even = collect(sides["odd"]), collect(sides["even"])
    run(topology)
    assert (odd, even) == ([1, 3, 5], [0, 2, 4])


def test_split_into_an_unknown_stream_says_which_there_are() -> None:
    topology = tr.Topology()
    collect(topology.source([1]).split(lambda n: "c", ["a", "b"])["a"])
    with pytest.raises(OperatorFailed, match=r"split gave 'c'; the streams are \['a', 'b'\]"):
        run(topology)


def test_an_operator_has_one_state_per_key_and_may_forget_it() -> None:
    class EverySecond(tr.Operator):
        def process(self, record: str) -> None:
            if self.state:
                self.emit((self.key, self.state))
            self.state = None if self.state else record.upper()

    found = results_of(WORDS, lambda s: s.key_by().process(EverySecond()))
    assert found == [("to", "TO"), ("be", "BE")]


class Writes(tr.Operator):
    def process(self, record: Any) -> None:
        self.state = 1


class Reads(tr.Operator):
    def process(self, record: Any) -> None:
        self.emit(self.state)


class Opens(tr.Operator):
    def open(self) -> None:
        self.state = {}

    def process(self, record: Any) -> None:
        pass


@pytest.mark.parametrize("operator", [Writes(), Reads(), Opens()])
def test_state_without_a_key_is_refused(operator: tr.Operator) -> None:
    with pytest.raises(OperatorFailed, match=r"this stream has none: call .key_by"):
        results_of("abc", lambda s: s.process(operator))


def test_state_that_belongs_to_no_key_is_refused_on_keyed_streams_too() -> None:
    with pytest.raises(OperatorFailed, match="which belongs to a key: none is current"):
        results_of("abc", lambda s: s.key_by().process(Opens()))


def test_a_state_of_none_forgets_the_key_in_all_operators_alike() -> None:
    def until_three(count: int | None, record: str) -> int | None:
        count = (count or 0) + 1
        return None if count == 3 else count

    class UntilThree(tr.Operator):
        def process(self, record: str) -> None:
            self.state = until_three(self.state, record)
            self.emit((record, self.state))

    records = "aaaabaaa"
    scanned = results_of(records, lambda s: s.key_by().scan(until_three))
    assert scanned == results_of(records, lambda s: s.key_by().process(UntilThree()))
    assert [count for key, count in scanned if key == "a"] == [1, 2, None, 1, 2, None, 1]
    assert results_of(records, lambda s: s.key_by().fold(until_three)) == [("b", 1), ("a", 1)]
    assert results_of("aaab", lambda s: s.key_by().fold(until_three)) == [("b", 1)]
    windowed = results_of(
        records,
        lambda s: (
            s.event_time(lambda _: 1, max_delay_s=0)
            .key_by()
            .window(tr.tumbling(5))
            .aggregate(until_three)
        ),
    )
    assert [(result.key, result.value) for result in windowed] == [("b", 1), ("a", 1)]


def test_each_key_gets_a_copy_of_its_own_of_the_initial_state() -> None:
    def gather(state: list[str], record: str) -> list[str]:
        state.append(record)
        return state

    for build in (
        lambda s: s.key_by().fold(gather, initial=[]),
        lambda s: (
            s.event_time(lambda _: 1, max_delay_s=0)
            .key_by()
            .window(tr.tumbling(5))
            .aggregate(gather, [])
            .map(lambda result: (result.key, result.value))
        ),
    ):
        assert results_of("aba", build) == [("a", ["a", "a"]), ("b", ["b"])]


def test_in_finish_there_is_no_key_and_no_state() -> None:
    class Last(tr.Operator):
        def process(self, record: int) -> None:
            self.state = record

        def finish(self) -> None:
            self.emit((self.key, self.state))

    assert results_of([1, 2], lambda s: s.key_by().process(Last())) == [(None, None)]


def test_an_operator_knows_which_copy_it_is() -> None:
    class Who(tr.Operator):
        def process(self, record: int) -> None:
            self.emit((self.instance.operator, self.instance.index, self.instance.parallelism))

    found = results_of(
        range(3),
        lambda s: s.partition_by(lambda n, _: n).process(Who(), name="who", parallelism=3).gather(),
    )
    assert sorted(found) == [("who", 0, 3), ("who", 1, 3), ("who", 2, 3)]


def test_side_streams_get_what_is_emitted_to_them() -> None:
    class Sort(tr.Operator):
        def process(self, record: int) -> None:
            self.emit(record)
            self.emit(-record, stream="negative")

    topology = tr.Topology()
    stream = topology.source([1, 2]).process(Sort())
    positive, negative = collect(stream), collect(stream.side("negative"))
    run(topology)
    assert (positive, negative) == ([1, 2], [-1, -2])


def test_every_reader_of_a_stream_gets_a_list_of_its_own() -> None:
    topology = tr.Topology()
    stream = topology.source(range(4))
    fused, shuffled = collect(stream), collect(stream.shuffle().map(abs, parallelism=2))
    everywhere = collect(stream.broadcast().map(abs, parallelism=2))
    run(topology, workers=2)
    assert fused == [0, 1, 2, 3]
    assert sorted(shuffled) == [0, 1, 2, 3]
    assert sorted(everywhere) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_flat_map_hands_on_all_or_nothing_of_a_record() -> None:
    def halves(n: int) -> Iterator[int]:
        yield n
        if n == 2:
            raise ValueError("two")
        yield -n

    topology = tr.Topology()
    results = collect(topology.source([1, 2, 3]).flat_map(halves, on_error="skip"))
    run(topology)
    assert results == [1, -1, 3, -3]


class Rows(list[int]):
    """What some other library may call a list."""


@pytest.mark.parametrize("kind", [list, Rows])
def test_a_source_of_ones_own_may_give_any_kind_of_list(kind: Callable[[Any], Any]) -> None:
    class Once(tr.Reader):
        given = False

        def poll(self, most: int) -> list[int] | None:
            given, self.given = self.given, True
            return None if given else kind([1, 2, 3])

    class Own(tr.Source):
        def open(self, *_: Any, **__: Any) -> tr.Reader:
            return Once()

    topology = tr.Topology()
    stream = topology.source(Own())
    mapped, keyed = collect(stream.map(abs)), collect(stream.key_by().map(abs))
    run(topology)
    assert mapped == keyed == [1, 2, 3]
