"""When a run is late: algorithm 1 of Du's thesis, and the same made fit for real streams."""

from __future__ import annotations

import math
from collections.abc import Sequence

_PERIOD_NS = 1_000_000_000
_LEAST_SAMPLES = 100
_MOST_SAMPLES = 8192
_LEAST_TRIES = 4
_MOST_PATIENCE = 8.0
_LONGEST_PERIODS = 10
"""After so many periods with too few samples they are too old to say anything."""


def quantile(ordered: Sequence[int], share: float) -> int:
    """The least of the values that at least this share of them does not exceed.

    >>> quantile([10, 20, 30, 40], 0.5), quantile([10, 20, 30, 40], 0.99)
    (20, 40)
    """
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def published(ordered: Sequence[int]) -> int:
    """Algorithm 1: the timeout of the next period, by the latencies of the last one, in order.

    The longer the tail, the more eager.

    >>> published([*range(1, 99), 500, 900])  # the 99th is over twice the 90th
    90
    >>> published(range(901, 1901))
    1899
    """
    if quantile(ordered, 0.99) > 2 * quantile(ordered, 0.90):
        return quantile(ordered, 0.90)
    if quantile(ordered, 0.999) > 2 * quantile(ordered, 0.95):
        return quantile(ordered, 0.95)
    return quantile(ordered, 0.999)


class AdaptiveTimeout:
    """The timeout of each period, by what was noted in the one before.

    Where the algorithm is weak it goes on:

    - One in ten runs above the 90th percentile is more than may be sent again, and would use up the
      budget before those come that are really late: the timeout is at least the percentile that
      leaves half of the `budget` above it. But no more than twice the 90th for that: if more than
      that are really late, as many of them are sent again as may be.
    - Whether another try helps is seen from those that were made (`tried`). Where runs are late for
      a reason that copies share, such as too few cores, fewer than half of them save anything worth
      it: the timeout then gets longer, until those that are left do, and comes back slowly.
    - Percentiles of a few samples are noise. A period lasts until there are enough, and not before
      is anything known.
    - A run that is younger than twice the median has hardly begun to be late, and another would
      not overtake it.
    - It is to be fed with what originals take, also those that were overtaken. By the latencies
      that come out, a replay that works makes the tail short, the timeout then goes up, and the
      tail comes back.
    """

    def __init__(
        self, budget: float = 0.05, least_ns: int = 1_000_000, period_ns: int = _PERIOD_NS
    ) -> None:
        if not 0 < budget < 1:
            raise ValueError(f"the budget is {budget}; it is a share of all runs, above 0")
        self.timeout_ns: int | None = None
        """None: nothing is known yet."""
        self._budget = budget
        self._least_ns = least_ns
        self._period_ns = period_ns
        self._latencies: list[int] = []
        self._since_ns: int | None = None
        self._median_ns = 0
        self._patience = 1.0
        self._tries = self._useful = 0

    def note(self, latency_ns: int) -> None:
        """That long one took."""
        if len(self._latencies) < _MOST_SAMPLES:
            self._latencies.append(latency_ns)

    def tried(self, saved_ns: int) -> None:
        """Of one that was sent again the original took so much longer; 0: it was there first."""
        self._tries += 1
        self._useful += saved_ns > self._median_ns

    def look(self, now_ns: int) -> int | None:
        """The timeout now. Begins another period when it is time."""
        if self._since_ns is None:
            self._since_ns = now_ns
        if now_ns - self._since_ns >= self._period_ns:
            self._adjust(now_ns)
        return self.timeout_ns

    def _adjust(self, now_ns: int) -> None:
        assert self._since_ns is not None
        latencies = self._latencies
        if len(latencies) >= _LEAST_SAMPLES:
            latencies.sort()
            self._median_ns = quantile(latencies, 0.5)
            self._learn()
            eager_ns = max(
                published(latencies),
                min(quantile(latencies, 1 - self._budget / 2), 2 * quantile(latencies, 0.9)),
                2 * self._median_ns,
                self._least_ns,
            )
            self.timeout_ns = round(self._patience * eager_ns)
        elif now_ns - self._since_ns < _LONGEST_PERIODS * self._period_ns:
            return
        else:
            self.timeout_ns = None
        self._latencies = []
        self._since_ns = now_ns

    def _learn(self) -> None:
        if self._tries >= _LEAST_TRIES:
            share = self._useful / self._tries
            if share < 0.5:
                self._patience = min(1.5 * self._patience, _MOST_PATIENCE)
            elif share > 0.75:
                self._patience = max(self._patience / 1.2, 1.0)
            self._tries = self._useful = 0
        elif not self._tries:  # nobody was late enough: there may be something to learn again
            self._patience = max(self._patience / 1.05, 1.0)
