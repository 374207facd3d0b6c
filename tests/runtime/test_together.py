"""What has come for an instance is processed together, as far as that falsifies no latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.wiring import wire
from tailrace.runtime.core import Core
from tailrace.runtime.outgoing import Item
from tailrace.runtime.sink import Sink
from tailrace.testing import VirtualClock
from tests.runtime.posts import core_of, gate_of

US, MS = 1_000, 1_000_000
NOW_NS = 1_000 * MS
HERE, THERE = 0, 1


class Batches(Sink):
    """Keeps what it was given at a time."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def write(self, records: Iterator[Any]) -> None:
        self.batches.append(list(records))


class Receiver:
    """A core with a sink, and records that come from another worker, each on its own."""

    def __init__(self) -> None:
        self.sink = Batches()
        self.clock = VirtualClock(NOW_NS)
        topology = tr.Topology()
        topology.source([]).gather().sink(self.sink, name="sink")
        self.core: Core = core_of(topology, (THERE, HERE), self.clock)

    def receive(self, *ages_ns: int) -> list[list[int]]:
        """Which of them were processed together, by their place."""
        gate = gate_of(self.core, "sink")
        for place, age_ns in enumerate(ages_ns):
            items: list[Item] = [(NOW_NS - age_ns, 0, [place])]
            self.core.deliver(THERE, [(gate, items)], NOW_NS, 10)
        while self.core.round():
            pass
        return self.sink.batches

    def percentile_ms(self, percent: float) -> float:
        return self.core.instance("sink").latency.percentile_ns(percent) / MS


def test_what_was_emitted_at_about_the_same_time_is_one_batch() -> None:
    assert Receiver().receive(10 * MS + 3 * US, 10 * MS + US, 10 * MS) == [[0, 1, 2]]


def test_how_near_is_near_depends_on_the_age() -> None:
    # A microsecond is nothing to a latency of 10 ms, and a tenth of one of 10 us.
    assert Receiver().receive(11 * US, 10 * US) == [[0], [1]]
    assert Receiver().receive(11 * MS, 10 * MS) == [[0], [1]]


def test_latencies_of_what_is_processed_together_are_true_to_a_bucket() -> None:
    receiver = Receiver()
    ages_ns = [20 * MS - place * 100 * US for place in range(101)]  # 20 down to 10 ms
    batches = receiver.receive(*ages_ns)
    assert 5 < len(batches) < 60  # together, and yet apart
    for percent in (1, 25, 50, 75, 100):
        exact_ms = sorted(ages_ns)[max(round(101 * percent / 100) - 1, 0)] / MS
        assert receiver.percentile_ms(percent) == pytest.approx(exact_ms, rel=0.06)


def test_how_long_records_wait_is_known_by_link() -> None:
    receiver = Receiver()
    gate = gate_of(receiver.core, "sink")
    receiver.core.deliver(THERE, [(gate, [(NOW_NS, 0, ["a", "b"])])], NOW_NS, 10)
    receiver.clock.now_ns += 5 * MS
    receiver.core.round()
    waits = receiver.core.counting.waits()
    assert [*waits.gates] == [gate]
    assert [*waits.senders] == [THERE]
    assert [*waits.records] == [2]
    assert [*waits.waited_ns] == [2 * 5 * MS]


def test_a_worker_builds_its_own_links_and_no_others() -> None:
    """Of a stream between 300 and 300 instances on as many workers: not 90,000."""
    many = 300
    topology = tr.Topology()
    numbers = topology.source([], parallelism=many)
    numbers.key_by().scan(max, name="keep", parallelism=many).sink(print)
    count = wire(topology.graph).instances
    core = core_of(topology, tuple(place % many for place in range(count)))
    assert len(core.instances) == 2
    assert len(core.site.lanes) == many  # one to each receiver
    assert len(core.site.inlets) == many  # one from each worker
