"""How workers hear that a job stops: while they are busy, and after a peer that heard it first."""

from __future__ import annotations

import socket
import threading
import time

import pytest

import tailrace as tr
from tailrace.connectors.generate import Generate
from tailrace.control.clocks import Reference
from tailrace.control.coordinator import Coordinator
from tailrace.control.meeting import WorkerJob
from tailrace.control.protocol import Settings
from tailrace.control.worker import Worker
from tailrace.runtime.core import DEFAULT_LIMITS

PATIENCE_S = 60.0
HOUR_NS = 3_600_000_000_000


class Running:
    """A worker, made and run in a thread of its own."""

    def __init__(self, settings: Settings, rank: int, topology: tr.Topology) -> None:
        self._worker: Worker | None = None
        job = (topology.graph, tuple(range(settings.workers)), DEFAULT_LIMITS)
        self._thread = threading.Thread(target=self._run, args=(settings, rank, job))
        self._thread.start()

    def _run(self, settings: Settings, rank: int, job: WorkerJob) -> None:
        self._worker = Worker(settings, rank, "here", job)
        self._worker.run()

    @property
    def error(self) -> str:
        return self._worker.error if self._worker is not None else ""

    def await_error(self, part: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while part not in self.error and self._thread.is_alive():
            assert time.monotonic() < deadline_s, self.error
            self._thread.join(0.01)
        assert part in self.error

    def join(self) -> str:
        """What it ends with."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("ahead_ns", [-100 * HOUR_NS, 100 * HOUR_NS])
def test_a_worker_that_never_rests_hears_it_whatever_the_jobs_clock_says(ahead_ns: int) -> None:
    """Its sockets are looked at by the host's own clock."""
    coordinator = Coordinator(1, "127.0.0.1", lambda: None)
    coordinator.clock = Reference(lambda: time.monotonic_ns() + ahead_ns)
    settings = Settings(1, coordinator.address, coordinator.secret, b"", waiting="spin")
    topology = tr.Topology()
    topology.source(Generate()).sink(lambda _: None)  # without end
    worker = Running(settings, 0, topology)
    assert coordinator.started.wait(PATIENCE_S)
    coordinator.stop(drain=True)
    assert worker.join() == ""
    coordinator.join(PATIENCE_S)
    assert coordinator.roster.phase == "stopped"


class Relay:
    """Between a worker and the coordinator: holds back what the coordinator says, when asked."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._target = target
        self.open = threading.Event()
        self.open.set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        worker, _ = self._listener.accept()
        self._listener.close()
        coordinator = socket.create_connection(self._target)
        up = threading.Thread(target=self._pump, args=(worker, coordinator), daemon=True)
        up.start()
        self._pump(coordinator, worker, self.open)
        up.join()
        worker.close()
        coordinator.close()

    @staticmethod
    def _pump(
        source: socket.socket, target: socket.socket, may_go: threading.Event | None = None
    ) -> None:
        try:
            while some := source.recv(1 << 16):
                if may_go is not None:
                    may_go.wait()
                target.sendall(some)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def test_a_peer_that_has_heard_of_a_good_end_first_is_not_taken_for_lost() -> None:
    coordinator = Coordinator(2, "127.0.0.1", lambda: None)
    relay = Relay(coordinator.address)
    topology = tr.Topology()
    topology.source(Generate()).gather().sink(lambda _: None)
    slow, quick = (
        Running(Settings(2, address, coordinator.secret, b"", node="worker"), rank, topology)
        for rank, address in enumerate((relay.address, coordinator.address))
    )
    assert coordinator.started.wait(PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while 0 not in coordinator.roster.progress:  # it has heard that all may begin
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    relay.open.clear()
    coordinator.stop(drain=False)
    assert quick.join() == ""
    slow.await_error("has lost worker 1")  # it is gone, and nobody has said why
    relay.open.set()
    assert slow.join() == ""
    coordinator.join(PATIENCE_S)
    assert coordinator.roster.phase == "stopped"
