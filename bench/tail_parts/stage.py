"""What sections share: Spark, jobs whose records are dealt in one way after the other, notes.

A job runs once for all contestants. They take turns in it, in slices: `job.set_tail` turns one on,
what is due in the first part of the slice does not count (queues of before run out), the rest does.
"auto" has some seconds for itself before that, in which it looks and tries; in its turns it goes on
with what it has found, so they are what it is like once it knows. In a quick run it is in a hurry,
in a full one as `tail="auto"` has it.
Slices from which the machine's host stole time are repeated. Every record has a number and the time
when it was due; sinks note both, with when work on it began and when it was done.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol, TypeVar

from pyspark import cloudpickle

from harness.spread import rounded
from tailrace.connectors.generate import Poisson
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.sink import Sink
from tailrace.runtime.source import Reader, Source, Split
from tailrace.spark.job import Job
from tailrace.tail.chooser import Chooser
from tailrace.topology import Topology

T = TypeVar("T")
PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
_PATIENCE_S = 30.0
LATEST_S = 30.0
"""After so long a quick run repeats no slice any more, whatever was stolen from it."""
AUTO_S, FULL_AUTO_S = 4.0, 90.0
"""For so long at most auto looks and tries before its turns, in a quick run and in a full one."""
Note = tuple[int, int, int, int, int]
"""A record's number, and when it was due, begun, served and done, in ns of the monotonic clock.

An instance takes some at a time: who is served first is done when the others are, too.
"""


class Stage(Protocol):
    """What a section gets: the frame of the benchmark, and Spark."""

    folder: Path
    latest_s: float

    @property
    def spark(self) -> Any: ...

    def say(self, text: str) -> None: ...

    def undisturbed(
        self,
        step: Callable[[], T],
        discard: Callable[[T], None] = lambda outcome: None,
        until_s: float = ...,
    ) -> T: ...


class Arriving(Source):
    """Poisson arrivals without an end: (number, when it is due)."""

    def __init__(self, rate_per_s: float, seed: int) -> None:
        self.rate_per_s = rate_per_s
        self.seed = seed

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return _Arriving(self, split, clock_ns)


class _Arriving(Reader):
    def __init__(self, source: Arriving, split: Split, clock_ns: Callable[[], int]) -> None:
        pace = Poisson(source.rate_per_s, source.seed)
        self._offsets = pace.offsets_ns(split.index, split.of, 0)
        self._number, self._step = split.index, split.of
        self._clock_ns = clock_ns
        self._begun_ns = 0
        self._due_ns = 0

    def poll(self, most: int) -> list[tuple[int, int]] | None:
        now_ns = self._clock_ns()
        if not self._begun_ns:
            self._begun_ns = now_ns
            self._due_ns = now_ns + next(self._offsets)
        found: list[tuple[int, int]] = []
        self.emitted_ns = min(self._due_ns, now_ns)
        while self._due_ns <= now_ns and len(found) < most:
            found.append((self._number, self._due_ns))
            self._number += self._step
            self._due_ns = self._begun_ns + next(self._offsets)
        return found

    def due_ns(self) -> int:
        return self._due_ns


class Noted(Sink):
    """Notes what comes, (number, due, begun, served), with the time; leaves it in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, index: int, parallelism: int) -> None:
        self._path = self.folder / f"notes-{index}"
        self._notes = array("q")

    def write(self, records: Iterator[tuple[int, int, int, int]]) -> None:
        for record in records:
            self._notes.extend((*record, time.monotonic_ns()))

    def close(self) -> None:
        self._path.write_bytes(self._notes.tobytes())


def notes_in(folder: Path) -> list[Note]:
    """What the sinks of a job have noted, by number."""
    found: list[Note] = []
    for path in folder.glob("notes-*"):
        values = array("q", path.read_bytes())
        found += zip(*(values[place::5] for place in range(5)), strict=True)
    return sorted(found)


def audit(notes: Sequence[Note], streams: int = 1) -> tuple[int, int]:
    """How many numbers are missing, and how many are there too often.

    What each of several sources came to is not known to the sinks; a gap is what is missing.
    """
    numbers = [note[0] for note in notes]
    last: dict[int, int] = {}
    for number in numbers:
        last[number % streams] = max(last.get(number % streams, 0), number)
    expected = sum((most - share) // streams + 1 for share, most in last.items())
    return expected - len(set(numbers)), len(numbers) - len(set(numbers))


@dataclass
class Slices:
    """When each contestant had its turns, without their beginnings."""

    of: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    chose: str = ""
    """What auto had found, and why, in its words."""

    def latencies_ms(self, notes: Sequence[Note], name: str) -> list[list[float]]:
        """By turn: from when a record was due until it was done."""
        return self._of(notes, name, lambda note: (note[4] - note[1]) / 1e6)

    def waits_ms(self, notes: Sequence[Note], name: str) -> list[list[float]]:
        """By turn: from when a record was due until work on it began."""
        return self._of(notes, name, lambda note: (note[2] - note[1]) / 1e6)

    def services_ms(self, notes: Sequence[Note], name: str) -> list[list[float]]:
        """By turn: from then until it was served."""
        return self._of(notes, name, lambda note: (note[3] - note[2]) / 1e6)

    def _of(
        self, notes: Sequence[Note], name: str, what: Callable[[Note], float]
    ) -> list[list[float]]:
        return [
            [what(note) for note in notes if begin <= note[1] < end]
            for begin, end in self.of.get(name, [])
        ]


def in_turns(
    stage: Stage,
    topology: Topology,
    modes: Sequence[str],
    *,
    rounds: int,
    slice_s: float,
    settle_s: float,
    placement: tuple[int, ...],
    quick: bool,
    before: Callable[[Job], Callable[[], None]] = lambda job: lambda: None,
    warm_s: float = 0.0,
) -> Slices:
    """Run a job in which the modes take turns, in changing order; end it, and say who had which.

    `before` may do something to the running job first, and gives what ends that. The first mode
    is on for `warm_s` before anything counts.
    """
    policy = chooser(quick)
    tail: Any = policy if "auto" in modes else "off"
    job = topology.start(stage.spark, placement=placement, tail=tail, progress_s=0.05)
    slices = Slices()
    try:
        job.await_running(_PATIENCE_S)
        undo = before(job)
        try:
            if "auto" in modes:
                slices.chose = settled(job, policy, AUTO_S if quick else FULL_AUTO_S)
            job.set_tail(modes[0])
            time.sleep(max(warm_s, settle_s))
            for number in range(rounds):
                shift = number % len(modes)
                for mode in (*modes[shift:], *modes[:shift]):
                    turn = stage.undisturbed(
                        lambda mode=mode: _turn(job, mode, slice_s, settle_s),  # type: ignore[misc]
                        until_s=stage.latest_s,
                    )
                    slices.of.setdefault(mode, []).append(turn)
        finally:
            undo()
        job.stop(timeout_s=_PATIENCE_S)
    finally:
        if job.is_active:
            job.stop(drain=False)
    job.await_termination(0)
    return slices


def chooser(quick: bool, least_s: float = 0.5) -> Chooser:
    """As users have it; in quick runs with short periods, and nothing tried twice in a minute."""
    return Chooser(least_s=least_s, records=400, again_s=120.0) if quick else Chooser()


def settled(
    job: Job, policy: Chooser, most_s: float, during: Callable[[float], None] = time.sleep
) -> str:
    """Wait until auto has tried what there is to try, or for so long; in a trial a quarter more.

    Returns how long that was, what it has found, and why, in its words.
    """
    begun = time.monotonic()
    while not policy.settled and (policy.trying or time.monotonic() - begun < most_s):
        during(0.02)
        if time.monotonic() - begun > 1.25 * most_s:
            break
    took_s = time.monotonic() - begun
    why = next(iter(job.last_progress.tails.values()), "").partition(". ")[2]
    end = "settled" if policy.settled else "not settled"
    return f"{end} after {took_s:.1f} s: {policy.present}. {why}"


def slices_by_progress(
    stage: Stage,
    job: Job,
    tails: Sequence[str],
    *,
    rounds: int,
    slice_s: float,
    settle_s: float,
    during: Callable[[float], None] = time.sleep,
) -> dict[str, list[Histogram]]:
    """The latencies that workers tell of, by who had the turn; the job must tell them often.

    `during` takes as long as it is told, and may disturb the job meanwhile.
    """
    found: dict[str, list[Histogram]] = {tail: [] for tail in tails}

    def turn(tail: str) -> Histogram:
        job.set_tail(tail)
        time.sleep(settle_s)
        before = job.last_progress
        during(slice_s - settle_s)
        return job.last_progress.latency_since(before)

    for number in range(rounds):
        shift = number % len(tails)
        for tail in (*tails[shift:], *tails[:shift]):
            one = stage.undisturbed(lambda tail=tail: turn(tail), until_s=stage.latest_s)  # type: ignore[misc]
            found[tail].append(one)
    return found


def of_histograms(turns: Sequence[Histogram]) -> dict[str, Any]:
    """Percentiles of all turns together, and p99s of them; in ms."""
    whole = merged(turns)
    found: dict[str, Any] = {
        name: rounded(whole.percentile_ns(percent) / 1e6) for name, percent in PERCENTS.items()
    }
    found |= p99s_of(turns, p99_of_histograms)
    found["records"] = whole.total
    return found


def _turn(job: Job, mode: str, slice_s: float, settle_s: float) -> tuple[int, int]:
    job.set_tail(mode)
    time.sleep(settle_s)
    begin_ns = time.monotonic_ns()
    time.sleep(slice_s - settle_s)
    return begin_ns, time.monotonic_ns()


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent are at most."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def summed_up(turns: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Percentiles of all turns together, and p99s of them; in ms."""
    everything = [value for turn in turns for value in turn]
    found: dict[str, Any] = {
        name: rounded(percentile(everything, percent)) for name, percent in PERCENTS.items()
    }
    found |= p99s_of(turns, _p99_of_lists)
    found["mean"] = rounded(fmean(everything))
    found["records"] = len(everything)
    return found


def p99s_of(turns: Sequence[T], p99_ms: Callable[[Sequence[T]], float | None]) -> dict[str, Any]:
    """Of each turn in order, None where nothing came; their spread; and of all but the worst.

    The last is for short turns, which are compared: of some, one stall of the machine is the p99.
    """
    each = [p99_ms([turn]) for turn in turns]
    known = [one for one in each if one is not None]
    worst = each.index(max(known))
    calm = [turn for place, turn in enumerate(turns) if place != worst]
    return {
        "p99_spread": [rounded(min(known)), rounded(median(known)), rounded(max(known))],
        "p99_rounds": [rounded(one) for one in each],
        "p99_calm": rounded(p99_ms(calm) or max(known)),
    }


def _p99_of_lists(turns: Sequence[Sequence[float]]) -> float | None:
    everything = [value for turn in turns for value in turn]
    return percentile(everything, 99) if everything else None


def p99_of_histograms(turns: Sequence[Histogram]) -> float | None:
    """Of all together, in ms; None: nothing came."""
    whole = merged(turns)
    return whole.percentile_ns(99) / 1e6 if whole.total else None


def merged(turns: Sequence[Histogram]) -> Histogram:
    """All together."""
    whole = Histogram()
    for turn in turns:
        whole.merge(turn)
    return whole


def ship(section: str) -> None:
    """Have workers be sent what a section's module and this one define: they cannot import them."""
    for name in (section, __name__):
        cloudpickle.register_pickle_by_value(sys.modules[name])
