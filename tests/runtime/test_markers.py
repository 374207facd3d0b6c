"""Watermarks and end markers: in order with the records, and the lowest of all senders."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace import Topology
from tailrace.graph.model import MAIN
from tailrace.graph.wiring import wire
from tailrace.runtime.core import DEFAULT_LIMITS, Core, Limits
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.instance import Context
from tailrace.runtime.outlet import END, IDLE, WATERMARK, Inlet, Item, Marker, Outlet, add_marker
from tailrace.runtime.step import Step
from tailrace.testing import VirtualClock, collect, run
from tests.runtime.ticks import Ticks

Heard = list[tuple[str, Any]]


def watermark(time: float) -> Marker:
    return Marker(WATERMARK, (time, 0))


class Listener:
    """Logic that notes all it hears and hands records on."""

    def __init__(self, heard: Heard) -> None:
        self.heard = heard

    def start(self, context: Context) -> Step:
        return _ListenerStep(self.heard, context.put(MAIN))


class _ListenerStep(Step):
    def __init__(self, heard: Heard, put: Callable[[list[Any]], None]) -> None:
        self._heard = heard
        self._put = put

    def process(self, records: Any, port: int) -> None:
        taken = list(records)
        self._heard += [("record", record) for record in taken]
        self._put(taken)

    def advance(self, watermark: float) -> None:
        self._heard.append(("watermark", watermark))

    def finish(self) -> None:
        self._heard.append(("finish", None))


def listen(stream: tr.Stream, heard: Heard, **options: Any) -> tr.Stream:
    return stream._then("listen", Listener(heard), None, options)


def receiver(senders: int, heard: Heard) -> tuple[Core, list[tuple[int, list[Item]]]]:
    """A worker with one listener, that reads from so many on another worker; and what it sends."""
    topology = Topology()
    listener = listen(topology.source([], parallelism=senders).shuffle(), heard, parallelism=1)
    listener.shuffle().sink(print, parallelism=1)
    wiring = wire(topology.graph)
    sent: list[tuple[int, list[Item]]] = []

    def send(peer: int, link: int, items: list[Item]) -> bool:
        sent.append((link, list(items)))
        return True

    placement = (*[1] * senders, 0, 1)
    return Core(0, wiring, placement, VirtualClock(), send, lambda *_: None), sent


def test_time_is_that_of_the_slowest_sender() -> None:
    heard: Heard = []
    core, sent = receiver(2, heard)
    for link, time in [(0, 10.0), (1, 5.0), (1, 7.0), (0, 20.0), (1, 30.0)]:
        core.deliver(link, [watermark(time)], 0)
        core.round()
    assert heard == [("watermark", time) for time in (5.0, 7.0, 20.0)]
    times = [item.value[0] for _, items in sent for item in items if isinstance(item, Marker)]
    assert times == [5.0, 7.0, 20.0]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=60), st.data())
def test_time_is_the_lowest_of_all_senders_however_they_interleave(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    heard: Heard = []
    core, _ = receiver(3, heard)
    newest = [-1.0, -1.0, -1.0]
    for link, step in steps:
        newest[link] += step
        core.deliver(link, [watermark(newest[link])], 0)
        if data.draw(st.booleans()):
            core.round()
    while core.round():
        pass
    times = [time for kind, time in heard if kind == "watermark"]
    assert times == sorted(set(times))
    if all(any(link == one for link, _ in steps) for one in range(3)):
        assert times[-1] == min(newest)
    else:
        assert times == []


def test_a_sender_that_ended_holds_nobody_back() -> None:
    heard: Heard = []
    core, _ = receiver(2, heard)
    core.deliver(0, [watermark(10.0)], 0)
    core.deliver(1, [watermark(3.0), END], 0)
    core.round()
    assert heard == [("watermark", 3.0), ("watermark", 10.0)]


def test_a_sender_that_is_idle_holds_nobody_back_until_it_is_not() -> None:
    heard: Heard = []
    core, _ = receiver(2, heard)
    core.deliver(0, [watermark(10.0)], 0)
    core.deliver(1, [watermark(3.0)], 0)
    core.round()
    core.deliver(1, [watermark(IDLE)], 0)
    core.round()
    core.deliver(1, [watermark(11.0)], 0)
    core.deliver(0, [watermark(20.0)], 0)
    core.round()
    assert [time for _, time in heard] == [3.0, 10.0, 11.0]


def test_watermarks_stay_behind_the_records_they_follow() -> None:
    heard: Heard = []
    core, sent = receiver(1, heard)
    core.deliver(0, [(0, ["a"]), watermark(1.0), (0, ["b", "c"]), watermark(2.0)], 0)
    core.round()
    assert heard == [
        ("record", "a"),
        ("watermark", 1.0),
        ("record", "b"),
        ("record", "c"),
        ("watermark", 2.0),
    ]
    ((_, items),) = sent
    kinds = [item.kind if isinstance(item, Marker) else item[1] for item in items]
    assert kinds == [["a"], "watermark", ["b", "c"], "watermark"]


def test_watermarks_alone_take_no_room_while_the_receiver_waits() -> None:
    heard: Heard = []
    core, _ = receiver(1, heard)
    core.deliver(0, [(0, ["a"])], 0)
    for time in range(1000):
        core.deliver(0, [watermark(float(time))], 0)
    (queued,) = core.instances[0].queue
    assert len(queued[1]) == 2
    core.round()
    assert heard == [("record", "a"), ("watermark", 999.0)]


def test_watermarks_alone_take_no_room_at_the_sender() -> None:
    outlet = Outlet(0, 0, DEFAULT_LIMITS, set())
    for time in range(1000):
        outlet.mark(watermark(float(time)))
    assert outlet.items == [watermark(999.0)]
    outlet.mark(END)
    assert outlet.items == [watermark(999.0), END]


def test_a_marker_is_never_overtaken_by_records_of_the_same_moment() -> None:
    outlet = Outlet(0, 0, DEFAULT_LIMITS, set())
    outlet.add([1], 5)
    outlet.mark(watermark(1.0))
    outlet.add([2], 5)
    outlet.add([3], 5)
    assert outlet.take() == [(5, [1]), watermark(1.0), (5, [2, 3])]


def test_idleness_does_not_hide_the_watermark_before_it() -> None:
    items: list[Item] = [watermark(4.0)]
    add_marker(items, watermark(IDLE))
    assert items == [watermark(4.0), watermark(IDLE)]
    add_marker(items, watermark(6.0))
    assert items == [watermark(6.0)]


def test_an_instance_ends_when_all_its_senders_have_and_says_so_once() -> None:
    heard: Heard = []
    core, sent = receiver(3, heard)
    for link in range(3):
        assert not core.ended
        core.deliver(link, [(0, [link]), END], 0)
        core.round()
    assert heard == [("record", 0), ("record", 1), ("record", 2), ("finish", None)]
    markers = [one for _, items in sent for one in items if isinstance(one, Marker)]
    assert [marker.kind for marker in markers] == [END.kind]
    assert core.ended


def test_what_comes_out_at_the_end_counts_its_latency_from_the_end_of_the_last_source() -> None:
    topology = Topology()
    numbers = topology.source([], parallelism=2).key_by()
    totals = numbers.fold(lambda total, n: (total or 0) + n, parallelism=1)
    totals.sink(print, name="beside")
    totals.shuffle().sink(print, name="elsewhere")
    sent: list[Item] = []

    def send(peer: int, link: int, items: list[Item]) -> bool:
        sent.extend(items)
        return True

    clock = VirtualClock()
    core = Core(0, wire(topology.graph), (1, 1, 0, 1), clock, send, lambda *_: None)
    core.deliver(0, [(1000, [7]), replace(END, value=2000)], 0)
    core.round()
    core.deliver(1, [replace(END, value=5000)], 0)
    clock.now_ns = 9000
    core.round()
    assert sent == [(5000, [(7, 7)]), replace(END, value=5000)]
    assert core.instances[0].latency.percentile_ns(100) == pytest.approx(4000, rel=0.016)
    core.close()


def test_a_worker_has_not_ended_while_something_waits_to_be_sent() -> None:
    topology = Topology()
    topology.source([1, 2]).shuffle().sink(print)
    room: list[bool] = []
    core = Core(
        0, wire(topology.graph), (0, 1), VirtualClock(), lambda *_: bool(room), lambda *_: None
    )
    for _ in range(5):
        core.round()
    assert core.instances[0].ended
    assert not core.ended
    room.append(True)
    core.round()
    assert core.ended


def test_event_time_of_one_branch_is_not_heard_in_the_other() -> None:
    left: Heard = []
    right: Heard = []
    topology = Topology()
    stream = topology.source([1, 2, 3])
    listen(stream.event_time(float, max_delay_s=0, name="clock"), left, name="left").sink(
        print_nothing
    )
    listen(stream, right, name="right").sink(print_nothing)
    run(topology)
    assert ("watermark", 3.0) in left
    assert all(kind != "watermark" for kind, _ in right)


def print_nothing(record: Any) -> None:
    pass


@pytest.mark.parametrize("seed", range(20))
def test_watermarks_cross_workers_under_pressure(seed: int) -> None:
    heard: Heard = []
    topology = Topology()
    records = [float(n) for n in range(60)]
    stream = topology.source(records, parallelism=2).event_time(float, max_delay_s=0)
    collect(listen(stream.shuffle(), heard, parallelism=1))
    limits = Limits(window_records=1, gathered_records=1, poll_records=2, round_messages=1)
    run(topology, workers=3, seed=seed, limits=limits, channel_messages=1)
    times = [time for kind, time in heard if kind == "watermark"]
    assert times == sorted(set(times))
    newest = float("-inf")
    for kind, value in heard:
        if kind == "watermark":
            newest = value
        elif kind == "record":
            assert value >= newest, "a record came behind a watermark that excludes it"
    assert heard[-1] == ("finish", None)
    assert sorted(value for kind, value in heard if kind == "record") == records


def test_the_end_of_one_branch_does_not_end_the_other() -> None:
    topology = Topology()
    short = topology.source([1], name="short")
    long = topology.source(Ticks([[2], [3], [4]], gap_s=60), name="long")
    results = collect(short.merge(long).shuffle().map(abs, parallelism=2))
    run(topology, workers=2)
    assert sorted(results) == [1, 2, 3, 4]


def test_an_inlet_starts_before_all_time() -> None:
    inlet = Inlet(0, 0, 0, Histogram(), Histogram())
    assert inlet.watermark == float("-inf")
