"""Runs in which every promise of flow control is checked at every step."""

import random
from typing import Any

import pytest

import tailrace as tr
from tailrace import testing
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.outlet import Item, Marker


def records_in(items: list[Item]) -> int:
    return sum(len(item[1]) for item in items if not isinstance(item, Marker))


class WatchedCore(Core):
    """A core that looks at its queues with every message. `slow` of ten rounds do nothing."""

    slow = 0
    largest_queue = 0
    largest_gathered = 0
    largest_bytes_used = 0

    def __init__(self, rank: int, *arguments: Any, **options: Any) -> None:
        super().__init__(rank, *arguments, **options)
        self._chance = random.Random(rank)

    def deliver(self, link: int, items: list[Item], sent_ns: int, size_bytes: int = 0) -> None:
        super().deliver(link, items, sent_ns, size_bytes)
        inlet = self._receiver[link].inlets[link]
        queued = inlet.received - inlet.taken
        assert not inlet.ended, "something came after the end"
        assert queued < self.limits.window_records + max(1, records_in(items))
        WatchedCore.largest_queue = max(WatchedCore.largest_queue, queued)

    def round(self) -> bool:
        if self._chance.randrange(10) < self.slow and not self.ended:
            return True
        progress = super().round()
        for instance in self.instances:
            held = {outlet for outlet in instance.outlets if outlet.records >= outlet.most_records}
            assert held == instance.full
            for outlet in instance.outlets:
                assert 0 <= outlet.credit_used <= outlet.sent
                assert bool(outlet.bytes_used) == bool(outlet.sizes) <= bool(outlet.credit_used)
                largest = max(WatchedCore.largest_bytes_used, outlet.bytes_used)
                WatchedCore.largest_bytes_used = largest
                gathered = max(WatchedCore.largest_gathered, outlet.records)
                WatchedCore.largest_gathered = gathered
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
