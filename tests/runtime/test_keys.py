"""Key functions: called once for a record; errors go by the policy of who reads the stream."""

import re
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import tailrace as tr
from tailrace.testing import collect, run
from tailrace.transport.peer import JumboCodec
from tests.runtime.posts import Kept, core_of

RECORDS = [4, 0, 2, 0, 1]


def inverse(record: int) -> float:
    return 1 / record


class Count(tr.Operator):
    def process(self, record: int) -> None:
        self.state = (self.state or 0) + 1
        self.emit((self.key, self.state))


KEYED: dict[str, Any] = {
    "scan": lambda s, **o: s.scan(lambda n, _: (n or 0) + 1, **o),
    "fold": lambda s, **o: s.fold(lambda n, _: (n or 0) + 1, **o),
    "process": lambda s, **o: s.process(Count(), **o),
    "window": lambda s, **o: s.window(tr.tumbling(1), time="processing").collect(**o),
}
WIDTHS = [1, 3]


@pytest.mark.parametrize("parallelism", WIDTHS)
@pytest.mark.parametrize("kind", KEYED)
def test_a_key_that_cannot_be_told_is_an_error_of_its_record(kind: str, parallelism: int) -> None:
    topology = tr.Topology()
    keyed = topology.source(RECORDS).key_by(inverse)
    options = {"name": "op", "parallelism": parallelism, "on_error": "dead letter"}
    stream = KEYED[kind](keyed, **options)
    results, dead = collect(stream), collect(stream.dead_letters())
    report = run(topology, workers=2)
    assert sorted(result[0] for result in results) == [0.25, 0.5, 1.0]
    assert [record for record, _ in dead] == [0, 0]
    assert all("ZeroDivisionError" in error for _, error in dead)
    assert report.skipped["op"] == 2


@pytest.mark.parametrize("parallelism", WIDTHS)
def test_without_a_policy_it_fails_the_run_and_names_the_record(parallelism: int) -> None:
    topology = tr.Topology()
    counts = topology.source(RECORDS).key_by(inverse).process(Count(), parallelism=parallelism)
    collect(counts)
    with pytest.raises(tr.OperatorFailed, match="failed on 0: ZeroDivisionError"):
        run(topology, workers=2)


class Telling:
    """A key function that never gives the same twice, and says how often it was called."""

    def __init__(self) -> None:
        self.given: list[tuple[object, int]] = []

    def __call__(self, record: object) -> tuple[object, int]:
        self.given.append((record, len(self.given)))
        return self.given[-1]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("group", ["key_by", "partial_key_by"])
@pytest.mark.parametrize("parallelism", WIDTHS)
@pytest.mark.parametrize("kind", KEYED)
def test_a_key_function_is_called_once_and_what_it_gave_is_the_key_everywhere(
    kind: str, parallelism: int, group: str, strict: bool
) -> None:
    told = Telling()
    topology = tr.Topology()
    keyed = getattr(topology.source(range(9), parallelism=2), group)(told)
    results = collect(KEYED[kind](keyed, name="op", parallelism=parallelism))
    run(topology, workers=2, strict=strict)
    assert sorted(record for record, _ in told.given) == list(range(9))  # type: ignore[type-var]
    assert sorted(result[0] for result in results) == sorted(told.given)


@pytest.mark.parametrize("parallelism", WIDTHS)
def test_so_is_that_of_each_side_of_a_join(parallelism: int) -> None:
    called: list[str] = []

    def key_of(record: str) -> str:
        called.append(record)
        return record[1:]

    topology = tr.Topology()
    left, right = topology.source(["a1", "a2"]), topology.source(["b1", "b2"])
    joined = left.key_by(key_of).join(
        right.key_by(key_of), within_s=1, time="processing", parallelism=parallelism
    )
    results = collect(joined)
    run(topology, workers=2)
    assert sorted(results) == [("a1", "b1"), ("a2", "b2")]
    assert sorted(called) == ["a1", "a2", "b1", "b2"]


@pytest.mark.parametrize("parallelism", WIDTHS)
def test_an_error_of_the_operators_own_is_not_taken_for_one_of_the_key(parallelism: int) -> None:
    told = Telling()

    def count(n: int | None, record: int) -> int:
        raise TypeError(f"{record} is wrong")

    topology = tr.Topology()
    counts = (
        topology.source([1, 2])
        .key_by(told)
        .scan(count, name="op", parallelism=parallelism, on_error="dead letter")
    )
    collect(counts)
    dead = collect(counts.dead_letters())
    run(topology, workers=2)
    assert sorted(dead) == [(1, "TypeError('1 is wrong')"), (2, "TypeError('2 is wrong')")]
    assert len(told.given) == 2


@dataclass(frozen=True, eq=False)
class Itself:
    name: str


@pytest.mark.parametrize("parallelism", WIDTHS)
def test_a_key_that_is_equal_to_itself_only_is_refused(parallelism: int) -> None:
    one = Itself("a")
    topology = tr.Topology()
    keyed = topology.source([1, 2]).key_by(lambda n: one)
    collect(keyed.fold(lambda n, _: (n or 0) + 1, parallelism=parallelism))
    with pytest.raises(tr.OperatorFailed, match=r"failed on 1: TypeError.*type Itself is equal to"):
        run(topology, workers=2)


@pytest.mark.parametrize("on_error", ["fail", "dead letter"])
def test_a_record_whose_key_cannot_travel_is_refused_with_the_key(on_error: Any) -> None:
    @dataclass(frozen=True)
    class Local:
        number: int

    def key_of(number: int) -> Hashable:
        return Local(number) if number == 7 else number

    topology = tr.Topology()
    source = topology.source([1, 7, 2]).map(abs, name="in", on_error=on_error)
    counts = source.key_by(key_of).scan(lambda n, _: (n or 0) + 1, name="op", parallelism=3)
    results = collect(counts)
    message = (
        r"cannot travel to another worker on in -> op: it goes with its key, .*Local\(number=7\)"
    )
    if on_error == "fail":
        with pytest.raises(tr.OperatorFailed, match=message):
            run(topology, workers=3)
        return
    dead = collect(source.dead_letters())
    run(topology, workers=3)
    assert sorted(results) == [(1, 1), (2, 1)]
    ((record, told),) = dead
    assert record == 7
    assert re.search(message, told)


class UnreadableError(Exception):
    """Can be pickled, and not be read again: its arguments are not those of its `__init__`."""

    def __init__(self, key: object, why: str) -> None:
        super().__init__(f"{key}: {why}")


class UnwritableError(Exception):
    """Cannot even be pickled."""

    def __init__(self) -> None:
        super().__init__("no key")
        self.lock = threading.Lock()


@pytest.mark.parametrize("make", [partial(UnreadableError, 7, "no key"), UnwritableError])
def test_an_error_that_cannot_travel_arrives_as_what_it_says(
    make: Callable[[], Exception],
) -> None:
    """Else it would fail in the worker that receives it, and take all that came with it along."""

    def key_of(record: int) -> int:
        raise make()

    topology = tr.Topology()
    keyed = topology.source([7]).key_by(key_of).scan(lambda n, _: n, parallelism=1, name="op")
    keyed.sink(print)
    post = Kept()
    core = core_of(topology, (0, 1), post=post)
    while not core.ended:
        core.round()
    codec = JumboCodec(lambda: 0)
    _, ((_, items),) = codec.decode(b"".join(codec.encode(post.messages[0])))
    _, _, ((record, told),), rejected = items[0]
    assert rejected
    assert record == 7
    assert repr(make()) in str(told)
