"""The live view, of a job that is only pretended."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tailrace as tr
from tailrace.cli.view import prints, render, watch
from tailrace.control.budget import Event
from tailrace.control.progress.summary import ChangeProgress, Summary, summarise
from tailrace.control.protocol import Progress
from tailrace.control.roster import Roster
from tailrace.graph.wiring import wire
from tailrace.runtime.guard import Counts
from tailrace.runtime.histogram import Histogram


def topology() -> tr.Topology:
    built = tr.Topology("words")
    built.source(["a b"]).shuffle().flat_map(str.split, name="split", parallelism=2).sink(print)
    return built


WIRING = wire(topology().graph)
LABEL = "source -> split"


def summary(at_s: float, records: int) -> Summary:
    """Two workers that have processed so many records each, 20 us the most, 81 us a few."""
    roster = Roster(2, phase="running")
    for rank in range(2):
        counts = Counts()
        counts.records_in = records
        counts.execute.record(20_000, records * 97 // 100)
        counts.execute.record(81_000, records * 3 // 100)
        progress = Progress(rank, int(at_s * 1e9), cpu_s=at_s / 4, operators={"split": counts})
        progress.queued = {"split + sink": 3072}
        progress.room = {"split + sink": 4096}
        progress.sent = {LABEL: records if rank == 0 else 0}
        progress.received = {LABEL: records // 2}
        progress.transfer = progress.wait = {LABEL: Histogram()}
        progress.throttled = {LABEL}
        roster.progress[rank] = progress
    return summarise(roster, WIRING)


def pretended(**more: Any) -> Any:
    worker = {"pid": 7, "host": "10.0.0.1", "ways": {1: "ring"}}
    return SimpleNamespace(
        name="words",
        status="running",
        chains=WIRING.chains,
        placement=(0, 0, 1),
        workers=[{"rank": 0, **worker}],
        **more,
    )


def test_it_shows_rates_percentiles_queues_places_and_who_holds_up_whom() -> None:
    lines = render(pretended(), summary(2.0, 3000), summary(1.0, 1000))
    split = next(line for line in lines if line.startswith("split"))
    assert split.split("  ")[0] == "split"
    assert "4.0 k" in split
    assert "20 µs/81 µs" in split
    assert "6.1 k (75%)" in split
    assert split.endswith("0 1")
    stream = next(line for line in lines if line.startswith(LABEL))
    assert stream.endswith("throttles its senders")
    assert "worker 0:  25% of a core   pid 7 on 10.0.0.1   ring to 1" in lines


def test_it_says_how_sure_clocks_of_several_hosts_make_it() -> None:
    now, before = summary(2.0, 3000), summary(1.0, 1000)
    assert "clocks" not in render(pretended(), now, before)[0]
    now.workers[1] = replace(now.workers[1], clock_uncertainty_ms=0.254)
    line = render(pretended(), now, before)[0]
    assert line.endswith("(clocks of hosts agree to 0.25 ms)")


def test_the_last_change_and_what_was_thought_are_shown() -> None:
    before, now = summary(1.0, 1000), summary(2.0, 3000)
    moving = ChangeProgress(3, "moving", 12.0, 0)
    thought = "elastic: 2,000 records/s fit 2 workers"
    lines = render(pretended(), replace(now, changes=(moving,), thought=thought), before)
    assert lines[-2:] == ["change 3 moving, 12 ms", thought]
    done = ChangeProgress(3, "done", 40.0, 500)
    assert str(done) == "change 3 done, 40 ms, 500 keys moved"


def test_it_says_what_went_wrong_and_how_long_that_took() -> None:
    now, before = summary(2.0, 3000), summary(1.0, 1000)
    gone = Event(1_500_000_000, "worker 1 is gone")
    lines = render(pretended(), replace(now, restarts=1, events=(gone,)), before)
    assert lines[-1] == "1 restart, last: worker 1 is gone; recovering"
    events = (gone, replace(gone, took_ms=41.7))
    lines = render(pretended(), replace(now, restarts=2, events=events), before)
    assert lines[-1] == "2 restarts, last: worker 1 is gone; running again after 42 ms"


def test_elsewhere_than_on_a_terminal_what_went_wrong_is_a_line_at_once() -> None:
    first = summary(1.0, 1000)
    lost = replace(first, phase="recovering", restarts=1, events=(Event(5, "worker 1 is gone"),))
    told = iter([first, first, lost, lost])
    job = pretended(await_running=lambda: None)
    left = [True] * 3 + [False]

    class Job(SimpleNamespace):
        last_progress = property(lambda _: next(told))
        is_active = property(lambda _: left.pop(0))

    out = io.StringIO()
    watch(cast(Any, Job(**vars(job))), out=out, sleep=lambda _: None)
    assert out.getvalue().count("1 restart, last: worker 1 is gone; recovering") == 1


def test_time_counts_from_when_the_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0

    def pass_by(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def await_running() -> None:
        pass_by(60)

    monkeypatch.setattr("tailrace.cli.view.time.monotonic", lambda: now_s)
    job = pretended(is_active=True, await_running=await_running, last_progress=summary(0.0, 0))
    watch(job, seconds=3, out=io.StringIO(), sleep=pass_by)
    assert now_s == 163.0


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def watched(*, in_place: bool) -> str:
    """What a terminal gets of a job that tells its progress five times."""
    told = iter(range(6))

    class Told(SimpleNamespace):
        @property
        def last_progress(self) -> Summary:
            at_s = next(told)
            self.is_active = at_s < 5
            return summary(at_s, 1000 * at_s)

    out = Terminal()
    job: Any = Told(**vars(pretended(is_active=True, await_running=lambda: None)))
    watch(job, out=out, sleep=lambda seconds: None, in_place=in_place)
    return out.getvalue()


def test_on_a_terminal_the_view_stays_in_place() -> None:
    assert watched(in_place=True).count("\x1b[J") == 4


def test_beside_a_sink_that_prints_nothing_is_wiped_out() -> None:
    said = watched(in_place=False)
    assert "\x1b" not in said
    first, *lines = said.splitlines()
    assert first.startswith("a sink prints here: ")
    assert len(lines) == 2
    assert all(line.startswith("words: running") for line in lines)


@pytest.mark.parametrize(
    ("sink", "expected"),
    [(tr.sinks.console(), True), (print, True), (str, False), (tr.sinks.call(print), True)],
)
def test_sinks_that_print_are_known(sink: Any, expected: bool) -> None:
    built = tr.Topology("words")
    words = built.source(["a b"])
    words.sink(str)
    words.sink(sink)
    assert prints(built.graph) is expected
