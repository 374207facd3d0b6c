"""Storm's load-aware shuffle (2.x), to compare with: a ring of a thousand slots, laid by weights.

Every period the weight of a receiver whose load is within 0.05 of the lowest grows by 1, to at most
100; that of another falls by 10. Its load is the fill of its queue, or what is gathered for it over
1024 if that is more. What is in the same worker goes before others until its load is above 0.8, and
again below 0.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tailrace.tail.receivers import Receiver

PERIOD_NS = 5_000_000_000
SLOTS = 1000
MOST_WEIGHT = 100
LEAVE, RETURN = 0.8, 0.2
_FINE = 0.05
_GROWS, _FALLS = 1, 10
_PENDING = 1024


class LoadShares:
    """See above."""

    def __init__(self, chance: Random, period_ns: int = PERIOD_NS, *, stays: bool = False) -> None:
        self._chance = chance
        self._period_ns = period_ns
        self._due_ns = 0
        self._stays = stays
        self._here = stays
        self.weights: list[int] = []
        self._slots: list[int] = []
        self._turn = 0

    def choose(self, receivers: Sequence[Receiver], now_ns: int) -> int:
        """The receiver whose slot has its turn."""
        if len(receivers) != len(self.weights):
            self.weights = [MOST_WEIGHT] * len(receivers)
            self._lay(receivers, now_ns)
        elif now_ns >= self._due_ns:
            self._lay(receivers, now_ns)
        self._turn = (self._turn + 1) % len(self._slots)
        return self._slots[self._turn]

    def _lay(self, receivers: Sequence[Receiver], now_ns: int) -> None:
        self._due_ns = now_ns + self._period_ns
        loads = [max(one.fill, min(one.waiting, _PENDING) / _PENDING) for one in receivers]
        scope = self._scope(receivers, loads)
        self.adjust(loads, scope)
        total = sum(self.weights[place] for place in scope)
        slots = [
            place for place in scope for _ in range(SLOTS * self.weights[place] // max(total, 1))
        ] or list(scope)
        while len(slots) < SLOTS:
            slots.append(slots[self._chance.randrange(len(slots))])
        self._chance.shuffle(slots)
        self._slots = slots

    def _scope(self, receivers: Sequence[Receiver], loads: Sequence[float]) -> list[int]:
        """Those that are looked at: all, or those of this worker."""
        everybody = list(range(len(receivers)))
        here = [place for place in everybody if receivers[place].here]
        if not self._stays or not here:
            return everybody
        was_here, scope = self._here, here if self._here else everybody
        average = sum(loads[place] for place in scope) / len(scope)
        self._here = average <= LEAVE if was_here else average < RETURN
        if self._here != was_here:
            self.weights = [MOST_WEIGHT] * len(receivers)
        return here if self._here else everybody

    def adjust(self, loads: Sequence[float], scope: Sequence[int]) -> None:
        """The weights of those in scope, after another period."""
        lowest = min(loads[place] for place in scope)
        for place in scope:
            if loads[place] <= lowest + _FINE:
                self.weights[place] = min(self.weights[place] + _GROWS, MOST_WEIGHT)
            else:
                self.weights[place] = max(self.weights[place] - _FALLS, 0)
