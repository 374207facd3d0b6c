"""The workers' reports as one: rates, latencies, and an audit that must balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan

from tailrace.control.budget import Event
from tailrace.control.protocol import Progress
from tailrace.control.roster import Roster
from tailrace.graph.wiring import Wiring
from tailrace.runtime.histogram import Histogram

_NOTED_MS = 0.1
_SILENT_S = 1.5


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

    @property
    def execute_s(self) -> float:
        """Of all records."""
        return self.execute_us * self.records_in / 1e6


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
class WorkerProgress:
    """One worker, as it last told."""

    cpu_s: float
    age_s: float
    """How long ago that was; nan where nobody has a clock to say so."""
    clock_uncertainty_ms: float
    """How far its clock may be from the job's; 0 on the coordinator's host."""
    held_s: float = 0.0
    """For how long one batch has kept it from reporting by itself; 0: nothing does."""
    held_in: str = ""
    """The operator that does, if that can be told."""
    spun_s: float = 0.0
    """Of `cpu_s`, about, what it has waited by spinning."""

    @property
    def trouble(self) -> str:
        """In words, if it is held up or silent; else empty."""
        if self.age_s > _SILENT_S:
            return f"silent for {self.age_s:.0f} s{f', in {self.held_in!r}' * bool(self.held_in)}"
        if self.held_s > _SILENT_S:
            return f"held up by {self.held_in!r} for {self.held_s:.0f} s"
        return ""


@dataclass(frozen=True)
class ChangeProgress:
    """A change of who runs where or owns which keys, while the job runs."""

    number: int
    status: str
    """One of "preparing", "moving", "done", "failed", "undone"."""
    took_ms: float
    """Until it was done, or until now."""
    moved_keys: int
    error: str = ""

    def __str__(self) -> str:
        told = f"change {self.number} {self.status}, {self.took_ms:,.0f} ms"
        if self.moved_keys:
            told += f", {self.moved_keys:,} keys moved"
        return f"{told}: {self.error}" if self.error else told


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
    workers: dict[int, WorkerProgress]
    """By rank, those that have told something."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Connections that the job's workers and its coordinator have refused, by reason."""
    replays: dict[str, int] = field(default_factory=dict)
    """With tail="replay": batches of sources that were tracked ("runs"), sent again ("copies"),
    and had an original that was slower than its copy ("overtaken")."""
    restarts: int = 0
    """How often the job has gone back to its last epoch, because something was lost or failed."""
    events: tuple[Event, ...] = ()
    """What that was, when, and how long it took to run again; the last hundred, oldest first."""
    keys: dict[str, int] = field(default_factory=dict)
    """How many keys have state, by operator."""
    changes: tuple[ChangeProgress, ...] = ()
    """Changes of the running job, oldest first: the last, and the one in progress if one is."""
    thought: str = ""
    """What a job that adapts has last decided, and why."""
    tails: dict[str, str] = field(default_factory=dict)
    """With tail="auto", by stream: how its records are dealt, what was measured, and why."""

    @property
    def cpu_s(self) -> dict[int, float]:
        """By worker."""
        return {rank: worker.cpu_s for rank, worker in self.workers.items()}

    @property
    def clock_uncertainty_ms(self) -> float:
        """How far the worst of the workers' clocks may be from the job's.

        A latency or transfer time between two hosts may be wrong by twice that; 0 where all workers
        are on the coordinator's host.
        """
        return max((worker.clock_uncertainty_ms for worker in self.workers.values()), default=0.0)

    @property
    def clocks(self) -> str:
        """In words, if clocks of hosts may be apart by what one would notice; else empty."""
        worst_ms = self.clock_uncertainty_ms
        return f"clocks of hosts agree to {worst_ms:.2f} ms" if worst_ms > _NOTED_MS else ""

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


def summarise(roster: Roster, wiring: Wiring, now_ns: int | None = None) -> Summary:
    """All workers' last reports together; `now_ns` is what the job's clock says."""
    present = list(roster.progress.values())
    reports = [*present, *([roster.departed] if roster.departed is not None else [])]
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
    labels = dict.fromkeys(wiring.graph.streams[number].label for number in wiring.streams)
    streams = {}
    for label in labels:
        transfer, wait = Histogram(), Histogram()
        told = [report for report in reports if label in report.transfer]  # before, it was fused
        for report in told:
            transfer.merge(report.transfer[label])
            wait.merge(report.wait[label])
        streams[label] = StreamProgress(
            sum(report.sent[label] for report in told),
            sum(report.received[label] for report in told),
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
        workers={report.rank: _worker(report, now_ns) for report in present},
        refusals=_added([roster.refusals, *(report.refusals for report in reports)]),
        replays=_added(report.replays for report in reports),
        restarts=roster.recovery.restarts.total,
        events=roster.recovery.restarts.events,
        keys=_added(report.keys for report in present),
        changes=_changes(roster),
        thought=roster.changing.thought if roster.changing is not None else "",
        tails=dict(roster.tails_told),
    )


def _changes(roster: Roster) -> tuple[ChangeProgress, ...]:
    known = roster.changing.lately() if roster.changing is not None else []
    return tuple(
        ChangeProgress(
            one.number,
            one.status,
            ((one.ended_s or roster.now_s) - one.asked_s) * 1e3,
            one.moved_keys,
            one.error,
        )
        for one in known
    )


def _worker(report: Progress, now_ns: int | None) -> WorkerProgress:
    return WorkerProgress(
        report.cpu_s,
        nan if now_ns is None else max(now_ns - report.at_ns, 0) / 1e9,
        report.clock_uncertainty_ns / 1e6,
        report.held_s,
        report.held_in,
        report.spun_s,
    )


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
