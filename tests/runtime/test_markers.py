"""Watermarks and end markers: in order with the records, and the lowest of all senders."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace import Topology
from tailrace._arguments import Options
from tailrace.graph.model import MAIN
from tailrace.runtime.core import Limits
from tailrace.runtime.exchange import Stamp
from tailrace.runtime.instance import Context
from tailrace.runtime.markers import BEGINNING, IDLE, End, Marker, Watermark, add_marker
from tailrace.runtime.outgoing import Item
from tailrace.runtime.step import Step
from tailrace.runtime.times import SECOND_NS
from tailrace.testing import VirtualClock, collect, run
from tests.runtime.posts import Kept, core_of
from tests.runtime.test_flow_control import lane_of
from tests.runtime.ticks import Ticks

Heard = list[tuple[str, Any]]


END = End()


def watermark(time: int) -> Marker:
    return Watermark(time, 0)


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

    def advance(self, watermark: int) -> None:
        self._heard.append(("watermark", watermark))

    def finish(self) -> None:
        self._heard.append(("finish", None))


def listen(stream: tr.Stream, heard: Heard, **options: Any) -> tr.Stream:
    return stream._then("listen", Listener(heard), None, Options(**options))


class Receiver:
    """A worker with one listener, that reads from so many other workers; and what it sends."""

    def __init__(self, senders: int, heard: Heard) -> None:
        topology = Topology()
        listener = listen(topology.source([], parallelism=senders).shuffle(), heard, parallelism=1)
        listener.shuffle().sink(print, parallelism=1)
        self.post = Kept()
        placement = (*range(1, senders + 1), 0, 1)
        self.core = core_of(topology, placement, VirtualClock(), self.post)
        self.round = self.core.round

    def deliver(self, sender: int, items: list[Item]) -> None:
        self.core.deliver(sender + 1, [(0, items)], 0)


def test_time_is_that_of_the_slowest_sender() -> None:
    heard: Heard = []
    core = Receiver(2, heard)
    for link, time in [(0, 10), (1, 5), (1, 7), (0, 20), (1, 30)]:
        core.deliver(link, [watermark(time)])
        core.round()
    assert heard == [("watermark", time) for time in (5, 7, 20)]
    times = [item.time_ns for item in core.post.items if isinstance(item, Watermark)]
    assert times == [5, 7, 20]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=60), st.data())
def test_time_is_the_lowest_of_all_senders_however_they_interleave(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    heard: Heard = []
    core = Receiver(3, heard)
    newest = [-1, -1, -1]
    for link, step in steps:
        newest[link] += step
        core.deliver(link, [watermark(newest[link])])
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
    core = Receiver(2, heard)
    core.deliver(0, [watermark(10)])
    core.deliver(1, [watermark(3), END])
    core.round()
    assert heard == [("watermark", 3), ("watermark", 10)]


def test_a_sender_that_is_idle_holds_nobody_back_until_it_is_not() -> None:
    heard: Heard = []
    core = Receiver(2, heard)
    core.deliver(0, [watermark(10)])
    core.deliver(1, [watermark(3)])
    core.round()
    core.deliver(1, [watermark(IDLE)])
    core.round()
    core.deliver(1, [watermark(11)])
    core.deliver(0, [watermark(20)])
    core.round()
    assert [time for _, time in heard] == [3, 10, 11]


def test_watermarks_stay_behind_the_records_they_follow() -> None:
    heard: Heard = []
    core = Receiver(1, heard)
    core.deliver(0, [(0, 0, ["a"]), watermark(1), (0, 0, ["b", "c"]), watermark(2)])
    core.round()
    assert heard == [
        ("record", "a"),
        ("watermark", 1),
        ("record", "b"),
        ("record", "c"),
        ("watermark", 2),
    ]
    kinds = [type(item) if isinstance(item, Marker) else item[2] for item in core.post.items]
    assert kinds == [["a"], Watermark, ["b", "c"], Watermark]


def test_watermarks_alone_take_no_room_while_the_receiver_waits() -> None:
    heard: Heard = []
    core = Receiver(1, heard)
    core.deliver(0, [(0, 0, ["a"])])
    for time in range(1000):
        core.deliver(0, [watermark(time)])
    (inlet,) = core.core.instances[0].queue.order
    ((queued, *_),) = inlet.messages
    assert len(queued) == 2
    core.round()
    assert heard == [("record", "a"), ("watermark", 999)]


def test_watermarks_alone_take_no_room_at_the_sender() -> None:
    lane = lane_of(Limits())
    for time in range(1000):
        lane.mark(watermark(time))
    assert lane.items == [watermark(999)]
    lane.mark(END)
    assert lane.items == [watermark(999), END]


def test_a_marker_is_never_overtaken_by_records_of_the_same_moment() -> None:
    lane, stamp = lane_of(Limits()), Stamp()
    stamp.emitted_ns = 5
    lane.put([1], stamp)
    lane.mark(watermark(1))
    lane.put([2], stamp)
    lane.put([3], stamp)
    assert lane.take() == [(5, 0, [1]), watermark(1), (5, 0, [2, 3])]


def test_records_of_one_moment_stay_in_order_whatever_their_origins() -> None:
    lane, stamp = lane_of(Limits()), Stamp()
    stamp.emitted_ns, stamp.now_ns = 1_000, 1_000_000
    for record, origin in enumerate([1, 2, 2, 0, 1]):
        stamp.origin = origin
        lane.put([record], stamp)
        stamp.emitted_ns += record == 1  # and a little later
    assert [record for _, _, run in lane.take() for record in run] == [0, 1, 2, 3, 4]


def test_idleness_does_not_hide_the_watermark_before_it() -> None:
    items: list[Item] = [watermark(4)]
    add_marker(items, watermark(IDLE))
    assert items == [watermark(4), watermark(IDLE)]
    add_marker(items, watermark(6))
    assert items == [watermark(6)]


def test_an_instance_ends_when_all_its_senders_have_and_says_so_once() -> None:
    heard: Heard = []
    core = Receiver(3, heard)
    for link in range(3):
        assert not core.core.ended
        core.deliver(link, [(0, 0, [link]), END])
        core.round()
    core.round()  # what was put out is sent before the end is
    assert heard == [("record", 0), ("record", 1), ("record", 2), ("finish", None)]
    markers = [one for one in core.post.items if isinstance(one, Marker)]
    assert [type(marker) for marker in markers] == [End]
    assert core.core.ended


def test_what_comes_out_at_the_end_counts_its_latency_from_the_end_of_the_last_source() -> None:
    topology = Topology()
    numbers = topology.source([], parallelism=2).key_by()
    totals = numbers.fold(lambda total, n: (total or 0) + n, parallelism=1)
    totals.sink(print, name="beside")
    totals.shuffle().sink(print, name="elsewhere")
    clock, post = VirtualClock(), Kept()
    core = core_of(topology, (1, 2, 0, 1), clock, post)
    core.deliver(1, [(0, [(1000, 0, [7]), End(2000)])], 0)
    core.round()
    core.deliver(2, [(0, [End(5000)])], 0)
    clock.now_ns = 9000
    core.round()
    core.round()
    assert post.items == [(5000, 0, [(7, 7)]), End(5000)]
    assert core.instances[0].latency.percentile_ns(100) == pytest.approx(4000, rel=0.016)
    core.close()


def test_a_worker_has_not_ended_while_something_waits_to_be_sent() -> None:
    topology = Topology()
    topology.source([1, 2]).shuffle().sink(print)
    post = Kept()
    post.room = False
    core = core_of(topology, (0, 1), VirtualClock(), post)
    for _ in range(5):
        core.round()
    assert core.instances[0].ending
    assert not core.ended
    post.room = True
    core.round()
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
    assert ("watermark", 3 * SECOND_NS) in left
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
            newest = value / SECOND_NS
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
    (inlet,) = Receiver(1, []).core.instances[0].inlets.values()
    assert inlet.watermark == BEGINNING


def test_a_marker_of_an_unknown_type_is_refused_and_does_not_count_as_the_end() -> None:
    class Novelty(Marker):
        pass

    core = Receiver(1, [])
    core.deliver(0, [Novelty()])
    with pytest.raises(TypeError, match="unknown type Novelty"):
        core.round()
    assert not core.core.instances[0].ending
