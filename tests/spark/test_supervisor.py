"""Supervisors without Spark: whoever is killed, and whenever, nothing is left behind."""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark import cloudpickle

import tailrace as tr
from tailrace.control.budget import Budget
from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settings
from tailrace.runtime.core import DEFAULT_LIMITS
from tailrace.spark.supervisor import Supervisor

PATIENCE_S = 60.0


def endless() -> tr.Topology:
    topology = tr.Topology()
    topology.source(tr.sources.rate(100)).sink(lambda _: None)
    return topology


class Task:
    """A process that supervises; `lives` is there as long as it or anybody it has forked is."""

    def __init__(self, settings: Settings) -> None:
        self.lives, held = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.dup2(held, 0)  # a worker keeps what a task reads and prints
                Supervisor(settings, 0, "here").run()
                status = 0
            except RuntimeError as error:
                status = 7 if "before they reached the driver" in str(error) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(held)

    def ended(self) -> int:
        """Wait for the end of it and all its workers; its exit status, negative for a signal."""
        poll = select.poll()
        poll.register(self.lives, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), "somebody is still there"
        os.close(self.lives)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


class Stand:
    """A coordinator and the task of its one worker."""

    def __init__(self, topology: tr.Topology, address: tuple[str, int] | None = None) -> None:
        budget = Budget(restarts=1000, pause_s=0.0)
        self.coordinator = Coordinator(1, "127.0.0.1", lambda: None, recover=True, budget=budget)
        self.task = Task(
            Settings(
                1,
                address or self.coordinator.address,
                self.coordinator.secret,
                cloudpickle.dumps((topology.graph, (0,), DEFAULT_LIMITS)),
                recover=True,
            )
        )

    def worker(self, life: int = 0) -> int:
        """Wait until the worker runs that has had so many before it; its pid."""
        roster, deadline = self.coordinator.roster, time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            hello = roster.hellos.get(0)
            if hello is not None and hello.life >= life and roster.phase == "running":
                return hello.pid
            time.sleep(0.001)
        raise AssertionError(f"{roster.phase} {roster.reason}")

    def close(self) -> None:
        self.coordinator.stop(drain=False)
        assert self.coordinator.join(PATIENCE_S)


@pytest.fixture
def stand() -> Iterator[Callable[..., Stand]]:
    stands: list[Stand] = []

    def make(topology: tr.Topology, address: tuple[str, int] | None = None) -> Stand:
        stands.append(Stand(topology, address))
        return stands[-1]

    yield make
    for one in stands:
        one.close()
        with suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(one.task.pid, os.WNOHANG) == (0, 0):
                os.kill(one.task.pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_replaced_until_the_job_is_over(
    stand: Callable[..., Stand],
) -> None:
    one = stand(endless())
    for life in range(5):
        os.kill(one.worker(life), signal.SIGKILL)
    one.worker(5)
    one.coordinator.stop(drain=True)
    assert one.task.ended() == 0


def test_a_worker_ends_with_its_supervisor(stand: Callable[..., Stand]) -> None:
    one = stand(endless())
    one.worker()
    os.kill(one.task.pid, signal.SIGKILL)
    assert one.task.ended() == -signal.SIGKILL


def test_nothing_is_left_whenever_a_supervisor_is_killed(stand: Callable[..., Stand]) -> None:
    """Also between the fork and what ties the worker to it; also while others die."""
    for seed in range(30):
        chance = random.Random(seed)
        one = stand(endless())
        if seed % 2:
            os.kill(one.worker(), signal.SIGKILL)
        time.sleep(chance.uniform(0.0, 0.04))  # at any moment: that is the point
        os.kill(one.task.pid, signal.SIGKILL)
        assert one.task.ended() == -signal.SIGKILL, seed


def test_when_the_driver_is_gone_the_task_returns(stand: Callable[..., Stand]) -> None:
    one = stand(endless())
    one.worker()
    for connection in list(one.coordinator._connections.values()):
        connection._sock.shutdown(2)  # a way that is cut is found anew
    one.worker(1)
    one.close()
    assert one.task.ended() == 0


def test_a_task_that_comes_when_there_is_no_driver_returns(stand: Callable[..., Stand]) -> None:
    assert stand(endless(), ("127.0.0.1", 9)).task.ended() == 0


def test_workers_that_never_reach_the_driver_are_not_forked_for_ever(
    stand: Callable[..., Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("tailrace.spark.supervisor.Worker", broken)
    monkeypatch.setattr("tailrace.spark.supervisor._PAUSE_S", 0.001)
    assert stand(endless()).task.ended() == 7


class NotesLoading:
    """Leaves a line in a file, with the pid of whoever loads it, and whether that has a parent."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__dict__.update(state)
        with self.file.open("a") as file:
            file.write(f"{os.getpid()}\n")

    def __call__(self, n: int) -> int:
        return n


def test_what_loads_quietly_is_loaded_once_more_and_then_no_more(
    stand: Callable[..., Stand], tmp_path: Path
) -> None:
    topology = tr.Topology()
    notes = tmp_path / "notes"
    topology.source(tr.sources.rate(100)).map(NotesLoading(notes)).sink(lambda _: None)
    one = stand(topology)
    first = one.worker()
    deadline = time.monotonic() + PATIENCE_S
    while len(notes.read_text().split()) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(first, signal.SIGKILL)
    os.kill(one.worker(1), signal.SIGKILL)
    one.worker(2)
    assert [int(pid) for pid in notes.read_text().split()] == [first, one.task.pid]
