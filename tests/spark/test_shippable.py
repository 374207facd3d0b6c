"""What cannot be shipped to the workers is named by the variable that holds it."""

import threading
from typing import Any

import pytest

import tailrace as tr
from tailrace.connectors.memory import Items
from tailrace.graph.validate import TopologyError


class WithLock(tr.Operator):
    def __init__(self) -> None:
        self.guarded_by = threading.Lock()

    def process(self, record: Any) -> None:
        self.emit(record)


def test_a_captured_variable_is_named_with_its_type() -> None:
    connection = threading.Lock()
    stream = tr.Topology().source([1])
    with pytest.raises(
        TopologyError,
        match=r"function of 'send' cannot be shipped.* captured variable 'connection' .lock",
    ):
        stream.map(lambda record: connection.acquire() and record, name="send")


def test_the_innermost_variable_is_named() -> None:
    inner_lock = threading.Lock()

    def helper(record: int) -> bool:
        return inner_lock.locked() and record > 0

    with pytest.raises(TopologyError, match="captured variable 'inner_lock'"):
        tr.Topology().source([1]).filter(lambda record: helper(record))


def test_an_attribute_of_an_operator_is_named() -> None:
    with pytest.raises(TopologyError, match=r"because of the attribute 'guarded_by' .lock"):
        tr.Topology().source([1]).process(WithLock())


def test_a_function_as_a_sink_is_looked_into() -> None:
    output = threading.Lock()
    with pytest.raises(TopologyError, match=r"function of 'sink'.*captured variable 'output'"):
        tr.Topology().source([1]).sink(lambda record: output.locked())


def test_key_and_picking_functions_are_checked() -> None:
    lock = threading.Lock()
    stream = tr.Topology().source([1])
    with pytest.raises(TopologyError, match=r"grouping function before 'count'.*variable 'lock'"):
        stream.key_by(lambda record: lock.locked()).scan(lambda state, _: 1, name="count")
    with pytest.raises(TopologyError, match=r"grouping function before 'map'.*variable 'lock'"):
        stream.partition_by(lambda record, _: int(lock.locked())).map(abs)


def test_sources_are_checked() -> None:
    with pytest.raises(TopologyError, match="the source 'locks' cannot be shipped"):
        tr.Topology().source(Items([threading.Lock()]), name="locks")


def test_what_was_refused_leaves_the_topology_as_it_was() -> None:
    lock = threading.Lock()
    topology = tr.Topology()
    stream = topology.source([1])
    with pytest.raises(TopologyError):
        stream.map(lambda record: lock.locked(), name="a")
    stream.map(abs, name="a").sink(print)
    assert [operator.name for operator in topology.graph.operators] == ["source", "a", "sink"]
