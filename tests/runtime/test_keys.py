"""Key functions that raise: their errors go by the policy of the operator that reads the stream."""

import threading
from collections.abc import Callable
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


@pytest.mark.parametrize("failing", [1, 2], ids=["where it is sent", "where it is taken"])
def test_it_is_the_same_error_whichever_of_the_two_calls_raises(failing: int) -> None:
    calls = 0

    def key_of(record: int) -> int:
        nonlocal calls
        calls += record == 7
        return record // (calls != failing) if record == 7 else record

    topology = tr.Topology()
    keyed = topology.source([1, 7, 2]).key_by(key_of)
    stream = keyed.process(Count(), name="op", parallelism=3, on_error="dead letter")
    results, dead = collect(stream), collect(stream.dead_letters())
    report = run(topology, workers=2)
    assert sorted(results) == [(1, 1), (2, 1)]
    assert [record for record, _ in dead] == [7]
    assert "ZeroDivisionError" in dead[0][1]
    assert report.skipped["op"] == 1


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
