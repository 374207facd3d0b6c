"""What we need of a Spark session, for each of the two kinds that there are."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Protocol

from tailrace.control.protocol import Settings

_REGISTRATION_S = 10.0
_ANY_PORT = 9
_RANGE_ROWS = 1 << 20


class Cluster(Protocol):
    """A Spark, as the place where workers run."""

    @property
    def is_local(self) -> bool:
        """Whether the workers run on this very machine."""

    def master(self) -> str:
        """Its master: `local[4]`, `spark://...`."""

    def slots(self, wanted: int) -> int:
        """How many tasks it runs at a time; waits a while for executors if it is too few."""

    def host(self) -> str:
        """The address of this process, as the executors reach it."""

    def name(self, group: str, description: str) -> None:
        """Give what this thread runs from now on a name to cancel it by."""

    def ask(self, tasks: int, question: Callable[[], str]) -> list[str]:
        """Call it in so many tasks of one barrier stage; return when all have answered."""

    def cancel(self, group: str) -> None:
        """End what runs under that name; nothing happens if nothing does."""


def cluster_of(spark: Any) -> Cluster:
    """The session's cluster; raises if the session has been stopped."""
    if not any(one.__name__ == "SparkSession" for one in type(spark).__mro__):
        raise TypeError(f"a SparkSession is needed to run on; got {spark!r}")
    connect = type(spark).__module__.startswith("pyspark.sql.connect")
    if spark.is_stopped if connect else spark.sparkContext._jsc is None:
        raise ValueError("the Spark session has been stopped; make a new one and use that")
    return Connect(spark) if connect else Classic(spark)


class Classic:
    """A session whose driver is this process: barrier tasks by the RDD API, which is quicker."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        master = self.master()
        self._local = master == "local" or master.startswith("local[")
        if self._local:
            self._context.pythonExec = sys.executable  # the workers of a local Spark run what we do

    @property
    def is_local(self) -> bool:
        """Whether its master is this process."""
        return self._local

    def master(self) -> str:
        """That of the context; the session's settings may have been set to anything since."""
        master: str = self._context.master
        return master

    def slots(self, wanted: int) -> int:
        """Spark's own count, which grows as executors register."""
        deadline = time.monotonic() + _REGISTRATION_S
        while True:
            slots: int = self._context.defaultParallelism
            if slots >= wanted or self._local or time.monotonic() > deadline:
                return slots
            time.sleep(0.1)

    def host(self) -> str:
        """The driver's host."""
        if self._local:
            return "127.0.0.1"
        return socket.gethostbyname(self._context.getConf().get("spark.driver.host"))

    def name(self, group: str, description: str) -> None:
        """Set the job group."""
        self._context.setJobGroup(group, description, interruptOnCancel=True)

    def ask(self, tasks: int, question: Callable[[], str]) -> list[str]:
        """As tasks of an RDD."""
        stage = self._context.parallelize(range(tasks), tasks).barrier()
        answers: list[str] = stage.mapPartitions(lambda _: iter((question(),))).collect()
        return answers

    def cancel(self, group: str) -> None:
        """Cancel the job group; nothing happens if Spark has been stopped."""
        with suppress(Exception):
            self._context.cancelJobGroup(group)


class Connect:
    """A session by Spark Connect: there is no RDD API, and the driver is somewhere else."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, and its own cluster."""
        return self._is_its_own() and self.host() == "127.0.0.1"

    def master(self) -> str:
        """What the server's settings say."""
        return str(self._spark.conf.get("spark.master", ""))

    def slots(self, wanted: int) -> int:
        """The number of partitions that Spark gives a range, which is its parallelism."""
        deadline = time.monotonic() + _REGISTRATION_S
        while True:
            parts = self._spark.range(_RANGE_ROWS).selectExpr("spark_partition_id() as part")
            slots: int = parts.distinct().count()
            if slots >= wanted or time.monotonic() > deadline or self._is_its_own():
                return slots
            time.sleep(0.5)

    def _is_its_own(self) -> bool:
        return self.master().startswith("local[")

    def host(self) -> str:
        """The address of the route to the server."""
        server = socket.gethostbyname(self._spark.client.host)
        if ip_address(server).is_loopback:
            return "127.0.0.1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((server, _ANY_PORT))  # sends nothing
            host: str = probe.getsockname()[0]
            return host

    def name(self, group: str, description: str) -> None:
        """Add a tag; tags belong to the thread that adds them."""
        self._spark.addTag(group)

    def ask(self, tasks: int, question: Callable[[], str]) -> list[str]:
        """As tasks of a query."""

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for _ in batches:
                pass
            yield pa.RecordBatch.from_pydict({"answer": pa.array([question()], pa.string())})

        stage = self._spark.range(0, tasks, 1, tasks)
        return [row[0] for row in stage.mapInArrow(task, "answer string", barrier=True).collect()]

    def cancel(self, group: str) -> None:
        """Interrupt what has the tag."""
        with suppress(Exception):
            self._spark.interruptTag(group)


def work(settings: Settings) -> str:
    """One task: run the worker of this rank."""
    from pyspark import BarrierTaskContext

    from tailrace.control.worker import Worker

    task = BarrierTaskContext.get()
    rank: int = task.partitionId()
    Worker(settings, rank, task.getTaskInfos()[rank].address).run()
    return str(rank)
