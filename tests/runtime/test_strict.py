"""The debug mode of the test kit: changed records, and those that could not travel."""

import threading
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run


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


def test_a_record_that_could_not_travel_is_named_with_its_operator_and_stream() -> None:
    topology = tr.Topology()
    locks = topology.source([1]).map(lambda _: threading.Lock(), name="make")
    collect(locks.map(repr, name="show"))
    message = r"'make' failed on <unlocked .*cannot travel along .*make -> show.*hand on what"
    with pytest.raises(OperatorFailed, match=message):
        run(topology, strict=True)
    run(topology)


def test_a_key_function_that_does_not_give_the_same_twice_is_named_with_what_it_gave() -> None:
    turns = count()
    topology = tr.Topology()
    keyed = topology.source(["a"]).key_by(lambda record: (record, next(turns)))
    collect(keyed.fold(lambda n, _: (n or 0) + 1, name="op", on_error="skip"))
    message = r"'op' failed on 'a'.*gave \('a', \d+\) and then \('a', \d+\).*by a map before"
    with pytest.raises(OperatorFailed, match=message):
        run(topology, strict=True)
    run(topology)


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
