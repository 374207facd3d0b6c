"""Reports that are made in slices, so that no record waits for a long one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import tailrace as tr
from tailrace.control import reporting
from tailrace.control.progress.report import gathered
from tailrace.control.protocol import Progress, unpack
from tailrace.control.reporting import Reporting
from tailrace.runtime.core import Core
from tests.runtime.posts import core_of

WIDE = 40
MS = 1_000_000


class Told:
    """The connection to a coordinator that has room."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.closed = False
        self.unanswered_bytes = 0
        self.reports: list[Progress] = []

    def send(self, target: int, kind: int, buffers: list[bytes]) -> bool:
        report = unpack(buffers[0])
        assert isinstance(report, Progress)
        self.reports.append(report)
        return True

    def flush(self) -> None:
        pass


def reporter(told: Any) -> Reporting:
    sockets: Any = SimpleNamespace(await_room=lambda connection: None)
    clock: Any = SimpleNamespace(ask=lambda: None, next_ns=1 << 62, uncertainty_ns=0)
    refusals: Any = SimpleNamespace(counts=dict)
    waiting: Any = SimpleNamespace(spun_ns=0)
    return Reporting(told, sockets, 0.5, clock, refusals, waiting)


def wide() -> Core:
    """A core that has counted a hundred numbers in many instances."""
    topology = tr.Topology("wide")
    numbers = topology.source(range(100)).key_by(lambda n: n % WIDE)
    numbers.scan(lambda total, n: (total or 0) + n, parallelism=WIDE, name="sum").sink(repr)
    core = core_of(topology, (0,) * (1 + WIDE))
    while core.round():
        pass
    return core


def counted(report: Progress) -> dict[str, int]:
    return {name: counts.records_in for name, counts in report.operators.items()}


@pytest.fixture
def by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time for more than a step of a report between two rounds."""
    monkeypatch.setattr(reporting, "_SLICE_NS", 0)


def test_a_report_of_many_instances_is_told_when_its_slices_are_done(by_steps: None) -> None:
    told, core = Told(), wide()
    report = reporter(told)
    calls = 1
    while report.tell_what_is_due(core, MS, ended=False):
        assert report.next_ns == 0  # it is to be gone on with in the next turn
        assert not told.reports
        calls += 1
    assert calls > WIDE
    [found] = told.reports
    whole = gathered(core, Progress(core.rank, MS))
    assert counted(found) == {"source": 100, "sum": 100, "sink": 100}
    assert (found.sent, found.received, found.keys) == (whole.sent, whole.received, whole.keys)
    assert report.next_ns == 501 * MS


def test_where_rounds_take_long_the_rest_of_a_report_is_made_at_once(by_steps: None) -> None:
    told, core = Told(), wide()
    report = reporter(told)
    assert report.tell_what_is_due(core, MS, ended=False)
    assert not report.tell_what_is_due(core, 100 * MS, ended=False)
    assert len(told.reports) == 1


def test_a_report_begins_anew_when_instances_come_or_go_meanwhile(by_steps: None) -> None:
    told, core = Told(), wide()
    report = reporter(told)
    for _ in range(WIDE // 2):
        assert report.tell_what_is_due(core, MS, ended=False)
    core.changed()
    calls = 1
    while report.tell_what_is_due(core, MS, ended=False):
        calls += 1
    assert calls > WIDE
    [found] = told.reports
    assert counted(found) == {"source": 100, "sum": 100, "sink": 100}


def test_the_end_is_told_at_once_and_nothing_behind_it(by_steps: None) -> None:
    told, core = Told(), wide()
    report = reporter(told)
    assert report.tell_what_is_due(core, MS, ended=False)
    report.report(core, 2 * MS, ended=True)
    assert [one.ended for one in told.reports] == [True]
    assert not report.tell_what_is_due(core, 3 * MS, ended=True)
    assert len(told.reports) == 1
