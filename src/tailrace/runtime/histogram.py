"""Latencies as counts in buckets: bounded memory, mergeable, within 1.6 % of the true value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tailrace.runtime.hot import SUB_BITS, merge, note

_SUB = 1 << SUB_BITS


def _middle_ns(bucket: int) -> float:
    if bucket < 2 * _SUB:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    low = ((bucket & (_SUB - 1)) + _SUB) << shift
    return low + (1 << shift) / 2


class Histogram:
    """Counts of durations. At most some 1,200 buckets for anything up to an hour."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts)

    def record(self, value_ns: int, count: int = 1) -> None:
        """Note `count` records that took `value_ns` each."""
        note(self.counts, value_ns, count)

    def merge(self, other: Histogram) -> None:
        """Take over the counts of another."""
        merge(self.counts, other.counts)

    @property
    def total(self) -> int:
        """How many were recorded."""
        return self.counts.total()

    @property
    def mean_ns(self) -> float:
        """The mean duration; nan when there are none."""
        total = self.total
        if not total:
            return float("nan")
        return sum(_middle_ns(bucket) * count for bucket, count in self.counts.items()) / total

    def percentile_ns(self, percent: float) -> float:
        """The duration that `percent` of the records did not exceed; nan when there are none."""
        total = self.total
        if not total:
            return float("nan")
        left = total * percent / 100
        last = 0
        for bucket in sorted(self.counts):
            last = bucket
            left -= self.counts[bucket]
            if left <= 0:
                break
        return _middle_ns(last)
