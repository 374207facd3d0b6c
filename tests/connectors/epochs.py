"""A job reduced to its sinks: epochs, a manifest on disk, and lives that may be cut short."""

from __future__ import annotations

import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from tailrace.runtime.sink import Sink, SinkStep, Writing

PER_EPOCH = 7


def step_of(
    sink: Sink, epoch: int | None, index: int = 0, parallelism: int = 1, **who: str
) -> SinkStep:
    """One instance of a sink as a worker runs it, going on from an epoch."""
    writing = Writing(who.get("job", "job"), who.get("operator", "sink"), index, parallelism, epoch)
    sink.begin(writing)
    return SinkStep(sink, SimpleNamespace(clock_ns=lambda: 0, set_timer=lambda at_ns, tag: None))


class Manifest:
    """What counts: the newest epoch, and how to commit it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.epoch = 0
        self.handles: list[Any] = []
        self.snapshots: list[Any] = []
        if path.exists():
            self.epoch, self.handles, self.snapshots = pickle.loads(path.read_bytes())

    def write(self, epoch: int, handles: list[Any], snapshots: list[Any]) -> None:
        """Whole or not at all."""
        new = self._path.with_suffix(".new")
        new.write_bytes(pickle.dumps((epoch, handles, snapshots)))
        new.replace(self._path)
        self.epoch, self.handles, self.snapshots = epoch, handles, snapshots


def begin_all(make: Callable[[], Sink], manifest: Manifest, parallelism: int) -> list[SinkStep]:
    """All instances, going on from what counts."""
    steps = [step_of(make(), manifest.epoch, index, parallelism) for index in range(parallelism)]
    for step in steps:
        for snapshot in manifest.snapshots:
            step.put_shared(snapshot)
    steps[0].committed(manifest.epoch, [one for one in manifest.handles if one is not None])
    return steps


def epoch_of(steps: list[SinkStep], records: list[Any], manifest: Manifest) -> None:
    """Write and commit one more epoch: the records behind those of the epochs before."""
    epoch = manifest.epoch + 1
    some = records[manifest.epoch * PER_EPOCH : epoch * PER_EPOCH]
    for index, step in enumerate(steps):
        step.process(iter(some[index :: len(steps)]), 0)
    handles = [step.cut(epoch) for step in steps]
    for step in steps:
        step.sync(step.unsynced)
    manifest.write(epoch, handles, [step.shared() for step in steps])
    for step in steps:
        step.committed(epoch)


def live(
    make: Callable[[], Sink], records: list[Any], manifest_path: Path, parallelism: int = 2
) -> None:
    """From what counts to the end."""
    manifest = Manifest(manifest_path)
    steps = begin_all(make, manifest, parallelism)
    while manifest.epoch * PER_EPOCH < len(records):
        epoch_of(steps, records, manifest)
    for step in steps:
        step.finish()
    epoch_of(steps, records, manifest)
    for step in steps:
        step.close()


class DiskError(Exception):
    """Raised in the middle of what a sink does."""


def die_at(number: int, die: Callable[[], object]) -> Callable[[], bool]:
    """In this process, which must be about to end: `die` before the so-manieth use of the disk.

    Returns what says whether it came to that.
    """
    used = 0

    def count(event: str, _: tuple[Any, ...] = ()) -> None:
        nonlocal used
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.fsync"):
            used += 1
            if used == number:
                die()

    fsync = os.fsync

    def counted(descriptor: Any) -> None:
        count("os.fsync")
        fsync(descriptor)

    os.fsync = counted  # type: ignore[assignment]
    sys.addaudithook(count)
    return lambda: used >= number


def in_child(do: Callable[[], None]) -> int:
    """Run it in a fork; returns its exit status: 0, or 1 if it raised, or what it exits with."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            do()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill() -> NoReturn:
    """As the system kills: nothing is closed, nothing is flushed."""
    os._exit(9)


def fail() -> NoReturn:
    """As a disk fails."""
    raise DiskError("in the middle")


def chances(seed: int) -> random.Random:
    """What happens follows from the seed alone."""
    return random.Random(seed)
