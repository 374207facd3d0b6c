"""Time that a virtual machine's host gave to others while a round ran.

A stall of the host makes a p99 of 1 ms into one of 80, and says nothing about the contestant. So
the steal column of /proc/stat is read around each round; a round that lost more than `MOST_PERCENT`
is run again, a few times at most, and counted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

MOST_PERCENT = 0.5
MOST_REPEATS = 2
"""Of one round."""
T = TypeVar("T")
Ticks = tuple[int, int]
"""What was stolen, and all the time of all cores, since the machine started."""


def steal_ticks(stat: Path = Path("/proc/stat")) -> Ticks:
    """As of now."""
    ticks = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def stolen_percent(before: Ticks, after: Ticks) -> float:
    """The stolen part of the time between the two.

    >>> stolen_percent((10, 1000), (13, 1200))
    1.5
    """
    return 100 * (after[0] - before[0]) / max(after[1] - before[1], 1)


class Rounds:
    """Runs rounds, those again from which time was stolen, and counts these."""

    def __init__(self, ticks: Callable[[], Ticks] = steal_ticks) -> None:
        self._ticks = ticks
        self.stolen = 0
        """Rounds from which time was stolen, the repeated ones included."""

    def run(
        self,
        step: Callable[[], T],
        discard: Callable[[T], None] = lambda outcome: None,
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> T:
        """What the step finds, in a round without theft or in its last one.

        `discard` gets what was found in rounds that do not count. `may_repeat` is asked before
        each repetition: there may be no time for it.
        """
        for left in range(MOST_REPEATS, -1, -1):
            before = self._ticks()
            outcome = step()
            if stolen_percent(before, self._ticks()) <= MOST_PERCENT:
                return outcome
            self.stolen += 1
            if not left or not may_repeat():
                return outcome
            discard(outcome)
        raise AssertionError("the last round returns")
