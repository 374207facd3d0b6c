"""What workers have done that have left: as one report, however many there were."""

from __future__ import annotations

from collections import Counter

from tailrace.control.protocol import Progress
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram


def added(one: Progress | None, other: Progress) -> Progress:
    """What two workers have done, without what was true of a moment only."""
    total = Progress(other.rank, other.at_ns)
    for part in (one, other) if one is not None else (other,):
        total.cpu_s += part.cpu_s
        total.spun_s += part.spun_s
        total.running_s = max(total.running_s, part.running_s)
        for name, counts in part.operators.items():
            total.operators.setdefault(name, Counts()).add(counts)
        for mine, theirs in (
            (total.latency, part.latency),
            (total.transfer, part.transfer),
            (total.wait, part.wait),
        ):
            for name, histogram in theirs.items():
                mine.setdefault(name, Histogram()).merge(histogram)
        total.sources = _sum(total.sources, part.sources)
        total.sent = _sum(total.sent, part.sent)
        total.received = _sum(total.received, part.received)
        total.replays = _sum(total.replays, part.replays)
        total.refusals = _sum(total.refusals, part.refusals)
    return total


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)  # unlike `+`, it keeps what is 0
    return dict(total)
