"""Du's latency-based load balancing (thesis, algorithm 2), as published: to compare with.

Every period the latency of each receiver in it is aged into what is known. Receivers are sorted by
that; the slowest gives one percent of the traffic to the fastest, the second slowest to the second
fastest, and so on until a pair differs by less than the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tailrace.tail.receivers import Receiver

PERIOD_NS = 5_000_000_000
ALPHA = 0.5
THRESHOLD = 1.2
UNITS = 100


class LatencyShares:
    """See above. Latencies are those that the sender sees: from sending until it hears of it."""

    def __init__(self, chance: Random, period_ns: int = PERIOD_NS) -> None:
        self._chance = chance
        self._period_ns = period_ns
        self._due_ns: int | None = None
        self.units: list[int] = []
        """Of the traffic, for each receiver; a hundred in all."""
        self._aged_ns: list[float] = []
        self._before: list[tuple[int, int]] = []
        self._slots: list[int] = []
        self._turn = 0

    def choose(self, receivers: Sequence[Receiver], now_ns: int) -> int:
        """The receiver whose slot has its turn."""
        if len(receivers) != len(self.units):
            self._begin(receivers, now_ns)
        elif self._due_ns is not None and now_ns >= self._due_ns:
            self._due_ns = now_ns + self._period_ns
            self.adjust(self._latencies(receivers))
        self._turn = (self._turn + 1) % len(self._slots)
        return self._slots[self._turn]

    def _begin(self, receivers: Sequence[Receiver], now_ns: int) -> None:
        count = len(receivers)
        units = max(UNITS, count)  # everybody has one
        self.units = [
            units * (place + 1) // count - units * place // count for place in range(count)
        ]
        self._aged_ns = [0.0] * count
        self._before = [(one.under_way_ns, one.taken) for one in receivers]
        self._due_ns = now_ns + self._period_ns
        self._lay_slots()

    def _latencies(self, receivers: Sequence[Receiver]) -> list[float | None]:
        now = [(one.under_way_ns, one.taken) for one in receivers]
        before, self._before = self._before, now
        return [
            (under_way - under_way_before) / (taken - taken_before)
            if taken > taken_before
            else None
            for (under_way, taken), (under_way_before, taken_before) in zip(
                now, before, strict=True
            )
        ]

    def adjust(self, latencies_ns: Sequence[float | None]) -> None:
        """Lines 3 to 15: the latencies of the last period are known; None: nothing was done."""
        aged = self._aged_ns
        for place, latency_ns in enumerate(latencies_ns):
            if latency_ns is not None:
                aged[place] = ALPHA * latency_ns + (1 - ALPHA) * aged[place]
        order = sorted(range(len(aged)), key=lambda place: aged[place])
        for k in range(len(order) // 2):
            slow, fast = order[-1 - k], order[k]
            if not aged[fast] or aged[slow] / aged[fast] <= THRESHOLD:
                break
            if self.units[slow]:
                self.units[slow] -= 1
                self.units[fast] += 1
        self._lay_slots()

    def _lay_slots(self) -> None:
        self._slots = [place for place, units in enumerate(self.units) for _ in range(units)]
        self._chance.shuffle(self._slots)
