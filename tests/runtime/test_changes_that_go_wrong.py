"""What may come in the way of a change: nothing of it stays behind, and the stream goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.core import Core
from tailrace.runtime.deployment import changed, deploy
from tailrace.runtime.giving import Given
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.source import Reader, Source, Split
from tailrace.runtime.state import Entry
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import VirtualClock, collect
from tests.runtime.cores import Cores
from tests.runtime.posts import Kept


class Once(tr.Operator):
    """Can be opened so many times only."""

    left = 2

    def open(self) -> None:
        Once.left -= 1
        if Once.left < 0:
            raise RuntimeError("no more of it")

    def process(self, record: int) -> None:
        self.emit(record)


@pytest.fixture(autouse=True)
def twice() -> Iterator[None]:
    Once.left = 2
    yield


def test_an_operator_that_cannot_be_opened_leaves_nothing_of_the_change() -> None:
    topology = tr.Topology()
    steps = (
        topology.source(range(60), name="in").shuffle().process(Once(), parallelism=2, name="op")
    )
    got = collect(steps.shuffle())
    cores = Cores(topology, [0, 1, 1, 0, 0])
    cores.rounds(2)
    after = changed(cores.deployment, parallelism={"op": 3}, workers={InstanceId("op", 2): 2})
    known = [
        (set(core.site.exchanges), set(core.site.lanes), set(core.site.inlets))
        for core in cores.cores
    ]
    with pytest.raises(OperatorFailed, match="no more of it"):
        cores.cores[2].prepare(1, after)
    cores.cores[0].prepare(1, after)
    for core in cores.cores:
        core.call_off()
    assert known == [
        (set(core.site.exchanges), set(core.site.lanes), set(core.site.inlets))
        for core in cores.cores
    ]
    Once.left = 1
    cores.number = 1
    cores.change(after)
    cores.rounds(100)
    assert sorted(got) == list(range(60))


def test_a_state_that_cannot_go_to_another_worker_is_named_with_its_key() -> None:
    topology = tr.Topology()
    keyed = topology.source(["a"] * 10).key_by()
    keyed.scan(lambda lock, _: lock or threading.Lock(), parallelism=1, name="op").sink(print)
    cores = Cores(topology, [0, 1])

    def refuse(peer: int, message: Any) -> bool:
        raise TypeError("cannot pickle it")

    cores.rounds(3)
    cores.posts[1].state = refuse  # type: ignore[method-assign]
    cores.cores[1].prepare(1, changed(cores.deployment, workers={InstanceId("op", 0): 2}))
    moving = cores.cores[1].moving
    assert moving is not None
    state: list[Entry] = [("a", threading.Lock())]
    given = Given(1, InstanceId("op", 0), InstanceId("op", 0), [("op", state)])
    with pytest.raises(OperatorFailed, match="the state of key 'a' cannot go to another worker"):
        moving._send(2, given)


def test_a_source_that_begins_elsewhere_while_the_job_stops_stops_too() -> None:
    topology = tr.Topology()
    got = collect(topology.source(range(10_000), name="in").shuffle())
    cores = Cores(topology, [0, 2])
    cores.rounds(2)
    for core in cores.cores:
        core.prepare(1, changed(cores.deployment, workers={InstanceId("in", 0): 1}))
    for core in cores.cores:
        core.switch()
        core.stop_sources()
    for _ in range(200):
        cores.rounds(1)
        for core in cores.cores:
            core.move()
            core.moved()
    assert all(core.ended for core in cores.cores)
    assert got == list(range(len(got)))
    assert len(got) < 100


def test_a_source_with_coroutines_behind_it_moves_though_there_is_always_more() -> None:
    async def soon(number: int) -> int:
        await asyncio.sleep(0)
        return number

    topology = tr.Topology()
    slow = topology.source(range(3_000), name="in").async_map(soon, concurrency=50)
    got = collect(slow.shuffle())
    cores = Cores(topology, [0, 2])
    while len(got) < 10:
        cores.rounds(1)
    cores.change(changed(cores.deployment, workers={InstanceId("in", 0): 1}))
    assert len(got) < 3_000, "it has moved while it ran"
    while not all(core.ended for core in cores.cores):
        cores.rounds(1)
    assert got == list(range(3_000))
    for core in cores.cores:
        core.close()


class Found(Source, Reader):
    """Finds another split whenever somebody looks."""

    look_s = 0.001
    rewinds = True
    found = 1

    def splits(self, parallelism: int) -> list[Split]:
        self.found += 1
        return [Split(f"file {number}") for number in range(self.found)]

    def open(self, split: Split, clock_ns: Any, position: Any = None) -> Reader:
        return self

    def poll(self, most: int) -> list[Any]:
        return []


def test_a_source_looks_for_no_splits_while_some_are_on_their_way() -> None:
    now_ns = 0
    step = SourceStep(Found(), 0, 1, lambda records: None, lambda: now_ns)
    step.settled = False
    before = step.keys()
    now_ns = 10**9
    step.poll(1)
    assert step.keys() == before
    step.settled = True
    now_ns = 2 * 10**9
    step.poll(1)
    assert len(step.keys()) > len(before)


def test_a_worker_to_which_instances_come_has_not_ended_with_the_epoch_that_brings_them() -> None:
    topology = tr.Topology()
    collect(topology.source(range(10_000), name="in").shuffle())
    before = deploy(topology.graph, [0, 0])
    core = Core(1, before, VirtualClock(), Kept(), epoch=0)
    core.prepare(1, changed(before, workers={InstanceId("in", 0): 1}), epoch=1)
    core.begin_epoch(1, change=1)
    assert core.cuts is not None
    part = core.cuts.take()
    assert part is not None
    assert not part.ended
    core.close()
