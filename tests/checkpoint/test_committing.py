"""The driver's thread: whoever asks for an epoch hears that it counts, or why it does not."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

import tailrace as tr
from tailrace.checkpoint.committing import Committer, Written
from tailrace.checkpoint.epochs import Write
from tailrace.checkpoint.errors import CheckpointError, DamagedError, LeaseLostError
from tailrace.checkpoint.manifest import Manifest
from tailrace.checkpoint.store import Store
from tests.checkpoint.memory import Memory
from tests.checkpoint.writing import flip, write_epoch


class Told:
    """What a worker without state says."""

    sections = ()
    handles = ()
    finished = ()


ONE_WORKER = (Told(),)


class Lease:
    """Held, but for what happens when it is asked."""

    generation = 1

    def __init__(self) -> None:
        self.answers: Iterator[Exception | None] = iter(())
        self.released = False

    def check(self) -> None:
        if (error := next(self.answers, None)) is not None:
            raise error

    renew = check

    def release(self) -> None:
        self.released = True


class Refusing(Memory):
    """A folder that cannot be written to for some time."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.writes = 0

    def write(self, name: str, data: Any) -> None:
        self.writes += 1
        if self.errors:
            raise self.errors.pop(0)
        super().write(name, data)


class Driver:
    """Asks for epochs, one after the other, and waits for what it is told."""

    def __init__(self) -> None:
        topology = tr.Topology("numbers")
        topology.source(range(3)).sink(tr.sinks.console())
        self.folder = Refusing()
        self.lease = Lease()
        self.manifest = Manifest.beginning("job", "numbers", 0.0)
        self.manifest = Store(self.folder, self.lease).resume(self.manifest)
        self.folder.writes = 0
        lease: Any = self.lease
        self.committer = Committer(
            Store(self.folder, lease), lease, self.manifest, topology.graph, {}, 3
        )
        self._told: queue.SimpleQueue[Written | str] = queue.SimpleQueue()

    def write(self, epoch: int, parts: Any = ONE_WORKER) -> Written | str:
        """What is told, which nothing follows."""
        write = Write(epoch, parts, ended=False)
        self.committer.write(write, 0, self._told.put, self._told.put)
        told = self._told.get(timeout=60)
        assert self._told.empty()
        return told

    @property
    def latest(self) -> int:
        found = Store(self.folder).latest()
        assert found is not None
        return found.epoch


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr("tailrace.checkpoint.committing._PAUSE_S", 0.0)
    driver = Driver()
    yield driver
    driver.committer.close()
    assert driver.lease.released


def counts(told: Written | str) -> int:
    assert isinstance(told, Written), told
    return told.manifest.epoch


def test_an_epoch_counts_when_whoever_asked_is_told(driver: Driver) -> None:
    assert counts(driver.write(1)) == driver.latest == driver.committer.manifest.epoch == 1
    assert counts(driver.write(2)) == driver.latest == 2


def test_storage_that_fails_for_a_while_is_tried_again(driver: Driver) -> None:
    driver.folder.errors = [CheckpointError("no room")] * 4
    assert counts(driver.write(1)) == driver.latest == 1
    assert driver.folder.writes == 5


def test_after_five_tries_the_epoch_is_given_up_and_the_one_before_stays(driver: Driver) -> None:
    driver.folder.errors = [CheckpointError("no room")] * 5
    assert driver.write(1) == "epoch 1 cannot be committed: no room; tried 5 times"
    assert driver.folder.writes == 5
    assert driver.latest == 0
    assert counts(driver.write(1)) == 1, "the thread lives"


def test_who_has_lost_the_lease_is_told_and_does_not_try_again(driver: Driver) -> None:
    driver.lease.answers = iter([LeaseLostError("somebody else has it")])
    assert driver.write(1) == "somebody else has it"
    assert not driver.folder.writes


@pytest.mark.parametrize("error", [MemoryError("full"), OSError(9, "Bad file descriptor")])
def test_what_nobody_thought_of_fails_the_job_and_not_the_thread(
    driver: Driver, error: Exception
) -> None:
    driver.folder.errors = [error]
    told = driver.write(1)
    assert isinstance(told, str)
    assert f"failed with epoch 1: {error!r}" in told
    told = driver.write(1, parts=(None,))
    assert isinstance(told, str)
    assert "AttributeError" in told
    assert counts(driver.write(1)) == 1


def test_an_epoch_whose_manifest_is_there_is_not_said_to_be_uncommitted(driver: Driver) -> None:
    """Nobody could say who has the folder, once the manifest was written."""
    slow = CheckpointError("slow down")
    driver.lease.answers = iter([None, slow, slow, None, slow, slow, slow])
    told = driver.write(1)
    assert isinstance(told, str)
    assert told.startswith("epoch 1 may be committed or not: its manifest is written")
    assert told.endswith("slow down; tried 5 times")
    assert driver.latest == 1


def test_a_lease_that_answers_again_makes_a_doubtful_epoch_count(driver: Driver) -> None:
    driver.lease.answers = iter([None, CheckpointError("slow down")])
    assert counts(driver.write(1)) == driver.latest == 1


def test_a_savepoint_of_what_is_damaged_is_refused_and_epochs_go_on(driver: Driver) -> None:
    first = write_epoch(Store(driver.folder), 1, {"a": 1})
    driver.committer.manifest = first
    flip(driver.folder, first.sections[0].file, 20)
    told: queue.SimpleQueue[Manifest | CheckpointError] = queue.SimpleQueue()
    driver.committer.savepoint(Memory(), told.put)
    error = told.get(timeout=60)
    assert isinstance(error, DamagedError)
    assert first.sections[0].file in str(error)
    assert counts(driver.write(2)) == 2
