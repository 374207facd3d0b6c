"""What a job did between two looks at its workers' reports, as the chooser of tails needs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from tailrace.control.protocol import Progress
from tailrace.graph.wiring import InstanceId
from tailrace.runtime.deployment import NOWHERE, Deployment
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.replayable import stretch_workers, why_not
from tailrace.tail.conditions import Period, Receiving
from tailrace.tail.modes import SHUFFLED

_FEW = 50
"""Of fewer records a receiver does not say how long they take there."""
Reports = Mapping[int, Progress]
"""By rank."""


def latencies_in(before: Reports, after: Reports) -> Histogram:
    """The latencies of what has reached a sink in between."""
    counts: Counter[int] = Counter()
    for rank, report in after.items():
        for label, latency in report.latency.items():
            counts.update(latency.counts)
            earlier = before[rank].latency.get(label) if rank in before else None
            if earlier is not None:
                counts.subtract(earlier.counts)
    return Histogram(+counts)


def period_of(
    before: Reports,
    after: Reports,
    deployment: Deployment,
    homes: Mapping[int, Hashable],
    numbers: Collection[int],
    *,
    replay: bool,
) -> Period | None:
    """The figures of these streams; None: the reports are of different lives or deployments.

    `deployment` and `homes`, what counts as the node of each worker, are by ranks. `replay` says
    whether anything may be sent again.
    """
    if before.keys() != after.keys() or any(
        (one.attempt, one.change) != (after[rank].attempt, after[rank].change)
        or after[rank].at_ns <= one.at_ns
        for rank, one in before.items()
    ):
        return None
    latency = latencies_in(before, after)
    if not latency.total:
        return None
    own_s, workers = _busy(before, after)
    takings = _Takings(before, after, deployment, own_s)
    graph = deployment.graph
    streams = {}
    for number in numbers:
        if number not in deployment.gates or graph.streams[number].grouping.rule not in SHUFFLED:
            continue  # fused, or from instance to instance: nothing is dealt
        ranks = {gate.worker for gate in deployment.gates[number]} - {NOWHERE}
        streams[graph.streams[number].label] = Receiving(
            _mean(workers[rank] for rank in ranks if rank in workers),
            takings.uneven(number),
            len(ranks),
            _shareable(deployment, number, homes),
        )
    return Period(
        latency.percentile_ns(50) / 1e6,
        latency.percentile_ns(99) / 1e6,
        _mean(workers.values()),
        streams,
        latency.total,
        replay and any(_replayable(deployment, one.name, homes) for one in graph.operators),
    )


def _busy(before: Reports, after: Reports) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds in which each instance worked, and for which part of the time each worker did."""
    own_s: dict[int, float] = {}
    workers: dict[int, float] = {}
    for rank, report in after.items():
        earlier = before[rank]
        already = {instance: busy_s for instance, busy_s, _ in earlier.instances}
        here = {i: busy_s - already.get(i, 0.0) for i, busy_s, _ in report.instances}
        own_s.update(here)
        cpu_s = report.cpu_s - earlier.cpu_s - (report.spun_s - earlier.spun_s)
        seconds = (report.at_ns - earlier.at_ns) / 1e9
        workers[rank] = min(max(sum(here.values()), cpu_s, 0.0) / seconds, 1.0)
    return own_s, workers


class _Takings:
    """What receivers have taken, how long that had waited, and how long it took them."""

    def __init__(
        self, before: Reports, after: Reports, deployment: Deployment, own_s: Mapping[int, float]
    ) -> None:
        self._deployment = deployment
        self._records: Counter[int] = Counter()  # by gate
        self._waited_ns: Counter[int] = Counter()
        for sign, reports in ((1, after), (-1, before)):
            for report in reports.values():
                for gate, _, records, waited_ns in zip(*report.waits, strict=True):
                    self._records[gate] += sign * records
                    self._waited_ns[gate] += sign * waited_ns
        self._own_s = own_s

    def uneven(self, number: int) -> float:
        """How much slower than the fastest the slowest receiver of a stream is."""
        services, whole = [], []
        for gate in self._deployment.gates[number]:
            records = self._records[gate.number]
            if gate.worker == NOWHERE or records < _FEW:
                continue
            service_s = self._service_s(gate.instance)
            services.append(service_s)
            whole.append(service_s + self._waited_ns[gate.number] / 1e9 / records)
        return max(_ratio(services), _ratio(whole))

    def _service_s(self, instance: InstanceId) -> float:
        gates = self._deployment.gates_of[instance]
        records = sum(self._records[gate.number] for gate in gates)
        chain = self._deployment.wiring.home[instance.operator]
        return self._own_s.get(chain.first + instance.index, 0.0) / max(records, 1)


def _ratio(values: Collection[float]) -> float:
    least = min(values, default=0.0)
    return max(values) / least if least > 0 else 1.0


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _shareable(deployment: Deployment, number: int, homes: Mapping[int, Hashable]) -> bool:
    graph = deployment.graph
    target = graph.streams[number].target
    ranks = {gate.worker for gate in deployment.gates[number]} | deployment.senders[number].keys()
    nodes = {homes.get(rank) for rank in ranks - {NOWHERE}}
    return len(nodes) == 1 and all(one.grouping.rule in SHUFFLED for one in graph.into(target))


def _replayable(deployment: Deployment, source: str, homes: Mapping[int, Hashable]) -> bool:
    if not deployment.graph.operator(source).is_source or why_not(deployment, source):
        return False
    chain = deployment.wiring.home[source]
    own = {deployment.workers[InstanceId(source, index)] for index in range(chain.parallelism)}
    ranks = stretch_workers(deployment, source) | (own - {NOWHERE})
    return len({homes.get(rank) for rank in ranks}) == 1
