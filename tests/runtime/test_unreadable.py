"""Records that can be encoded, and not decoded where they come."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest

import tailrace as tr
from tailrace.testing import Report, collect, run


class TwoArgumentsError(Exception):
    """Pickle gives `__init__` the one that `Exception` got."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def make(n: int) -> Any:
    return (n, TwoArgumentsError(n, n)) if n % 4 == 2 else (n, None)


def elsewhere(stream: tr.Stream) -> tr.Stream:
    """To an instance in the other worker."""
    return stream.partition_by(lambda pair, count: 0)


def run_by(on_error: Any, **how: Any) -> tuple[list[int], list[Any], Report]:
    topology = tr.Topology()
    made = topology.source(range(12), name="in").map(make, name="make")
    read = elsewhere(made).map(itemgetter(0), name="read", parallelism=2, on_error=on_error)
    dead = collect(read.dead_letters().shuffle()) if on_error == "dead letter" else []
    results = collect(read)
    return results, dead, run(topology, workers=2, **how)


@dataclass(frozen=True)
class Fragile:
    """A key that, if it is of a bad number, cannot be made where it comes."""

    number: int

    def __reduce__(self) -> Any:
        return make_fragile, (self.number,)


def make_fragile(number: int) -> Fragile:
    if number % 4 == 2:
        raise ValueError(f"bad number {number}")
    return Fragile(number)


LIMITS = pytest.mark.parametrize("limits", [tr.Limits(), tr.Limits(poll_records=1)])


@LIMITS
def test_they_go_by_the_policy_of_the_operator_that_reads_the_stream(limits: tr.Limits) -> None:
    results, _, report = run_by("skip", limits=limits)
    assert results == [n for n in range(12) if n % 4 != 2], "the others, in their order"
    assert report.skipped["read"] == 3
    assert report.records_in["read"] == 12


@LIMITS
def test_their_dead_letters_say_what_could_not_be_made_and_whence_it_came(
    limits: tr.Limits,
) -> None:
    results, dead, _ = run_by("dead letter", limits=limits)
    assert len(results) == 9
    assert len(dead) == 3
    for record, error in dead:
        assert "TwoArgumentsError that could not be unpickled: TypeError" in repr(record)
        assert "what came from worker 0 on make -> read cannot be unpickled: TypeError" in error


def test_to_fail_names_the_operators_the_sending_worker_and_the_object() -> None:
    message = r"operator 'read' failed on \(2, <.*TwoArgumentsError that .*worker 0 on make -> read"
    with pytest.raises(tr.OperatorFailed, match=message):
        run_by("fail")


def test_one_that_is_refused_for_its_key_as_well_is_refused_once() -> None:
    topology = tr.Topology()
    made = topology.source(range(12)).map(make, name="make")
    keyed = made.key_by(lambda pair: 0 if pair[1] is None else 1 // 0)
    counted = keyed.scan(lambda n, _: n + 1, initial=0, name="count", on_error="skip")
    results = collect(counted)
    report = run(topology, workers=2)
    assert results[-1] == (0, 9)
    assert report.skipped["count"] == 3


@LIMITS
def test_so_do_records_whose_keys_cannot_be_made_and_others_keep_theirs(limits: tr.Limits) -> None:
    called = []

    def key_of(record: int) -> Fragile:
        called.append(record)
        return Fragile(record)

    topology = tr.Topology()
    keyed = topology.source(range(12), name="in").key_by(key_of)
    counts = keyed.scan(lambda n, _: (n or 0) + 1, name="count", parallelism=2, on_error="skip")
    results = collect(counts)
    report = run(topology, workers=2, limits=limits)
    here = {key.number for key, _ in results if key.number % 4 == 2}  # these have not travelled
    good = {number for number in range(12) if number % 4 != 2}
    assert sorted(key.number for key, _ in results) == sorted(good | here)
    assert report.skipped["count"] == 3 - len(here) > 0
    assert sorted(called) == list(range(12))
