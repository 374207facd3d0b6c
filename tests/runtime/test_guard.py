"""What becomes of records that raise: fail, skip or dead letter, exactly at that record."""

import traceback
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import pytest

import tailrace as tr
from tailrace._arguments import OnErrorName
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run
from tests.runtime.ticks import Ticks

BAD = {0, 3, 4, 9}
"""The first of ten, two in a row, and the last."""
GOOD = [n for n in range(10) if n not in BAD]


def picky(record: int) -> int:
    if record in BAD:
        raise ValueError(f"no {record}s")
    return record


class Picky(tr.Operator):
    def process(self, record: int) -> None:
        self.emit(picky(record))


class PickySink(tr.Sink):
    def __init__(self, written: list[int]) -> None:
        self.written = written

    def write(self, records: Iterator[int]) -> None:
        for record in records:
            self.written.append(picky(record))


def keyed(stream: tr.Stream, **options: Any) -> tr.Stream:
    return stream.key_by(lambda record: 0).scan(lambda state, n: picky(n), **options)


def last(pair: tuple[int, int]) -> int:
    return pair[1]


Build = Callable[..., tr.Stream]
KINDS: dict[str, Build] = {
    "map": lambda stream, **options: stream.map(picky, **options),
    "filter": lambda stream, **options: stream.filter(lambda n: picky(n) >= 0, **options),
    "flat_map": lambda stream, **options: stream.flat_map(lambda n: [picky(n)], **options),
    "lazy flat_map": lambda stream, **options: stream.flat_map(
        lambda n: (picky(n) for _ in range(1)), **options
    ),
    "scan": keyed,
    "process": lambda stream, **options: stream.process(Picky(), **options),
    "keyed process": lambda stream, **options: stream.key_by().process(Picky(), **options),
    "split": lambda stream, **options: stream.split(
        lambda n: str(picky(n) >= 0), ["True", "False"], **options
    )["True"],
}


def plain(kind: str, results: list[Any]) -> list[int]:
    return [last(result) for result in results] if kind == "scan" else results


@pytest.mark.parametrize("kind", KINDS)
def test_skipping_goes_on_with_the_next_record_and_counts(kind: str) -> None:
    topology = tr.Topology()
    results = collect(KINDS[kind](topology.source(range(10)), name="op", on_error="skip"))
    report = run(topology)
    assert plain(kind, results) == GOOD
    assert report.skipped["op"] == len(BAD)
    assert report.records_in["op"] == 10


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_carry_the_record_and_the_error(kind: str) -> None:
    topology = tr.Topology()
    stream = KINDS[kind](topology.source(range(10)), name="op", on_error="dead letter")
    results, dead = collect(stream), collect(stream.dead_letters())
    run(topology)
    assert plain(kind, results) == GOOD
    assert dead == [(n, f"ValueError('no {n}s')") for n in sorted(BAD)]


@pytest.mark.parametrize("kind", KINDS)
def test_failing_names_operator_record_and_the_users_line(kind: str) -> None:
    topology = tr.Topology()
    collect(KINDS[kind](topology.source([1, 2, 3, 5]), name="op"))
    with pytest.raises(OperatorFailed, match=r"operator 'op' failed on 3: ValueError") as failure:
        run(topology)
    assert failure.value.operator == "op"
    assert failure.value.record == "3"
    assert isinstance(failure.value.error, ValueError)
    assert "in picky" in "".join(traceback.format_exception(failure.value.error))


@pytest.mark.parametrize("kind", ["map", "filter", "flat_map"])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_stopiteration_of_the_users_is_an_error_and_not_the_end(kind: str, at: int) -> None:
    def function(record: int) -> Any:
        found = next(n for n in range(5) if n == record and n != at)
        return [found] if kind == "flat_map" else found + 1

    topology = tr.Topology()
    method = getattr(topology.source(range(5)), kind)
    stream = method(function, name="op", on_error="dead letter")
    results, dead = collect(stream), collect(stream.dead_letters())
    run(topology)
    assert len(results) == 4
    assert [record for record, _ in dead] == [at]
    assert "StopIteration" in dead[0][1]


@pytest.mark.parametrize(("inner", "outer"), [("fail", "skip"), ("skip", "fail")])
def test_fused_operators_are_blamed_for_their_own_errors_only(
    inner: OnErrorName, outer: OnErrorName
) -> None:
    topology = tr.Topology()
    results = collect(
        topology.source(range(10))
        .map(lambda n: n, name="first", on_error=outer)
        .map(picky, name="second", on_error=inner)
        .map(lambda n: n, name="third", on_error=outer)
    )
    if inner == "skip":
        report = run(topology)
        assert results == GOOD
        assert report.skipped == {"source": 0, "first": 0, "second": 4, "third": 0, "sink": 0}
    else:
        with pytest.raises(OperatorFailed, match="operator 'second' failed on 0"):
            run(topology)


def test_dead_letters_of_a_sink_can_be_read_and_its_latency_is_measured() -> None:
    topology = tr.Topology()
    written: list[int] = []
    stream = topology.source(range(10))
    stream.sink(PickySink(written), name="store", on_error="dead letter")
    dead = collect(topology.dead_letters("store"))
    report = run(topology)
    assert written == GOOD
    assert [record for record, _ in dead] == sorted(BAD)
    assert report.skipped["store"] == 4


def test_a_sink_that_fails_without_a_record_does_not_go_round_in_circles() -> None:
    class Broken(tr.Sink):
        def write(self, records: Iterator[int]) -> None:
            batch = list(records)
            raise ConnectionError(f"lost, with {len(batch)} records")

    topology = tr.Topology()
    topology.source(range(10)).sink(Broken(), name="store", on_error="skip")
    with pytest.raises(OperatorFailed, match="operator 'store' failed in process: ConnectionError"):
        run(topology)


def test_a_sink_that_leaves_records_behind_is_found_out() -> None:
    class Lazy(tr.Sink):
        def write(self, records: Iterator[int]) -> None:
            next(records)

    topology = tr.Topology()
    topology.source(range(10)).sink(Lazy(), name="store")
    with pytest.raises(OperatorFailed, match=r"'store' failed on 0: .*left records unprocessed"):
        run(topology)


def test_an_error_whose_repr_raises_is_still_that_operators() -> None:
    class RudeError(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no")

    def rude(record: int) -> int:
        raise RudeError

    topology = tr.Topology()
    first = topology.source([1]).map(abs, name="first")
    stream = first.map(rude, name="second", on_error="dead letter")
    collect(stream)
    dead = collect(stream.dead_letters())
    run(topology)
    assert dead == [(1, "<RudeError whose repr raises RuntimeError>")]


def test_a_huge_record_is_shortened_in_the_message() -> None:
    topology = tr.Topology()
    collect(topology.source(["x" * 10_000]).map(int, name="op"))
    with pytest.raises(OperatorFailed, match=r"'op' failed on 'x{299}\.\.\. .10002 characters."):
        run(topology)


def test_emitting_to_an_output_that_is_not_there_blames_the_record() -> None:
    class Typo(tr.Operator):
        def process(self, record: int) -> None:
            self.emit(record)
            if record == 1:
                self.emit(record, stream="latte")

    topology = tr.Topology()
    stream = topology.source(range(3)).process(Typo(), name="op", on_error="dead letter")
    results, dead = collect(stream), collect(stream.dead_letters())
    collect(stream.side("late"))
    run(topology)
    assert results == [0, 2]
    assert dead[0][0] == 1
    assert "'op' has no output 'latte'; it has ['main', 'dead letters', 'late']" in dead[0][1]


def test_nothing_is_left_of_a_record_on_which_an_operator_raised() -> None:
    class Half(tr.Operator):
        def process(self, record: int) -> None:
            self.state = (self.state or 0) + 1
            self.emit((record, self.state))
            self.set_timer(1, record)
            picky(record)

        def timer(self, tag: int) -> None:
            self.emit(("timer", tag))

    topology = tr.Topology()
    stream = topology.source(Ticks([[1, 3, 1], []], gap_s=5)).key_by(lambda _: 0)
    results = collect(stream.process(Half(), on_error="skip"))
    run(topology)
    assert results == [(1, 1), (1, 2), ("timer", 1), ("timer", 1)]


def test_an_operator_may_have_a_name_of_a_type_of_its_own() -> None:
    class Names(StrEnum):
        PICKY = "picky"

    topology = tr.Topology()
    stream = topology.source(range(10)).map(picky, name=Names.PICKY, on_error="skip")
    results = collect(stream)
    run(topology)
    assert results == GOOD


def test_a_list_that_its_source_cuts_short_meanwhile_is_not_read_beyond_its_end() -> None:
    kept = list(range(50_000))

    class Once(tr.Reader):
        given = False

        def poll(self, most: int) -> list[int] | None:
            given, self.given = self.given, True
            return None if given else kept

    class Own(tr.Source):
        def open(self, *_: Any, **__: Any) -> tr.Reader:
            return Once()

    def cut(record: int) -> int:
        if record in (1, 40_000):
            if record > 1:
                kept.clear()
            raise ValueError("no more")
        return record

    topology = tr.Topology()
    collect(topology.source(Own()).map(cut, name="op", on_error="skip"))
    with pytest.raises(OperatorFailed, match="'op' failed in process: ValueError"):
        run(topology)
