"""Who sends how much to whom, and how busy everybody is: the workers' reports as one table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.control.coordinator import Roster
from tailrace.control.protocol import Progress
from tailrace.graph.wiring import Wiring
from tailrace.plan.traffic import Pair, Traffic

_SCHEMA = (
    "stream string, sender int, receiver int, sender_chain string, receiver_chain string,"
    " sender_worker int, receiver_worker int, messages long, records long, bytes long,"
    " records_per_s double, bytes_per_s double"
)


@dataclass(frozen=True)
class LinkTraffic:
    """From one instance to another along one stream, since the start."""

    stream: str
    sender: int
    receiver: int
    sender_chain: str
    """The operators that the instance runs."""
    receiver_chain: str
    sender_worker: int
    receiver_worker: int
    messages: int
    records: int
    bytes: int
    """As encoded; inside a worker nothing is, and it is what a sample of the records would take."""
    records_per_s: float
    """Over the last period that the sender's worker has reported."""
    bytes_per_s: float


@dataclass(frozen=True)
class InstanceLoad:
    """One instance, since the start."""

    instance: int
    chain: str
    worker: int
    busy_s: float
    """In its operators, by the wall clock."""
    cpu_s: float
    """Of its worker's CPU time, in proportion to `busy_s`: sending and receiving included."""


@dataclass(frozen=True)
class TrafficTable:
    """What the monitor knows. Links that have carried nothing have no row."""

    seconds: float
    """How long the job has run, by the last report."""
    links: tuple[LinkTraffic, ...]
    instances: tuple[InstanceLoad, ...]

    def traffic(self) -> Traffic:
        """What schedulers go by, per second since the start: `consolidate(..., traffic=)`."""
        records: Counter[Pair] = Counter()
        sizes: Counter[Pair] = Counter()
        for link in self.links:
            records[link.sender, link.receiver] += link.records
            sizes[link.sender, link.receiver] += link.bytes
        per_s = 1 / (self.seconds or 1.0)
        return Traffic(
            tuple(load.cpu_s * per_s for load in self.instances),
            {pair: count * per_s for pair, count in records.items()},
            {pair: size * per_s for pair, size in sizes.items()},
        )

    def dataframe(self, spark: Any) -> Any:
        """The links as a Spark DataFrame, a row each."""
        return spark.createDataFrame([tuple(asdict(link).values()) for link in self.links], _SCHEMA)

    def __str__(self) -> str:
        title = f"{'records':>12} {'per s':>10} {'messages':>9} {'MB':>9}  from -> to (worker)"
        rows = (
            f"{link.records:>12,} {link.records_per_s:>10,.0f} {link.messages:>9,}"
            f" {link.bytes / 1e6:>9,.2f}"
            f"  {link.sender_chain} [{link.sender}] ({link.sender_worker}) ->"
            f" {link.receiver_chain} [{link.receiver}] ({link.receiver_worker})"
            for link in sorted(self.links, key=lambda link: -link.records)
        )
        return "\n".join([title, *rows])


def traffic_of(roster: Roster, wiring: Wiring, placement: tuple[int, ...]) -> TrafficTable:
    """All workers' last reports together; rates by those and the ones before."""
    links: list[LinkTraffic] = []
    loads: dict[int, tuple[float, float]] = {}
    for rank, report in sorted(roster.progress.items()):
        links += _links(report, roster.earlier.get(rank), wiring, placement)
        loads.update((instance, (busy_s, cpu_s)) for instance, busy_s, cpu_s in report.instances)
    instances = tuple(
        InstanceLoad(i, wiring.chain_of(i).label, placement[i], *loads.get(i, (0.0, 0.0)))
        for i in range(wiring.instances)
    )
    seconds = max((report.running_s for report in roster.progress.values()), default=0.0)
    return TrafficTable(seconds, tuple(links), instances)


def _links(
    report: Progress, earlier: Progress | None, wiring: Wiring, placement: tuple[int, ...]
) -> list[LinkTraffic]:
    before = {link: counts for link, *counts in earlier.links} if earlier else {}
    period_s = (report.at_ns - earlier.at_ns) / 1e9 if earlier else report.running_s
    found = []
    for number, messages, records, size_bytes in report.links:
        link = wiring.links[number]
        _, records_before, bytes_before = before.get(number, (0, 0, 0))
        found.append(
            LinkTraffic(
                link.stream.label,
                link.sender,
                link.receiver,
                wiring.chain_of(link.sender).label,
                wiring.chain_of(link.receiver).label,
                placement[link.sender],
                placement[link.receiver],
                messages,
                records,
                size_bytes,
                (records - records_before) / period_s if period_s > 0 else 0.0,
                # A sample may correct what is already sent downwards.
                max(size_bytes - bytes_before, 0) / period_s if period_s > 0 else 0.0,
            )
        )
    return found
