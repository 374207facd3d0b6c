"""A running topology: started on a SparkSession, watched and stopped from the driver."""

from __future__ import annotations

import atexit
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from pyspark import cloudpickle

from tailrace.control.coordinator import FAILED, Coordinator
from tailrace.control.progress import Summary, summarise
from tailrace.control.protocol import Settings
from tailrace.graph.expand import Chain
from tailrace.graph.explain import explain
from tailrace.graph.model import Graph
from tailrace.graph.wiring import Wiring, wire
from tailrace.runtime.core import DEFAULT_LIMITS, Limits
from tailrace.spark.cluster import Cluster, cluster_of
from tailrace.spark.feed import Feed, dataframes
from tailrace.spark.launch import run_workers

_RECENT = 100
NODES = ("memory", "executor", "worker")
_running: weakref.WeakSet[Job]


class JobFailedError(RuntimeError):
    """The job ended because something went wrong; the message says what."""


class Job:
    """The handle of a started topology, in the manner of a Spark streaming query.

    `topology.start(spark)` returns it at once. A job whose sources are bounded ends by itself.
    """

    def __init__(
        self, wiring: Wiring, placement: tuple[int, ...], workers: int, coordinator_host: str
    ) -> None:
        self.id = str(uuid.uuid4())
        self.name = wiring.graph.name
        self.placement = placement
        self._wiring = wiring
        self._started = time.monotonic()
        self._over = threading.Event()
        self._feeds: list[Feed] = []
        self._coordinator = Coordinator(workers, coordinator_host, self._end)
        self._feeds = [
            Feed(name, source, f"{self.id}-{number}", self._coordinator, wiring, placement)
            for number, (name, source) in enumerate(dataframes(wiring.graph))
        ]
        self._recent: deque[Summary] = deque(maxlen=_RECENT)
        _running.add(self)

    @property
    def status(self) -> str:
        """One of "starting", "running", "draining", "stopped", "failed"."""
        return self._coordinator.roster.phase

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Which operators run fused, and the numbers of their instances."""
        return self._wiring.chains

    @property
    def is_active(self) -> bool:
        """Whether it has not ended yet."""
        return not self._over.is_set()

    @property
    def last_progress(self) -> Summary:
        """What the job has done so far, as its workers last told (about every half second)."""
        summary = summarise(self._coordinator.roster, self._wiring)
        if not self._recent or self._recent[-1].at_ns != summary.at_ns:
            self._recent.append(summary)
        return summary

    @property
    def recent_progress(self) -> list[Summary]:
        """The last results of `last_progress`, oldest first."""
        return list(self._recent)

    @property
    def workers(self) -> list[dict[str, Any]]:
        """Where each worker runs: rank, pid, host, and how it reaches the others."""
        roster = self._coordinator.roster
        return [
            {"rank": rank, "pid": hello.pid, "host": hello.host, "ways": roster.ways.get(rank, {})}
            for rank, hello in sorted(roster.hellos.items())
        ]

    def explain(self) -> str:
        """What runs where, as text; with the ways between workers once they have met."""
        roster = self._coordinator.roster
        return explain(self._wiring, self.placement, roster.workers, roster.ways)

    def exception(self) -> JobFailedError | None:
        """Why it failed; None while it has not."""
        roster = self._coordinator.roster
        if roster.phase != FAILED:
            return None
        detail = f"\n\n{roster.traceback}" if roster.traceback else ""
        return JobFailedError(f"{roster.reason}{detail}")

    def await_running(self, timeout_s: float | None = None) -> bool:
        """Wait until all workers are there and its sources start, or until it has ended.

        False when the time is over first.
        """
        return self._coordinator.started.wait(timeout_s)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False when the time is over first. Raises if the job failed."""
        ended = self._over.wait(timeout_s)
        error = self.exception()
        if error is not None:
            raise error
        return ended

    def stop(self, *, drain: bool = True, timeout_s: float = 30.0) -> None:
        """End it: let everything under way run out (`drain`), or at once.

        Returns when no worker is left. What has not drained within `timeout_s` is stopped at once.
        """
        self._coordinator.stop(drain)
        if not self._over.wait(timeout_s):
            self._coordinator.stop(False)
            self._over.wait()
        self._coordinator.join()

    def _end(self) -> None:
        for feed in self._feeds:
            feed.stop()
        self._over.set()


_running = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for job in list(_running):
        if job.is_active:
            job.stop(drain=False, timeout_s=5.0)


def start(
    graph: Graph,
    spark: Any,
    *,
    workers: int | None = None,
    placement: tuple[int, ...] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    node: str = "memory",
    ring_bytes: int = 8 << 20,
) -> Job:
    """Start a graph on Spark; see `Topology.start`."""
    if node not in NODES:
        raise ValueError(f"node is {node!r}; it must be one of {NODES}")
    cluster = cluster_of(spark)
    wiring = wire(graph)
    if placement is not None:
        workers = max(placement) + 1
        if len(placement) != wiring.instances:
            raise ValueError(
                f"the placement has {len(placement)} instances; the topology has {wiring.instances}"
            )
    fed = [name for name, _ in dataframes(graph)]
    workers = count_workers(cluster, wiring, workers, fed)
    if placement is None:
        placement = spread(wiring, workers)
    job = Job(wiring, placement, workers, cluster.host())
    coordinator = job._coordinator
    settings = Settings(
        workers=workers,
        coordinator=coordinator.address,
        secret=coordinator.secret,
        job=cloudpickle.dumps((graph, placement, limits)),
        ring_bytes=ring_bytes,
        node=node,
    )
    run_workers(cluster, settings, job.id, graph.name, coordinator)
    for feed in job._feeds:
        feed.start()
    return job


def count_workers(
    cluster: Cluster, wiring: Wiring, wanted: int | None, fed: Sequence[str] = ()
) -> int:
    """How many workers there will be: as many as wanted, or as are of use. Raises if too many.

    They keep their task slots. The DataFrames of the sources `fed` need one to be read at all.
    """
    slots = cluster.slots((wanted or wiring.instances) + bool(fed))
    workers = max(1, min(slots - bool(fed), wiring.instances)) if wanted is None else wanted
    if not 1 <= workers <= slots:
        raise ValueError(
            f"{workers} workers were asked for; this Spark has {slots} task slots. Ask for fewer,"
            f" or start Spark with more (locally: local[{workers}])"
        )
    if fed and workers == slots:
        raise ValueError(
            f"{workers} workers were asked for; this Spark has {slots} task slots, and the"
            f" DataFrame of {fed[0]!r} needs one of them to be read. Ask for fewer workers,"
            f" or start Spark with more slots (locally: local[{workers + 1}])"
        )
    return workers


def spread(wiring: Wiring, workers: int) -> tuple[int, ...]:
    """Copy i of every chain to worker i (modulo): what is forwarded or local stays local."""
    placement = [0] * wiring.instances
    offset = 0
    for chain in wiring.chains:
        for index, instance in enumerate(chain.instances):
            placement[instance] = (index + offset) % workers
        if chain.parallelism % workers:
            offset += chain.parallelism
    return tuple(placement)
