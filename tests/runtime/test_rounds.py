"""How much a round takes from sources: as much as a millisecond is enough for, and its share."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime import core as core_module
from tailrace.runtime.core import Core
from tailrace.runtime.outgoing import Item
from tailrace.sources import unpaced
from tailrace.testing import VirtualClock
from tests.runtime.posts import Kept, core_of, gate_of


def polled(core: Core, source: str, before_round: Callable[[], object] = lambda: None) -> list[int]:
    """What the rounds take from a source, once they have got used to it."""
    counts = next(i for i in core.instances if source in i.counts).counts[source]
    taken = []
    for _ in range(30):
        before = counts.records_in
        before_round()
        assert core.round()
        taken.append(counts.records_in - before)
    return taken[-10:]


class Blocks(tr.Source):
    """Has 600 records at a time, as files and sockets have a block."""

    def open(self, *_: Any, **__: Any) -> tr.Reader:
        return _BlocksReader()


class _BlocksReader(tr.Reader):
    left = 0

    def poll(self, most: int) -> list[int]:
        records = list(range(min(most, self.left or 600)))
        self.left = (self.left or 600) - len(records)
        return records


@pytest.mark.parametrize(
    "cost_ns, least, most", [(0, 1024, 1024), (2_000, 512, 1024), (10**6, 1, 2)]
)
def test_a_round_takes_about_a_millisecond_under_load(cost_ns: int, least: int, most: int) -> None:
    clock = VirtualClock()

    def work(n: int) -> None:
        clock.now_ns += cost_ns

    topology = tr.Topology()
    topology.source(unpaced(abs), name="in").sink(work)
    taken = polled(core_of(topology, (0,), clock), "in")
    assert least <= min(taken) <= max(taken) <= most


def test_a_round_is_kept_short_although_the_source_never_gives_all_it_is_asked_for() -> None:
    clock = VirtualClock()
    cost_ns = 0

    def work(n: int) -> None:
        clock.now_ns += cost_ns

    topology = tr.Topology()
    topology.source(Blocks(), name="in").sink(work)
    core = core_of(topology, (0,), clock)
    assert max(polled(core, "in")) == 600
    cost_ns = 10_000
    assert max(polled(core, "in")) <= 200


def test_what_sending_takes_counts_for_the_round() -> None:
    clock = VirtualClock()

    class Slow(Kept):
        sent = 0

        def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
            for gate, items in parcels:
                for item in items:
                    assert isinstance(item, tuple)
                    clock.now_ns += 10_000 * len(item[2])
                    self.sent += len(item[2])
                core.credit(gate, self.sent, core.limits.window_records)
            return 1

    topology = tr.Topology()
    topology.source(unpaced(abs), name="in").shuffle().sink(abs)
    core = core_of(topology, (0, 1), clock, Slow())
    assert max(polled(core, "in")) <= 200


def test_a_source_gets_its_share_beside_what_other_workers_send() -> None:
    clock = VirtualClock()

    def work(n: int) -> None:
        clock.now_ns += 1000

    topology = tr.Topology()
    here = topology.source(unpaced(abs), name="here")
    there = topology.source(unpaced(abs), name="there")
    here.merge(there).gather().sink(work)
    core = core_of(topology, (0, 1, 0), clock)
    gate = next(gate for gate, sender in core.instance("sink").inlets if sender == 1)

    def others_send() -> None:
        core.deliver(1, [(gate, [(0, 0, list(range(8192)))])], clock(), 1)

    taken = polled(core, "here", others_send)
    assert 64 <= min(taken) <= max(taken) <= 256


@pytest.mark.parametrize("records, rounds", [(1, 1), (64, 1), (65, 2)])
def test_few_records_of_a_source_go_on_in_the_round_that_polls_them(
    records: int, rounds: int
) -> None:
    done: list[int] = []
    topology = tr.Topology()
    stream = topology.source(tr.sources.items(range(records))).shuffle()
    stream.sink(done.append, parallelism=2)  # so that more than 64 are asked for at first
    core = core_of(topology, (0, 0, 0), VirtualClock())
    for _ in range(rounds):
        assert not done
        core.round()
    assert len(done) == records


class Alarm(tr.Operator):
    """Says a second later what it got."""

    def process(self, record: int) -> None:
        self.set_timer(1.0, record)

    def timer(self, tag: int) -> None:
        self.emit(tag)


def lines_of_core(call: Callable[[], object]) -> int:
    """How many lines of the core's own code run in a call."""
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_code.co_filename == core_module.__file__
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def test_a_turn_costs_the_same_however_many_instances_have_nothing_to_do() -> None:
    costs = []
    for parallelism in (4, 100):
        topology = tr.Topology()
        done: list[int] = []
        source = topology.source(tr.sources.items([]), name="in")
        alarms = source.partition_by(lambda n, _: n).process(Alarm(), parallelism=parallelism)
        alarms.gather().sink(done.append)
        clock = VirtualClock()
        core = core_of(topology, (1, *[0] * (parallelism + 1)), clock)
        core.round()

        def turn(core: Core = core) -> tuple[bool, int | None]:
            core.round()
            return core.backlog, core.next_due_ns()

        lines = 0
        for index in (1, 3):
            items: list[Item] = [(0, 0, [index])]
            core.deliver(1, [(gate_of(core, "process", index), items)], clock(), 1)
            lines += lines_of_core(turn)
        assert turn() == (False, clock() + 10**9)
        clock.now_ns += 10**9
        lines += lines_of_core(turn) + lines_of_core(turn)
        assert turn() == (False, None)
        assert sorted(done) == [1, 3]
        costs.append(lines)
    assert costs[0] == costs[1]
