"""What we need of a Spark session, of whichever kind it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tailrace.control.protocol import Settings


class Cluster(Protocol):
    """A Spark, as the place where workers run."""

    @property
    def is_local(self) -> bool:
        """Whether the workers run on this very machine."""

    @property
    def scales(self) -> bool:
        """Whether it brings up executors for tasks that wait (dynamic allocation)."""

    @property
    def stopped(self) -> bool:
        """Whether the session has ended; what was not submitted by then never runs."""

    def master(self) -> str:
        """Its master: `local[4]`, `spark://...`."""

    def setting(self, name: str) -> str:
        """One of Spark's settings; empty if it is not set."""

    def enabled(self, name: str) -> bool:
        """Whether one of Spark's settings is true."""

    def slots(self, wanted: int) -> int:
        """How many tasks it runs at a time; waits a while for executors if it is too few."""

    def most(self) -> int | None:
        """How many that can ever be, if its settings say so."""

    def host(self) -> str:
        """The address of this process, as the executors reach it."""

    def name(self, group: str, description: str) -> None:
        """Give what this thread runs from now on a name to cancel it by."""

    def python(self) -> AbstractContextManager[None]:
        """Python functions given to Spark meanwhile run as ours do, with what was shipped.

        Then the session is as it was.
        """

    def ask(self, tasks: int, question: Callable[[], str]) -> list[str]:
        """Call it in so many tasks; return when all have answered.

        In one barrier stage, so that all of them run at a time or none does and none is copied or
        tried again. Where Spark scales by itself it refuses barrier stages: there they are plain
        tasks, for which it brings up executors, and may start some late, again, or twice.
        """

    def cancel(self, group: str) -> None:
        """End what runs under that name; nothing happens if nothing does."""

    def silent_hosts(self) -> list[str]:
        """Hosts whose executors Spark still counts though they do not answer."""

    def forget(self, hosts: list[str]) -> None:
        """Have Spark give up the executors there and run nothing on them any more."""


def cluster_of(spark: Any) -> Cluster:
    """The session's cluster; raises if the session has been stopped."""
    if not any(one.__name__ == "SparkSession" for one in type(spark).__mro__):
        raise TypeError(f"a SparkSession is needed to run on; got {spark!r}")
    from tailrace.spark.classic import Classic
    from tailrace.spark.connect import Connect

    connect = type(spark).__module__.startswith("pyspark.sql.connect")
    cluster: Cluster = Connect(spark) if connect else Classic(spark)
    if cluster.stopped:
        raise ValueError("the Spark session has been stopped; make a new one and use that")
    return cluster


def check_barrier(cluster: Cluster, what: str) -> None:
    """Raise if it needs a barrier stage and this Spark would refuse one."""
    if cluster.scales:
        raise ValueError(
            f"{what} needs all of its tasks at a time, a barrier stage, which Spark refuses while"
            " spark.dynamicAllocation.enabled is true; set it to false for the session, and"
            " spark.executor.instances to what is needed"
        )


def work(settings: Settings) -> str:
    """One task: run the worker of this rank, by a supervisor if the job is to survive its loss."""
    from pyspark import TaskContext

    from tailrace.control.worker import Worker
    from tailrace.runtime.garbage import pass_over
    from tailrace.spark.supervisor import Supervisor

    task = TaskContext.get()
    assert task is not None
    rank: int = settings.first_rank + task.partitionId()
    if settings.recover:
        Supervisor(settings, rank, executor()).run()
    else:
        Worker(settings, rank, executor()).run()
    pass_over()  # as Spark does behind a task, and so that neither it nor the next one has to
    return str(rank)


def executor() -> str:
    """In a task: which executor it runs in, whose tasks are all forked from one process."""
    return f"{socket.gethostname()}:{os.getppid()}"


def checked(question: Callable[[], str]) -> Callable[[], str]:
    """The same as something that can be called where there may be another tailrace, or none.

    What it refers to is only looked for once the versions have been compared.
    """
    from pyspark import cloudpickle

    from tailrace.control.protocol import VERSION

    pickled, ours = cloudpickle.dumps(question), VERSION

    def ask() -> str:
        from pyspark import cloudpickle

        from tailrace.control import protocol

        theirs = getattr(protocol, "VERSION", "an older tailrace")
        if theirs != ours:
            raise RuntimeError(
                f"the executors run {theirs}; the driver runs {ours}. Install the same there, or"
                " let tailrace.ship(spark) bring it"
            )
        answer: str = cloudpickle.loads(pickled)()
        return answer

    return ask
