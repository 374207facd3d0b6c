"""What the chooser of tails is told of the workers' reports."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

import tailrace as tr
from tailrace.control.progress.periods import period_of
from tailrace.control.protocol import Progress
from tailrace.runtime.counting import WaitCounts
from tailrace.runtime.deployment import Deployment, deploy
from tailrace.runtime.histogram import Histogram

SECOND_NS = 1_000_000_000
HOMES = {0: "host", 1: "host", 2: "host"}
STREAM = "numbers -> work"


def deployed(placement: tuple[int, ...] = (0, 1, 2)) -> Deployment:
    """A source in worker 0, work in the others."""
    topology = tr.Topology()
    numbers = topology.source([1], name="numbers").shuffle()
    numbers.map(abs, name="work", parallelism=2).sink(print, parallelism=2)
    return deploy(topology.graph, placement)


def told(rank: int, at_s: float, busy_s: float, records: int, waited_s: float = 0.0) -> Progress:
    """A report of a worker with one instance, of the same number."""
    latency = Histogram()
    latency.record(5_000_000, records)
    gate = deployed().gates[0][rank - 1].number if rank else 0
    waits = (
        [array("q", [one]) for one in (gate, 0, records, int(waited_s * 1e9))]
        if rank
        else [array("q")] * 4
    )
    return Progress(
        rank,
        int(at_s * SECOND_NS),
        cpu_s=busy_s / 2,
        latency={"work": latency} if rank else {},
        waits=WaitCounts(*waits),
        instances=[(rank, busy_s, busy_s / 2)],
    )


def looks() -> tuple[dict[int, Progress], dict[int, Progress]]:
    before = {0: told(0, 1, 0.1, 0), 1: told(1, 1, 0.2, 100), 2: told(2, 1, 0.2, 100, 0.1)}
    after = {0: told(0, 2, 0.2, 0), 1: told(1, 2, 0.4, 300), 2: told(2, 2, 1.0, 300, 0.3)}
    return before, after


def test_figures_are_of_what_happened_in_between() -> None:
    period = period_of(*looks(), deployed(), HOMES, [0], replay=True)
    assert period is not None
    one = period.streams[STREAM]
    assert one.busy == pytest.approx((0.2 + 0.8) / 2)
    assert one.uneven == pytest.approx((0.8 / 200 + 0.2 / 200) / (0.2 / 200))
    assert one.workers == 2 and one.shareable and period.replayable
    assert period.busy == pytest.approx((0.1 + 0.2 + 0.8) / 3)
    assert period.p99_ms == pytest.approx(5.0, rel=0.02)


def test_across_hosts_nothing_is_shared_or_sent_again() -> None:
    homes = {**HOMES, 2: "another"}
    period = period_of(*looks(), deployed(), homes, [0], replay=True)
    assert period is not None
    assert not period.streams[STREAM].shareable and not period.replayable


def test_reports_of_another_life_or_deployment_are_no_period() -> None:
    before, after = looks()
    for changes in ({"attempt": 1}, {"change": 1}, {"at_ns": SECOND_NS}):
        other = {**after, 1: replace(after[1], **changes)}  # type: ignore[arg-type]
        assert period_of(before, other, deployed(), HOMES, [0], replay=True) is None
    alone = {rank: one for rank, one in after.items() if rank != 2}
    assert period_of(before, alone, deployed(), HOMES, [0], replay=True) is None
