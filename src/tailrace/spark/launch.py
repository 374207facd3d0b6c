"""Workers as Spark tasks: submitted, watched until they run, ended.

A job's workers are the tasks of one stage, and of further ones if more have joined since. If one of
them is lost to Spark, all are ended, and one stage of as many workers as there were follows.
"""

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
_LEAVE_S = 2.0
"""How long workers that were told to end may take for that before Spark is asked to end them."""
_AGAIN_S = 0.2
_LOOK_S = 0.5
"""How often to ask whether there still is a Spark."""
_SAYS_WHY_S = 2.0
"""How long a Spark that has stopped may take to say why."""


class Stages:
    """The Spark jobs that are the workers of one job, each submitted from a thread of its own.

    Spark places and starts workers; they find each other through the coordinator. If Spark gives
    up, the coordinator hears of it, and when the coordinator is done the tasks end by themselves.
    After a failure, or when some are still to start, they are cancelled, or Spark would try them
    again. Where the job recovers, and Spark has ended all tasks because it has lost one, they are
    submitted anew, as a launch of another number, as long as the coordinator lets us.
    `on_end` is called when Spark's jobs are over, or do not end in spite of that. Workers that
    Spark does not start soon are warned of, once.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        group: str,
        description: str,
        coordinator: Coordinator,
        on_end: Callable[[], None],
    ) -> None:
        """Submit the first, and watch over all."""
        self._cluster = cluster
        self._settings = settings
        self._group = group
        self._description = description
        self._coordinator = coordinator
        self._on_end = on_end
        self._launch = 0
        self._lock = threading.Lock()
        self._further: dict[str, threading.Thread] = {}  # by the name to cancel them by
        self._first = threading.Thread(target=self._submit, name="tailrace-spark-job", daemon=True)
        self._first.start()
        threading.Thread(target=self._watch, name="tailrace-watch", daemon=True).start()

    def grow(self, stage: int, first_rank: int, workers: int) -> None:
        """Submit a further stage, of the workers from `first_rank` up to so many in all."""
        launch = self._coordinator.roster.launch
        settings = replace(
            self._settings, workers=workers, launch=launch, stage=stage, first_rank=first_rank
        )
        name = f"{self._name(launch)}-more-{stage}"
        thread = threading.Thread(
            target=self._submit_further, args=(name, settings), name=name, daemon=True
        )
        with self._lock:
            self._further[name] = thread
        thread.start()

    def _name(self, launch: int) -> str:
        return f"{self._group}-{launch}" if launch else self._group

    # ---- in the threads that submit ----

    def _submit(self) -> None:
        coordinator, roster = self._coordinator, self._coordinator.roster
        while True:
            launch = self._launch
            try:
                settings = replace(self._settings, launch=launch, workers=roster.workers)
                self._ask(self._name(launch), settings)
                following = coordinator.relaunch(
                    "the workers ended before the job did", launch=launch
                )
            except Exception as error:
                following = coordinator.relaunch(
                    f"Spark ended the workers: {gist(error)}", str(error), launch, is_loss(error)
                )
            if following is None or self._cluster.stopped:
                return
            self._launch = following
            self._end_further()
            while (wait_s := roster.recovery.resume_s - time.monotonic()) > 0:
                if coordinator.join(min(wait_s, _AGAIN_S)):
                    return

    def _submit_further(self, name: str, settings: Settings) -> None:
        coordinator, stage, launch = self._coordinator, settings.stage, settings.launch
        try:
            self._ask(name, settings)
            reason, traceback = "the workers ended before the job did", ""
        except Exception as error:
            reason, traceback = f"Spark ended the workers: {gist(error)}", str(error)
        finally:
            with self._lock:
                self._further.pop(name, None)
        coordinator.stage_ended(stage, launch, reason, traceback)
        # If that was a loss, those of the first stage have been told to end, too.
        deadline_s = time.monotonic() + _LEAVE_S
        while coordinator.roster.launch > launch == self._launch and self._first.is_alive():
            if time.monotonic() > deadline_s:
                self._cluster.cancel(self._name(launch))
            if self._cluster.stopped or coordinator.join(_AGAIN_S):
                return

    def _ask(self, name: str, settings: Settings) -> None:
        self._cluster.name(name, f"tailrace: {self._description}")
        self._cluster.ask(settings.workers - settings.first_rank, partial(work, settings))

    def _end_further(self) -> None:
        """Wait for the end of what else was submitted, and see to it."""
        deadline_s = time.monotonic() + _LEAVE_S
        while (further := self._alive()) and not self._cluster.stopped:
            if time.monotonic() > deadline_s:
                for name in further:
                    self._cluster.cancel(name)
            next(iter(further.values())).join(_AGAIN_S)

    def _alive(self) -> dict[str, threading.Thread]:
        with self._lock:
            return {name: one for name, one in self._further.items() if one.is_alive()}

    # ---- in the thread that watches ----

    def _watch(self) -> None:
        cluster, coordinator, roster = self._cluster, self._coordinator, self._coordinator.roster
        try:
            self._gather()
            while not coordinator.join(_LOOK_S):
                self._has_stopped()
                if roster.abandoned:  # then Spark's job ends, and another is submitted
                    cluster.forget(sorted(roster.silent))
                    roster.silent.clear()
                    cluster.cancel(self._name(self._launch))
            cluster.forget(sorted(roster.silent))
            if roster.phase != FAILED and len(roster.hellos) == roster.workers:
                self._join(_GRACE_S)
            if self._first.is_alive() or self._alive():
                threading.Thread(target=self._cancel, name="tailrace-cancel", daemon=True).start()
                self._join(_GRACE_S)
        finally:
            self._on_end()

    def _join(self, most_s: float) -> None:
        deadline_s = time.monotonic() + most_s
        for thread in (self._first, *self._alive().values()):
            thread.join(max(deadline_s - time.monotonic(), 0.0))

    def _cancel(self) -> None:
        # What is not yet submitted cannot be cancelled; in a Spark that has been stopped it may
        # stay so for ever.
        while (self._first.is_alive() or self._alive()) and not self._cluster.stopped:
            for name in (self._name(self._launch), *self._alive()):
                self._cluster.cancel(name)
            self._join(_AGAIN_S)

    def _has_stopped(self) -> None:
        """Of a job that was submitted while Spark stopped, Spark may never say anything."""
        if self._cluster.stopped:
            self._first.join(_SAYS_WHY_S)
            self._coordinator.fail("the Spark session has been stopped")

    def cancel(self, stage: int) -> None:
        """Have Spark end a further stage, if it is there, as soon as it can."""
        ours = [name for name in self._alive() if name.endswith(f"-more-{stage}")]
        for name in ours:
            threading.Thread(target=self._cancel_one, args=(name,), daemon=True).start()

    def _cancel_one(self, name: str) -> None:
        deadline_s = time.monotonic() + _LEAVE_S
        while (thread := self._alive().get(name)) is not None and not self._cluster.stopped:
            thread.join(_AGAIN_S)
            # Workers that are told to end do so more quietly than those that Spark kills.
            if time.monotonic() > deadline_s:
                self._cluster.cancel(name)

    def _gather(self) -> None:
        """Wait until the workers run or never will; say so if they take long."""
        cluster, workers, coordinator = self._cluster, self._settings.workers, self._coordinator
        begun_s = time.monotonic()
        soon_s = _SOON_S * (3 if cluster.scales else 1)  # which has to bring up executors
        warned = False
        while not coordinator.started.wait(min(_LOOK_S, soon_s)):
            self._has_stopped()
            missing = workers - len(coordinator.roster.hellos)
            if missing and not warned and time.monotonic() - begun_s > soon_s:
                warned = True
                _LOG.warning(
                    "%d of %d workers of %r have not started after %g s: %s",
                    missing,
                    workers,
                    self._description,
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


def is_loss(error: BaseException) -> bool:
    """Whether a process of Spark's has died, or its executor, rather than raised an error."""
    return (
        re.search(r"Python worker exited unexpectedly|ExecutorLostFailure", str(error)) is not None
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
