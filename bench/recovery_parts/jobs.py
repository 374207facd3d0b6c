"""The jobs that `bench/recovery.py` measures, on a local Spark with two workers."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import tailrace as tr
from harness.arrivals import POISSON, pace_of
from harness.process import Peer, hear
from recovery_parts import arrivals as when
from recovery_parts import keyed
from recovery_parts.arrivals import SOURCES, Arrivals, audit
from recovery_parts.keyed import counts, results
from tailrace.cli.bench import WORKLOADS
from tailrace.runtime.histogram import Histogram
from tailrace.sources import unpaced
from tailrace.spark.job import Job

WORKERS = 2
EPOCH_S = 1.0
RATE_PER_S = 10_000
NEVER_S = 1e6
KILL_EVERY_S = 1.75
"""About: an epoch, half of another on average, and the recovery."""
_PATIENCE_S = 60.0
_PROGRESS_S = 0.1
_WARM_S = 0.9
"""Before the first epoch, which is when one begins."""
PARTS = 3
"""Of a run whose latency is measured, each with a figure of its own."""
RECEIVER = Path(__file__).with_name("receiver.py")

for module in (when, keyed):  # which the workers' import path does not have
    cloudpickle.register_pickle_by_value(module)


def made(folder: Path, keys: int, seconds: float, changing: int, seed: int = 0) -> Arrivals:
    """Arrivals at the benchmark's rate, with their files in a folder."""
    folder.mkdir()
    arrivals = Arrivals(str(folder), keys, round(seconds * RATE_PER_S), changing)
    pace = pace_of(POISSON, RATE_PER_S, seed)
    arrivals.write({index: pace.offsets_ns(index, SOURCES, 0) for index in range(SOURCES)})
    return arrivals


@contextmanager
def ended(job: Job) -> Iterator[Job]:
    """A job that is over afterwards, whatever happens."""
    try:
        yield job
    finally:
        if job.is_active:
            job.stop(drain=False)


def await_that(job: Job, what: str, holds: Any) -> None:
    """Wait until something holds of a running job."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not holds():
        if not job.is_active:
            raise RuntimeError(f"the job has ended before {what}: {job.exception()}")
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not {what} within {_PATIENCE_S:.0f} s; it is {job.status}")
        time.sleep(0.002)


def emitted(job: Job) -> int:
    """Records of all sources so far, as last told."""
    return sum(job.last_progress.emitted.values())


# ---- the highest rate ----


def highest_rate(spark: Any, seconds: float, checkpoints: Path | None) -> float:
    """Sentences per second that word count takes, from its sources' first to their last."""
    build, make, fan_out = WORKLOADS["word count"]
    topology = build(unpaced(make, seconds=seconds))
    job = topology.start(spark, workers=WORKERS, checkpoint=checkpoints, checkpoint_s=EPOCH_S)
    with ended(job):
        if not job.await_termination(_PATIENCE_S):
            raise RuntimeError(f"word count did not end; it is {job.status}")
    progress = job.last_progress
    if not progress.balanced or progress.delivered != emitted(job) * fan_out:
        raise RuntimeError("word count lost records, or delivered some twice")
    return emitted(job) / seconds


# ---- what checkpoints take ----


@dataclass(frozen=True)
class Costs:
    """Of one state: a full checkpoint, and those in which one key of a hundred has changed."""

    full_ms: float
    full_bytes: int
    changed_ms: list[float]
    changed_bytes: list[int]


def checkpoint_costs(spark: Any, arrivals: Arrivals, folder: Path, rounds: int) -> Costs:
    """Fill the state, then ask for checkpoints; the folder has them afterwards."""
    job = counts(arrivals).start(
        spark,
        workers=WORKERS,
        checkpoint=folder,
        checkpoint_s=NEVER_S,
        progress_s=_PROGRESS_S,
    )
    with ended(job):
        await_that(job, "filled", lambda: job.last_progress.delivered >= arrivals.keys)
        found = [_checkpoint(job)]
        for _ in range(rounds):
            time.sleep(EPOCH_S)  # which is how long it takes to change one of a hundred
            found.append(_checkpoint(job))
    full, *changed = found
    return Costs(full[0], full[1], [ms for ms, _ in changed], [size for _, size in changed])


def _checkpoint(job: Job) -> tuple[float, int]:
    """Make one now: how long it took, from its beginning to its manifest, and its bytes."""
    coordinator = job._coordinator
    before = coordinator.last_checkpoint
    coordinator.ask_epoch()
    await_that(job, "committed", lambda: coordinator.last_checkpoint is not before)
    made = coordinator.last_checkpoint
    assert made is not None
    return made.took_ms, made.new_bytes


# ---- latency ----


@dataclass(frozen=True)
class Latency:
    """Of one run at the benchmark's rate, from when records were due to the end of the sink."""

    parts: list[Histogram]
    """When the state has been restored and, with checkpoints, all of it was written once."""
    first: Histogram | None
    """While it was, which happens once in a job's life; None: without checkpoints."""
    start_s: float
    """From `start` until the sources ran, with the state restored."""
    epochs: list[tuple[float, int]]
    """The checkpoints while `parts` were measured, one after the other: ms and bytes."""

    @property
    def whole(self) -> Histogram:
        """All parts together."""
        whole = Histogram()
        for part in self.parts:
            whole.merge(part)
        return whole


def latency(
    spark: Any, arrivals: Arrivals, state: Path, seconds: float, checkpoints: Path | None
) -> Latency:
    """Go on from a state, with an epoch every second in a new folder, or without any."""
    begun_s = time.monotonic()
    job = counts(arrivals).start(
        spark,
        workers=WORKERS,
        progress_s=_PROGRESS_S,
        restore=state,
        checkpoint=checkpoints,
        checkpoint_s=EPOCH_S,
    )
    coordinator = job._coordinator
    with ended(job):
        job.await_running(_PATIENCE_S)
        start_s = time.monotonic() - begun_s
        time.sleep(_WARM_S * EPOCH_S)
        warm = job.last_progress
        first = None
        if checkpoints is not None:
            await_that(job, "committed", lambda: coordinator.last_checkpoint is not None)
            time.sleep(2 * _PROGRESS_S)
            first = job.last_progress.latency_since(warm)
        epochs: dict[int, tuple[float, int]] = {}
        before, parts = coordinator.last_checkpoint, []
        for _ in range(PARTS):
            since, until_s = job.last_progress, time.monotonic() + seconds / PARTS
            while time.monotonic() < until_s and job.is_active:
                last = coordinator.last_checkpoint
                if last is not None and last is not before:
                    epochs[last.epoch] = (last.took_ms, last.new_bytes)
                time.sleep(0.05)
            parts.append(job.last_progress.latency_since(since))
        error = job.exception()
        if error is not None:
            raise error
    return Latency(parts, first, start_s, list(epochs.values()))


# ---- under back-pressure ----


def under_backpressure(spark: Any, folder: Path, count: int) -> list[float]:
    """How long checkpoints take, in ms, when the sink takes a millisecond for each record.

    The first is asked for when nobody knows yet how slow it is.
    """
    topology = tr.Topology("slow")
    records = topology.source(unpaced(), name="records", parallelism=SOURCES)
    counted = records.key_by(lambda number: number % 100).scan(
        lambda state, _: (state or 0) + 1, name="count", parallelism=2
    )
    counted.shuffle().sink(lambda _: time.sleep(0.001), name="slow", parallelism=1)
    job = topology.start(
        spark,
        workers=WORKERS,
        checkpoint=folder,
        checkpoint_s=NEVER_S,
        progress_s=_PROGRESS_S,
    )
    with ended(job):
        await_that(job, "running", lambda: job.last_progress.delivered > 0)
        found = []
        for _ in range(count):
            found.append(_checkpoint(job)[0])
            time.sleep(0.2)
    return found


# ---- kills ----


@dataclass(frozen=True)
class Killed:
    """One kill -9 of a worker; times in ms from then on, at a receiver outside of the job."""

    opened_ms: float
    """The sink of the process in its place has connected."""
    first_ms: float
    """It has told a result, be it one that was there before,"""
    new_ms: float
    """and one that had not been there before."""


@dataclass(frozen=True)
class Kills:
    """All kills of a job."""

    kills: list[Killed]
    restarts: int
    lost: int
    duplicated: int
    noticed_to_running_ms: list[float]


def kills(spark: Any, folder: Path, keys: int, count: int, seed: int = 0) -> Kills:
    """Kill random workers of a job at the benchmark's rate; it ends by itself."""
    chance = random.Random(seed)
    folder.mkdir()
    seconds = 2.0 + count * KILL_EVERY_S
    arrivals = made(folder / "due", keys, seconds, keys, seed)
    receiver = Peer([sys.executable, str(RECEIVER), str(arrivals.total)], folder)
    try:
        port = hear(receiver)[0]["port"]
        topology = counts(arrivals, waits_for_nobody=True, port=port, files=folder / "files")
        job = topology.start(
            spark,
            workers=WORKERS,
            checkpoint=folder / "checkpoints",
            checkpoint_s=EPOCH_S,
            progress_s=_PROGRESS_S,
        )
        with ended(job):
            await_that(job, "filled", lambda: emitted(job) > arrivals.keys + RATE_PER_S / 10)
            struck: list[tuple[int, int]] = []
            while len(struck) < count:
                # A second failure without an epoch between has to wait, and by how long is known.
                _await_epoch(job)
                time.sleep(chance.random() * EPOCH_S)
                if not job.is_active:
                    break
                struck.append(_strike(job, chance))
                await_that(job, "noticed", lambda: _restarts(job) >= len(struck))
            if not job.await_termination(_PATIENCE_S):
                raise RuntimeError(f"the job did not end; it is {job.status}")
        progress = job.last_progress
        senders = receiver.ask("done")["senders"]
    finally:
        receiver.end()
    lost, duplicated = audit(arrivals, results(folder / "files"))
    took_ms = [event.took_ms for event in progress.events]
    killed = [_after(at_ns, pid, senders) for at_ns, pid in struck]
    return Kills(
        [one for one in killed if one is not None], progress.restarts, lost, duplicated, took_ms
    )


def _restarts(job: Job) -> int:
    return job._coordinator.roster.recovery.restarts.total


def _await_epoch(job: Job) -> None:
    """Until it runs, and has made an epoch since now; or until it has ended."""
    coordinator = job._coordinator
    await_that(job, "running", lambda: job.status == "running" or not job.is_active)
    before = coordinator.last_checkpoint
    while job.is_active and coordinator.last_checkpoint is before:
        time.sleep(0.002)


def _strike(job: Job, chance: random.Random) -> tuple[int, int]:
    pid = chance.choice(job.workers)["pid"]
    at_ns = time.monotonic_ns()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return at_ns, pid


def _after(at_ns: int, killed: int, senders: list[dict[str, int]]) -> Killed | None:
    """What came from the process that took the place of the one killed: the next new one."""
    before = {one["pid"] for one in senders if one["came_ns"] < at_ns}
    for one in senders:
        if one["came_ns"] >= at_ns and one["pid"] not in before and one["first_new_ns"]:
            times = (one[name] - at_ns for name in ("came_ns", "first_ns", "first_new_ns"))
            return Killed(*(time_ns / 1e6 for time_ns in times))
    return None
