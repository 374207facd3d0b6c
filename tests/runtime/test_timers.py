"""Timers in virtual time: when they fire, for which key, and what they hand on."""

from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.core import Limits
from tailrace.runtime.exchange import Lane
from tailrace.runtime.step import OperatorFailed
from tailrace.runtime.timers import KeyTimers
from tailrace.testing import VirtualClock, collect, run
from tests.runtime.posts import Kept, core_of
from tests.runtime.ticks import Ticks
from tests.runtime.timed import Bench

SECOND_NS = 1_000_000_000


class Later(tr.Operator):
    """Each record again after so many seconds, with the time."""

    def process(self, record: float) -> None:
        self.set_timer(record, record)

    def timer(self, tag: float) -> None:
        self.emit((tag, self.instance.clock_ns() / 1e9))


def test_timers_fire_in_order_at_their_time() -> None:
    topology = tr.Topology()
    results = collect(topology.source(Ticks([[3.0, 1.0, 2.0], []], gap_s=10)).process(Later()))
    report = run(topology)
    assert results == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert report.virtual_s == 10


def test_a_timer_has_the_key_and_state_of_its_record() -> None:
    class Remember(tr.Operator):
        def process(self, record: tuple[str, int]) -> None:
            self.state = (self.state or 0) + record[1]
            self.set_timer(1, "due")

        def timer(self, tag: str) -> None:
            self.emit((self.key, self.state, tag))
            self.state = None

    records = [("a", 1), ("b", 10), ("a", 2)]
    topology = tr.Topology()
    stream = topology.source(Ticks([records, []], gap_s=5)).key_by(lambda record: record[0])
    results = collect(stream.process(Remember()))
    run(topology)
    assert results == [("a", 3, "due"), ("b", 10, "due"), ("a", None, "due")]


def test_a_timer_may_be_set_when_the_operator_opens_and_set_itself_again() -> None:
    class Heart(tr.Operator):
        def open(self) -> None:
            self.set_timer(1)

        def process(self, record: Any) -> None:
            pass

        def timer(self, tag: Any) -> None:
            self.emit(self.instance.clock_ns() / 1e9)
            self.set_timer(1)

    topology = tr.Topology()
    results = collect(topology.source(Ticks([[], []], gap_s=3.5)).process(Heart()))
    run(topology)
    assert results == [1.0, 2.0, 3.0]


def test_a_timer_that_sets_itself_at_once_does_not_keep_others_from_running() -> None:
    class Eager(tr.Operator):
        fired = 0

        def process(self, record: int) -> None:
            self.set_timer(0)

        def timer(self, tag: Any) -> None:
            self.fired += 1
            self.emit(self.fired)
            if self.fired < 5:
                self.set_timer(0)

    topology = tr.Topology()
    stream = topology.source(Ticks([[1], []], gap_s=1)).process(Eager(), name="eager")
    results = collect(stream)
    core = core_of(topology, (0,), VirtualClock())
    core.round()
    for fired in range(1, 6):
        core.round()
        assert results == list(range(1, fired + 1))
    core.close()


def test_timers_that_are_left_when_the_input_ends_do_not_fire() -> None:
    topology = tr.Topology()
    slow = topology.source(Ticks([[], [0]], gap_s=100), name="slow")
    results = collect(topology.source([50.0], name="short").process(Later()).merge(slow))
    report = run(topology)
    assert results == [0]
    assert report.sent == report.received


def test_what_a_timer_hands_on_counts_its_latency_from_when_it_was_due() -> None:
    topology = tr.Topology()
    stream = topology.source(Ticks([[7.0], []], gap_s=10)).process(Later())
    collect(stream)
    clock = VirtualClock()
    core = core_of(topology, (0,), clock)
    core.round()
    clock.now_ns = 7 * SECOND_NS + 1000
    core.round()
    assert core.instances[0].latency.percentile_ns(100) == pytest.approx(1000, rel=0.016)
    core.close()


@pytest.mark.parametrize("delay_s", [float("nan"), float("inf"), "1 s", None])
def test_a_delay_that_is_no_time_is_refused_with_its_value(delay_s: Any) -> None:
    class Sets(tr.Operator):
        def process(self, record: Any) -> None:
            self.set_timer(delay_s)

    topology = tr.Topology()
    collect(topology.source([1]).process(Sets(), name="op"))
    message = f"'op' failed on 1: .*got a delay of {delay_s!r}; it must be a finite number"
    with pytest.raises(tr.OperatorFailed, match=message):
        run(topology)


class FailsLater(tr.Operator):
    def __init__(self, moment: str) -> None:
        self.moment = moment

    def process(self, record: Any) -> None:
        self.state = record
        self.set_timer(0.5)

    def timer(self, tag: Any) -> None:
        if self.moment == "timer":
            raise ValueError("wrong")

    def finish_key(self) -> None:
        if self.moment == "finish":
            raise ValueError("wrong")


@pytest.mark.parametrize("moment", ["timer", "finish"])
def test_what_timers_and_the_end_of_keys_raise_fails_the_job_by_any_policy(moment: str) -> None:
    topology = tr.Topology()
    numbers = topology.source(tr.sources.rate(1, count=3)).key_by()
    collect(numbers.process(FailsLater(moment), name="op", on_error="skip"))
    with pytest.raises(tr.OperatorFailed, match=f"'op' failed in {moment}: ValueError"):
        run(topology)


def test_timers_wait_while_their_receivers_are_full() -> None:
    class Flood(tr.Operator):
        def open(self) -> None:
            self.set_timer(1)

        def process(self, record: Any) -> None:
            pass

        def timer(self, tag: Any) -> None:
            self.emit(1)
            self.set_timer(1)

    topology = tr.Topology()
    stream = topology.source(Ticks([[], []], gap_s=1000)).process(Flood())
    collect(stream.shuffle())
    clock = VirtualClock()
    limits = Limits(gathered_records=3)
    post = Kept()
    post.room = False
    core = core_of(topology, (0, 1), clock, post, limits)
    core.round()
    for second in range(1, 100):
        clock.now_ns = second * SECOND_NS
        core.round()
    (lane,) = core.instances[0].full
    assert isinstance(lane, Lane)
    assert lane.records == 3
    assert core.next_due_ns() is None, "a congested instance is no reason to look again"
    core.close()


def test_a_timer_that_raises_names_its_operator() -> None:
    class Broken(Later):
        def timer(self, tag: float) -> None:
            raise ValueError("too late")

    topology = tr.Topology()
    collect(topology.source(Ticks([[1.0], []], gap_s=5)).process(Broken(), name="op"))
    with pytest.raises(OperatorFailed, match="operator 'op' failed in timer: ValueError"):
        run(topology)


def test_a_timer_that_was_cancelled_is_not_called_and_others_are() -> None:
    class Quiet(tr.Operator):
        def process(self, record: tuple[str, str]) -> None:
            if record[1] == "stop":
                self.cancel_timer("alarm")
            else:
                self.set_timer(2, "alarm")
                self.set_timer(3, "other")

        def timer(self, tag: str) -> None:
            self.emit((self.key, tag))

    ticks = [[("a", "go"), ("b", "go")], [("a", "stop")], [], [], []]
    topology = tr.Topology()
    stream = topology.source(Ticks(ticks, gap_s=1)).key_by(lambda record: record[0])
    results = collect(stream.process(Quiet()))
    run(topology)
    assert results == [("b", "alarm"), ("a", "other"), ("b", "other")]


def test_setting_and_cancelling_again_and_again_takes_no_room() -> None:
    bench = Bench()
    timers = KeyTimers(bench.context())
    for n in range(10_000):
        timers.cancel("a", "alarm")
        timers.set("a", 1_000_000 + n, "alarm")
        timers.set(n, -1, "past")
        timers.arm()
        assert [key for _, key, _ in timers.due()] == [n]
        assert len(timers._heap) <= 100
    assert timers.of("a") == ((1_009_999, "alarm"),)
    assert timers.keys() == ["a"]


class Alarm(tr.Operator):
    """Holds the first reading of a key for 30 seconds."""

    def process(self, reading: tuple[str, int]) -> None:
        if self.state is None:
            self.state = reading
            self.set_timer(30, "quiet")

    def timer(self, tag: str) -> None:
        self.emit((self.key, self.state, "timer"))
        self.state = None

    def finish_key(self) -> None:
        self.emit((self.key, self.state, "end"))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_waits_behind_a_timer_can_come_out_at_the_end_of_the_input(parallelism: int) -> None:
    topology = tr.Topology()
    readings = topology.source(Ticks([[("a", 1)], [("b", 2)], [("b", 3), ("c", 4)]], gap_s=20))
    alarms = readings.key_by(lambda reading: reading[0]).process(Alarm(), parallelism=parallelism)
    results = collect(alarms)
    run(topology, workers=2)
    assert sorted(results) == [
        ("a", ("a", 1), "timer"),
        ("b", ("b", 2), "end"),
        ("c", ("c", 4), "end"),
    ]


def test_a_key_with_nothing_but_a_timer_has_a_last_call_too() -> None:
    class Later(tr.Operator):
        def process(self, record: str) -> None:
            if record != "quiet":
                self.set_timer(60)

        def finish_key(self) -> None:
            self.emit((self.key, self.state))

        def finish(self) -> None:
            self.emit(("end", self.key))

    topology = tr.Topology()
    results = collect(topology.source(["a", "quiet", "b"]).key_by().process(Later()))
    run(topology)
    assert results == [("a", None), ("b", None), ("end", None)]
