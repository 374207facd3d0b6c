"""The workers' reports as one: rates, latencies, and an audit that must balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.control.coordinator import Roster
from tailrace.graph.wiring import Wiring
from tailrace.runtime.histogram import Histogram


@dataclass(frozen=True)
class OperatorProgress:
    """One operator, all its instances together, since the start."""

    records_in: int
    skipped: int
    dead: int
    """Sent to the dead letters."""
    late: int
    """Too late for a window or join."""
    execute_us: float
    """Per record, mean."""
    execute_p50_us: float
    """Per record, where those of one batch count with their mean; nan when there were none."""
    execute_p99_us: float


@dataclass(frozen=True)
class StreamProgress:
    """One stream between workers or instances, since the start."""

    sent: int
    received: int
    transfer_p50_us: float
    transfer_p99_us: float
    wait_p50_us: float
    wait_p99_us: float

    @property
    def under_way(self) -> int:
        """Records sent and not yet taken; 0 at the end of a job."""
        return self.sent - self.received


@dataclass(frozen=True)
class Summary:
    """What a job has done since it started."""

    at_ns: int
    phase: str
    emitted: dict[str, int]
    """By source."""
    operators: dict[str, OperatorProgress]
    streams: dict[str, StreamProgress]
    latency: Histogram = field(repr=False)
    """From a record's emission at its source to the end of its sink."""
    queued: dict[str, int]
    """Records that wait to be processed, by chain of operators."""
    room: dict[str, int]
    """How many may wait there before senders pause."""
    throttled: tuple[str, ...]
    """Streams that hold up their senders, because the receiver is slow."""
    cpu_s: dict[int, float]
    """By worker."""

    def latency_ms(self, percent: float) -> float:
        """A percentile of the latency from source to sink."""
        return self.latency.percentile_ns(percent) / 1e6

    def latency_since(self, before: Summary) -> Histogram:
        """The latencies of the records that reached a sink after an earlier summary."""
        return Histogram(self.latency.counts - before.latency.counts)

    @property
    def delivered(self) -> int:
        """Records that reached a sink."""
        return self.latency.total

    @property
    def balanced(self) -> bool:
        """Whether every record that was sent on a stream has been received."""
        return all(stream.under_way == 0 for stream in self.streams.values())


def summarise(roster: Roster, wiring: Wiring) -> Summary:
    """All workers' last reports together."""
    reports = list(roster.progress.values())
    latency = Histogram()
    for report in reports:
        for histogram in report.latency.values():
            latency.merge(histogram)
    operators = {}
    for operator in wiring.graph.operators:
        counts = [r.operators[operator.name] for r in reports if operator.name in r.operators]
        records_in = sum(count.records_in for count in counts)
        execute = Histogram()
        for count in counts:
            execute.merge(count.execute)
        operators[operator.name] = OperatorProgress(
            records_in,
            sum(count.skipped for count in counts),
            sum(count.dead for count in counts),
            sum(count.late for count in counts),
            sum(count.execute_ns for count in counts) / 1000 / max(records_in, 1),
            execute.percentile_ns(50) / 1000,
            execute.percentile_ns(99) / 1000,
        )
    labels = dict.fromkeys(link.stream.label for link in wiring.links)
    streams = {}
    for label in labels:
        transfer, wait = Histogram(), Histogram()
        for report in reports:
            transfer.merge(report.transfer[label])
            wait.merge(report.wait[label])
        streams[label] = StreamProgress(
            sum(report.sent[label] for report in reports),
            sum(report.received[label] for report in reports),
            transfer.percentile_ns(50) / 1000,
            transfer.percentile_ns(99) / 1000,
            wait.percentile_ns(50) / 1000,
            wait.percentile_ns(99) / 1000,
        )
    return Summary(
        at_ns=max((report.at_ns for report in reports), default=0),
        phase=roster.phase,
        emitted=_added(report.sources for report in reports),
        operators=operators,
        streams=streams,
        latency=latency,
        queued=_added(report.queued for report in reports),
        room=_added(report.room for report in reports),
        throttled=tuple(sorted(set().union(*(report.throttled for report in reports)))),
        cpu_s={report.rank: report.cpu_s for report in reports},
    )


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
