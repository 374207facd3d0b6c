"""The debug mode of the test kit: changed records, and those that could not travel."""

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run

BATCHES = pytest.mark.parametrize("poll_records", [1, 1024])


def spoil(record: dict[str, int]) -> dict[str, int]:
    record["n"] += 1
    return record


class Sorts(tr.Operator):
    def process(self, record: dict[str, int]) -> None:
        record.pop("n", None)


def append_one(state: Any, record: dict[str, int]) -> int:
    record["seen"] = 1
    return 1


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(spoil, name="op"),
        lambda s: s.filter(spoil, name="op"),
        lambda s: s.process(Sorts(), name="op"),
        lambda s: s.key_by(lambda r: r["n"]).fold(append_one, name="op"),
        lambda s: s.map(spoil, name="op", on_error="skip"),
    ],
)
def test_an_operator_that_changes_its_record_is_named_with_the_record(build: Any) -> None:
    topology = tr.Topology()
    collect(build(topology.source([{"n": 1}])))
    with pytest.raises(OperatorFailed, match=r"'op' failed on .*changed its record, which was \{"):
        run(topology, strict=True)
    run(topology)


async def spoil_later(record: dict[str, int]) -> dict[str, int]:
    return spoil(record)


class SpoilsLater(tr.Operator):
    def process(self, record: dict[str, int]) -> None:
        self.state = record
        self.set_timer(0.5)

    def timer(self, tag: Any) -> None:
        spoil(self.state)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.async_map(spoil_later, name="op"),
        lambda s: s.key_by(lambda r: 0).process(SpoilsLater(), name="op"),
        lambda s: s.key_by(lambda r: 0).fold(lambda s, r: spoil(s) if s else r, name="op"),
    ],
    ids=["coroutine", "timer", "state"],
)
@BATCHES
def test_a_record_that_is_changed_in_a_later_call_is_found(build: Any, poll_records: int) -> None:
    topology = tr.Topology()
    numbers = topology.source(tr.sources.rate(1, count=3))
    collect(build(numbers.map(lambda n: {"n": n})))
    with pytest.raises(OperatorFailed, match=r"'op' failed on .*changed its record, which was \{"):
        run(topology, strict=True, limits=tr.Limits(poll_records=poll_records))


def append(state: list[int], n: int) -> list[int]:
    state.append(n)
    return state


class Appends(tr.Operator):
    def process(self, n: int) -> None:
        self.state = append(self.state or [], n)
        self.emit((self.key, self.state))


class AppendsCopies(tr.Operator):
    def process(self, n: int) -> None:
        self.state = append(self.state or [], n)
        self.emit((self.key, list(self.state)))


@BATCHES
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.scan(append, initial=[], name="op"),
        lambda s: s.process(Appends(), name="op"),
    ],
    ids=["scan", "process"],
)
def test_a_state_that_is_handed_on_and_changed_is_named(build: Any, poll_records: int) -> None:
    topology = tr.Topology()
    keyed = topology.source([1, 2, 3]).key_by(lambda _: 0)
    collect(build(keyed).map(lambda result: list(result[1]), name="next"))
    message = r"'op' failed on .*along 'op -> next' has changed.*was \(0, \[1\]\).*a copy"
    with pytest.raises(OperatorFailed, match=message):
        run(topology, strict=True, limits=tr.Limits(poll_records=poll_records))


@BATCHES
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.scan(lambda seen, n: [*seen, n], initial=[]),
        lambda s: s.process(AppendsCopies()),
    ],
    ids=["scan", "process"],
)
def test_new_states_and_copies_are_the_same_however_records_are_batched(
    build: Any, strict: bool, poll_records: int
) -> None:
    topology = tr.Topology()
    results = collect(build(topology.source([1, 2, 3]).key_by(lambda _: 0)).map(tuple))
    run(topology, strict=strict, limits=tr.Limits(poll_records=poll_records))
    assert results == [(0, [1]), (0, [1, 2]), (0, [1, 2, 3])]


class Reuses(tr.Source, tr.Reader):
    """Fills the same record again and again."""

    def __init__(self) -> None:
        self.record = {"n": 0}

    def open(self, split: Any, clock_ns: Any, position: Any = None) -> tr.Reader:
        return self

    def poll(self, most: int) -> list[Any] | None:
        return [spoil(self.record)] if self.record["n"] < 3 else None


def test_a_source_that_hands_on_the_same_object_again_is_named() -> None:
    topology = tr.Topology()
    collect(topology.source(Reuses(), name="in"))
    with pytest.raises(OperatorFailed, match=r"'in' failed .*has changed since"):
        run(topology, strict=True)


def test_a_record_that_could_not_travel_is_named_with_its_operator_and_stream() -> None:
    topology = tr.Topology()
    locks = topology.source([1]).map(lambda _: threading.Lock(), name="make")
    collect(locks.map(repr, name="show"))
    message = r"'make' failed on <unlocked .*cannot travel along .*make -> show.*hand on what"
    with pytest.raises(OperatorFailed, match=message):
        run(topology, strict=True)
    run(topology)


class UnreadableError(Exception):
    """Pickle gives its arguments to `__init__`, and they are others."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def test_a_record_that_could_not_be_decoded_is_named_with_its_operator_and_stream() -> None:
    topology = tr.Topology()
    errors = topology.source([1]).map(lambda n: (n, UnreadableError(n, n)), name="make")
    collect(errors.map(repr, name="show"))
    message = r"'make' failed on \(1, UnreadableError.*cannot travel along .*make -> show.*decode"
    with pytest.raises(OperatorFailed, match=message):
        run(topology, strict=True)
    run(topology)


READERS: dict[str, Any] = {
    "takes keys": lambda keyed: keyed.fold(lambda n, _: (n or 0) + 1, name="op", on_error="skip"),
    "takes none": lambda keyed: keyed.map(repr, name="op", on_error="skip"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("group", ["key_by", "partial_key_by"])
def test_a_key_that_could_not_travel_is_named(group: str, reader: str) -> None:
    @dataclass(frozen=True)
    class Local:
        name: str

    topology = tr.Topology()
    collect(READERS[reader](getattr(topology.source(["a"]), group)(Local)))
    with pytest.raises(OperatorFailed, match=r"'op' failed on 'a'.*its key, .*Local\(name="):
        run(topology, strict=True)


@dataclass(frozen=True)
class Growing:
    """Is another one behind pickle."""

    size: int

    def __reduce__(self) -> Any:
        return Growing, (self.size + 1,)


@pytest.mark.parametrize("reader", READERS)
def test_a_key_that_would_be_another_one_where_it_comes_is_named(reader: str) -> None:
    topology = tr.Topology()
    collect(READERS[reader](topology.source([1]).key_by(Growing)))
    message = r"'op' failed on 1.*its key, Growing\(size=1\), comes as another .*\(size=2\)"
    with pytest.raises(OperatorFailed, match=message):
        run(topology, strict=True)


@dataclass(frozen=True)
class Lazy:
    n: int

    @cached_property
    def square(self) -> int:
        return self.n * self.n


def test_what_changes_nothing_passes_in_strict_mode() -> None:
    topology = tr.Topology()
    numbers = topology.source([Lazy(n) for n in range(10)], parallelism=2)
    squares = numbers.map(lambda one: (one.square, one), on_error="skip")
    totals = squares.key_by(lambda pair: pair[0] % 3).fold(lambda t, p: t + p[0], initial=0)
    results = collect(totals)
    report = run(topology, strict=True, workers=2)
    assert sorted(results) == [(0, 126), (1, 159)]
    assert report.skipped["map"] == 0
