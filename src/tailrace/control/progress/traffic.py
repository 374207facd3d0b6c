"""Who sends how much to whom, and how busy everybody is: the workers' reports as one table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.control.protocol import Progress
from tailrace.control.roster import Roster
from tailrace.graph.model import Rule
from tailrace.plan.model.traffic import Pair, Traffic
from tailrace.runtime.deployment import Deployment

_SCHEMA = (
    "stream string, sender int, receiver int, sender_chain string, receiver_chain string,"
    " sender_worker int, receiver_worker int, messages long, records long, bytes long,"
    " records_per_s double, bytes_per_s double, wait_us double"
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
    """Of the sender's worker to the receiver, whichever of its instances had records in them."""
    records: int
    bytes: int
    """As encoded; inside a worker nothing is, and it is what a sample of the records would take."""
    records_per_s: float
    """Over the last period that the sender's worker has reported."""
    bytes_per_s: float
    wait_us: float
    """How long records from the sender's worker have waited at the receiver, mean."""


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


def traffic_of(roster: Roster, deployment: Deployment) -> TrafficTable:
    """All workers' last reports under a deployment; rates by those and the ones before.

    Reports from before the last change of the deployment are left out.
    """
    change = 0 if roster.changing is None else roster.changing.done
    present = {rank: one for rank, one in roster.progress.items() if one.change == change}
    earlier = {rank: one for rank, one in roster.earlier.items() if one.change == change}
    wiring = deployment.wiring
    waits = {
        (gate, sender): waited_ns / records / 1000
        for report in present.values()
        for gate, sender, records, waited_ns in zip(*report.waits, strict=True)
    }
    links: list[LinkTraffic] = []
    loads: dict[int, tuple[float, float]] = {}
    for rank, report in sorted(present.items()):
        links += _links(report, earlier.get(rank), deployment, waits)
        loads.update((instance, (busy_s, cpu_s)) for instance, busy_s, cpu_s in report.instances)
    instances = tuple(
        InstanceLoad(
            i, wiring.chain_of(i).label, deployment.workers[instance], *loads.get(i, (0.0, 0.0))
        )
        for i, instance in enumerate(wiring.ids)
    )
    seconds = max((report.running_s for report in present.values()), default=0.0)
    return TrafficTable(seconds, tuple(links), instances)


def _links(
    report: Progress,
    earlier: Progress | None,
    deployment: Deployment,
    waits: dict[tuple[int, int], float],
) -> list[LinkTraffic]:
    before = _sent(earlier, deployment) if earlier else {}
    period_s = (report.at_ns - earlier.at_ns) / 1e9 if earlier else report.running_s
    lanes = {gate: carried for gate, *carried in zip(*report.lanes, strict=True)}
    found = []
    for (stream, sender, receiver), records in _sent(report, deployment).items():
        if stream not in deployment.wiring.streams:
            continue  # since then fused
        source, target = deployment.wiring.streams[stream]
        gate = deployment.gates[stream][receiver]
        lane = lanes.get(gate.number)
        if not records or lane is None or not lane[1]:
            continue
        messages, carried, size_bytes = lane
        each_bytes = size_bytes / carried
        per_s = (
            (records - before.get((stream, sender, receiver), 0)) / period_s if period_s else 0.0
        )
        found.append(
            LinkTraffic(
                deployment.graph.streams[stream].label,
                source.first + sender,
                target.first + receiver,
                source.label,
                target.label,
                report.rank,
                gate.worker,
                messages,
                records,
                round(records * each_bytes),
                per_s,
                per_s * each_bytes,
                waits.get((gate.number, report.rank), 0.0),
            )
        )
    return found


def _sent(report: Progress, deployment: Deployment) -> dict[tuple[int, int, int], int]:
    """Records by stream, sender and receiver."""
    counts = {}
    for stream, sender, records in report.sent_by:
        forwarded = deployment.graph.streams[stream].grouping.rule is Rule.FORWARD
        for receiver, count in enumerate(records):
            counts[stream, sender, sender if forwarded else receiver] = count
    return counts
