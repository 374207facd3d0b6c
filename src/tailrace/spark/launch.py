"""Workers as Spark tasks: submitted, watched until they run, ended."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tailrace.connectors.memory import Collect
from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settings
from tailrace.control.roster import FAILED
from tailrace.graph.model import Graph
from tailrace.runtime.sink import SinkLogic
from tailrace.spark.cluster import Cluster, work

_LOG = logging.getLogger(__name__)
_SOON_S = 10.0
"""When workers should be there, even if Spark has to start Python first."""
_GRACE_S = 5.0
"""How long Spark's tasks may take to end."""
_AGAIN_S = 0.2
_LOOK_S = 0.5
"""How often to ask whether there still is a Spark."""
_SAYS_WHY_S = 2.0
"""How long a Spark that has stopped may take to say why."""


def run_workers(
    cluster: Cluster,
    settings: Settings,
    group: str,
    description: str,
    coordinator: Coordinator,
    on_end: Callable[[], None],
) -> None:
    """Submit the job that is the workers, from a thread of its own.

    Spark places and starts them; they find each other through the coordinator. If Spark gives up,
    the coordinator hears of it, and when the coordinator is done the tasks end by themselves. After
    a failure, or when some are still to start, they are cancelled, or Spark would try them again.
    Where the job recovers, and Spark has ended all tasks because it has lost one, they are
    submitted anew, as a launch of another number, as long as the coordinator lets us.
    `on_end` is called when Spark's job is over, or does not end in spite of that. Workers that
    Spark does not start soon are warned of, once.
    """

    launch = 0

    def current() -> str:
        return f"{group}-{launch}" if launch else group

    def submit() -> None:
        nonlocal launch
        while True:
            try:
                cluster.name(current(), f"tailrace: {description}")
                cluster.ask(settings.workers, partial(work, replace(settings, launch=launch)))
                following = coordinator.relaunch("the workers ended before the job did")
            except Exception as error:
                following = coordinator.relaunch(
                    f"Spark ended the workers: {gist(error)}", str(error)
                )
            if following is None or cluster.stopped:
                return
            launch = following
            while (wait_s := roster.recovery.resume_s - time.monotonic()) > 0:
                if coordinator.join(min(wait_s, _AGAIN_S)):
                    return

    roster = coordinator.roster
    tasks = threading.Thread(target=submit, name="tailrace-spark-job", daemon=True)
    tasks.start()

    def cancel() -> None:
        # What is not yet submitted cannot be cancelled; in a Spark that has been stopped it may
        # stay so for ever.
        while tasks.is_alive() and not cluster.stopped:
            cluster.cancel(current())
            tasks.join(_AGAIN_S)

    def has_stopped() -> None:
        """Of a job that was submitted while Spark stopped, Spark may never say anything."""
        if cluster.stopped:
            tasks.join(_SAYS_WHY_S)
            coordinator.fail("the Spark session has been stopped")

    def watch() -> None:
        try:
            _gather(cluster, settings.workers, description, coordinator, has_stopped)
            while not coordinator.join(_LOOK_S):
                has_stopped()
                if roster.abandoned:  # then Spark's job ends, and another is submitted
                    cluster.forget(sorted(roster.silent))
                    roster.silent.clear()
                    cluster.cancel(current())
            cluster.forget(sorted(roster.silent))
            if roster.phase != FAILED and len(roster.hellos) == settings.workers:
                tasks.join(_GRACE_S)
            if tasks.is_alive():
                threading.Thread(target=cancel, name="tailrace-cancel", daemon=True).start()
                tasks.join(_GRACE_S)
        finally:
            on_end()

    threading.Thread(target=watch, name="tailrace-watch", daemon=True).start()


def _gather(
    cluster: Cluster,
    workers: int,
    description: str,
    coordinator: Coordinator,
    look: Callable[[], None],
) -> None:
    """Wait until the workers run or never will, looking around; say so if they take long."""
    begun_s = time.monotonic()
    soon_s = _SOON_S * (3 if cluster.scales else 1)  # which has to bring up executors
    warned = False
    while not coordinator.started.wait(min(_LOOK_S, soon_s)):
        look()
        missing = workers - len(coordinator.roster.hellos)
        if missing and not warned and time.monotonic() - begun_s > soon_s:
            warned = True
            _LOG.warning(
                "%d of %d workers of %r have not started after %g s: %s",
                missing,
                workers,
                description,
                soon_s,
                why_missing(cluster.scales, cluster.silent_hosts()),
            )


def why_missing(scales: bool, silent_hosts: list[str]) -> str:
    """What workers that do not start may wait for, and what to do."""
    if silent_hosts:
        return (
            f"Spark still counts the executors on {', '.join(silent_hosts)}, which do not answer."
            " Stop the job and start it again: it then runs on what is left. By itself Spark gives"
            " them up after spark.network.timeout (120s unless set); with"
            " spark.executor.heartbeatInterval=2s and spark.network.timeout=10s it is soon"
        )
    if scales:
        return (
            "Spark has not brought up executors for them. It goes on trying; if the cluster has no"
            " more to give (spark.dynamicAllocation.maxExecutors, a queue's limit), stop the job"
            " and start it with fewer workers"
        )
    return (
        "other jobs may hold Spark's task slots. It starts when they end; or stop one, or start"
        " Spark with more slots"
    )


def check_sinks(graph: Graph) -> None:
    """Raise if records would go into a list of this process, which workers cannot reach."""
    for operator in graph.operators:
        logic = operator.logic
        if isinstance(logic, SinkLogic) and isinstance(logic.sink, Collect):
            raise ValueError(
                f"{operator.name!r} is a sink of tailrace.testing.collect(), whose list only"
                " tailrace.testing.run fills; on Spark end the stream in .sink(...) with one of"
                " tailrace.sinks or a function"
            )


def gist(error: BaseException) -> str:
    """What went wrong, out of Spark's many words: the Python error, if there is one."""
    text = str(error)
    found = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception): .+$", text, re.MULTILINE)
    python = [line for line in found if not line.startswith(("org.", "java.", "py4j."))]
    lost = re.findall(r"^ExecutorLostFailure .+$", text, re.MULTILINE)
    line = (python or found or lost or text.splitlines() or [repr(error)])[0]
    if "No module named 'tailrace'" in line:
        line += (
            " (on the executors; tailrace.ship(spark) brings it there, or install it, or let"
            " PYSPARK_PYTHON name a Python with it)"
        )
    return line
