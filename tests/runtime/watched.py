"""Runs in which every promise of flow control is checked at every step."""

import random
from typing import Any

import pytest

import tailrace as tr
from tailrace import testing
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.exchange import Lane
from tailrace.runtime.markers import Marker
from tailrace.runtime.outgoing import Item


def records_in(items: list[Item]) -> int:
    return sum(len(item[2]) for item in items if not isinstance(item, Marker))


class WatchedCore(Core):
    """A core that looks at its queues with every message. `slow` of ten rounds do nothing."""

    slow = 0
    largest_queue = 0
    largest_gathered = 0
    largest_bytes_used = 0

    def __init__(self, rank: int, *arguments: Any, **options: Any) -> None:
        super().__init__(rank, *arguments, **options)
        self._chance = random.Random(rank)

    def deliver(
        self,
        sender: int,
        parcels: list[tuple[int, list[Item]]],
        sent_ns: int,
        size_bytes: int = 0,
    ) -> None:
        super().deliver(sender, parcels, sent_ns, size_bytes)
        for gate, items in parcels:
            inlet = self.site.inlets[gate, sender]
            assert not inlet.ended, "something came after the end"
            assert inlet.queued < self.limits.window_records + max(1, records_in(items))
            WatchedCore.largest_queue = max(WatchedCore.largest_queue, inlet.queued)

    def round(self, poll: bool = True) -> bool:
        if self._chance.randrange(10) < self.slow and not self.ended:
            return True
        progress = super().round(poll)
        for instance in self.instances:
            for one in instance.full:
                assert not isinstance(one, Lane) or one.records >= one.most_records
        for lane in self.site.lanes.values():
            assert 0 <= lane.credit_used <= lane.sent
            assert bool(lane.bytes_used) <= bool(lane.credit_used)
            largest = max(WatchedCore.largest_bytes_used, lane.bytes_used)
            WatchedCore.largest_bytes_used = largest
            WatchedCore.largest_gathered = max(WatchedCore.largest_gathered, lane.records)
        return progress


def watched_run(
    topology: tr.Topology, *, slow: int = 0, limits: Limits, **options: Any
) -> testing.Report:
    """`testing.run` with watched cores, and a look at the audit in the end."""
    WatchedCore.slow = slow
    WatchedCore.largest_queue = WatchedCore.largest_gathered = WatchedCore.largest_bytes_used = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "Core", WatchedCore)
        report = testing.run(topology, limits=limits, **options)
    assert report.sent == report.received
    return report
