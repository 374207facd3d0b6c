"""Opening, finishing and closing: each once, in order, also when something fails."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


class Logged(tr.Operator):
    def __init__(self, name: str, fail_in: str = "") -> None:
        self.name = name
        self.fail_in = fail_in

    def _note(self, moment: str) -> None:
        LOG.append(f"{self.name} {moment}")
        if self.fail_in == moment:
            raise ValueError(f"cannot {moment}")

    def open(self) -> None:
        self._note("open")

    def process(self, record: Any) -> None:
        self._note("process")
        self.emit(record)

    def finish(self) -> None:
        self._note("finish")
        self.emit("last")

    def close(self) -> None:
        self._note("close")


def pipeline(*operators: Logged, records: int = 1) -> tuple[tr.Topology, list[Any]]:
    topology = tr.Topology()
    stream = topology.source(range(records))
    for operator in operators:
        stream = stream.process(operator, name=operator.name)
    return topology, collect(stream)


def test_each_moment_comes_once_and_ends_flow_downstream() -> None:
    topology, results = pipeline(Logged("a"), Logged("b"))
    run(topology)
    assert results == [0, "last", "last"]
    assert LOG[:2] == ["b open", "a open"]
    assert LOG[2:7] == ["a process", "b process", "a finish", "b process", "b finish"]
    assert sorted(LOG[7:]) == ["a close", "b close"]


@pytest.mark.parametrize("moment", ["open", "finish", "close"])
def test_what_raises_outside_of_records_names_operator_and_moment(moment: str) -> None:
    topology, _ = pipeline(Logged("a"), Logged("b", fail_in=moment))
    message = f"operator 'b' failed in {moment}: ValueError.*cannot {moment}"
    with pytest.raises(OperatorFailed, match=message) as failure:
        run(topology)
    assert failure.value.operator == "b"
    assert failure.value.moment == moment


@pytest.mark.parametrize("moment", ["process", "finish", "close"])
def test_all_that_was_opened_is_closed_whatever_fails(moment: str) -> None:
    topology, _ = pipeline(Logged("a"), Logged("b", fail_in=moment), Logged("c"))
    with pytest.raises(OperatorFailed, match="operator 'b'"):
        run(topology)
    assert {"a close", "b close", "c close"} <= set(LOG)


def test_when_opening_fails_those_opened_before_are_closed() -> None:
    topology = tr.Topology()
    stream = topology.source([1])
    stream = stream.shuffle().process(Logged("first"), name="first")
    collect(stream.shuffle().process(Logged("second", fail_in="open"), name="second"))
    with pytest.raises(OperatorFailed, match="'second' failed in open"):
        run(topology, workers=3)
    assert LOG == ["first open", "second open", "first close"]


def test_the_first_failure_is_the_one_that_is_told() -> None:
    class Both(Logged):
        def close(self) -> None:
            raise RuntimeError("and then this")

    topology, _ = pipeline(Both("a", fail_in="process"))
    with pytest.raises(OperatorFailed, match="cannot process"):
        run(topology)


def test_a_source_that_raises_is_named() -> None:
    class Broken(tr.Source, tr.Reader):
        def open(self, *_: Any) -> tr.Reader:
            return self

        def poll(self, most: int) -> list[Any] | None:
            raise ConnectionError("gone")

    topology = tr.Topology()
    collect(topology.source(Broken(), name="feed"))
    with pytest.raises(OperatorFailed, match="operator 'feed' failed in poll: ConnectionError"):
        run(topology)


def test_a_source_or_sink_that_cannot_open_is_named() -> None:
    class NoSource(tr.Source):
        def open(
            self, split: tr.Split, clock_ns: Callable[[], int], position: Any = None
        ) -> tr.Reader:
            raise FileNotFoundError("input")

    class NoSink(tr.Sink):
        def open(self, index: int, parallelism: int) -> None:
            raise FileNotFoundError("output")

        def write(self, records: Iterator[Any]) -> None:
            pass

    topology = tr.Topology()
    collect(topology.source(NoSource(), name="in"))
    with pytest.raises(OperatorFailed, match="operator 'in' failed in open: FileNotFound"):
        run(topology)
    topology = tr.Topology()
    topology.source([1]).sink(NoSink(), name="out")
    with pytest.raises(OperatorFailed, match="operator 'out' failed in open: FileNotFound"):
        run(topology)


def test_instances_of_an_operator_share_nothing_that_changes() -> None:
    class Counting(tr.Operator):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def process(self, record: int) -> None:
            self.seen.append(record)
            self.emit(len(self.seen))

    original = Counting()
    topology = tr.Topology()
    stream = topology.source(range(12)).shuffle().process(original, parallelism=3)
    results = collect(stream.gather())
    run(topology)
    assert sorted(results) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert original.seen == []
