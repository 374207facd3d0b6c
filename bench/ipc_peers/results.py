"""What was measured, as data: transports, points, samples of all rounds, and their summary."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.spread import Spread
from ipc_peers.pair import Latency, Rate

DEFAULT_RING_BYTES = 2 << 20  # the paper's
SATURATED_BELOW = 0.9  # of the offered rate


@dataclass(frozen=True)
class Variant:
    """One way to use one transport. `key` names it in the JSON, `label` in print."""

    key: str
    label: str
    peer: str
    mode: str = "default"
    rate_only: bool = False


@dataclass(frozen=True)
class Point:
    """One place on the latency plots."""

    size_bytes: int
    rate_per_s: int
    ring_bytes: int = DEFAULT_RING_BYTES

    @property
    def label(self) -> str:
        """Say where it is."""
        text = f"{self.size_bytes >> 10} KB, {self.rate_per_s:,}/s"
        if self.ring_bytes == DEFAULT_RING_BYTES:
            return text
        return f"{text}, ring of {self.ring_bytes / self.size_bytes:.1f} messages"


@dataclass(frozen=True)
class LatencySummary:
    """One transport at one point, over all rounds."""

    mean_us: Spread
    mean_from_send_us: Spread
    p50_us: Spread
    p99_us: Spread
    achieved_per_s: Spread
    messages: int
    saturated: bool


@dataclass(frozen=True)
class RateSummary:
    """One transport at full speed, over all rounds."""

    per_s: Spread
    send_cpu_us: Spread
    receive_cpu_us: Spread
    messages: int


@dataclass
class Results:
    """The samples of every round, and what could not be measured and why."""

    latencies: dict[tuple[Point, Variant], list[Latency]] = field(default_factory=dict)
    rates: dict[Variant, list[Rate]] = field(default_factory=dict)
    idle_cpu_percent: float | None = None
    background_cpu_percent: float | None = None  # of the whole machine, while all peers waited
    missing: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    def latency(self, point: Point, variant: Variant) -> LatencySummary | None:
        """Return the summary of a point, None if it has no sample."""
        samples = self.latencies.get((point, variant))
        if not samples:
            return None

        def over(value: Callable[[Latency], float]) -> Spread:
            return Spread.of([value(sample) for sample in samples])

        achieved = over(lambda sample: sample.achieved_per_s)
        return LatencySummary(
            mean_us=over(lambda sample: statistics.fmean(sample.from_due_ns) / 1e3),
            mean_from_send_us=over(lambda sample: statistics.fmean(sample.from_send_ns) / 1e3),
            p50_us=over(lambda sample: percentile(sample.from_due_ns, 50) / 1e3),
            p99_us=over(lambda sample: percentile(sample.from_due_ns, 99) / 1e3),
            achieved_per_s=achieved,
            messages=sum(len(sample.from_due_ns) for sample in samples),
            saturated=achieved.median < SATURATED_BELOW * point.rate_per_s,
        )

    def rate(self, variant: Variant) -> RateSummary | None:
        """Return the summary of a transport at full speed, None if it has no sample."""
        samples = self.rates.get(variant)
        if not samples:
            return None
        return RateSummary(
            per_s=Spread.of([sample.per_s for sample in samples]),
            send_cpu_us=Spread.of([sample.send_cpu_us for sample in samples]),
            receive_cpu_us=Spread.of([sample.receive_cpu_us for sample in samples]),
            messages=sum(sample.messages for sample in samples),
        )


def percentile(values: Sequence[int], percent: float) -> int:
    """Return the nearest-rank percentile.

    >>> percentile([30, 10, 20], 50)
    20
    """
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
