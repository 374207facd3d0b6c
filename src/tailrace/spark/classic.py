"""A session whose driver is this process. Tasks are started by the RDD API, which is quickest."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tailrace.spark.cluster import checked
from tailrace.spark.executors import Executor, at, silent
from tailrace.spark.ship import shipped
from tailrace.spark.slots import most_slots, scales

_LOG = logging.getLogger(__name__)
_REGISTRATION_S = 10.0
"""How long after the start of Spark executors are waited for,"""
_PROMISED_S = 60.0
"""and how long if its settings say that there will be as many."""
_context_lock = threading.RLock()
"""Held while a context's Python is not what the user set."""


class Classic:
    """See above."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext

    @property
    def is_local(self) -> bool:
        """Whether its master is this process."""
        master = self.master()
        return master == "local" or master.startswith("local[")

    @property
    def scales(self) -> bool:
        """By its settings; a local one has a single executor, whatever they say."""
        return not self.is_local and scales(self._settings())

    @property
    def stopped(self) -> bool:
        """By the context here or in the JVM; one that cannot be asked any more has ended, too."""
        java = self._context._jsc
        if java is None:
            return True
        try:
            return bool(java.sc().isStopped())
        except Exception:
            return True

    def master(self) -> str:
        """That of the context; the session's settings may have been set to anything since."""
        master: str = self._context.master
        return master

    def setting(self, name: str) -> str:
        """That of the context; `getConf` would fetch them all, in some hundred calls."""
        return str(self._context._conf.get(name, ""))

    def enabled(self, name: str) -> bool:
        """Likewise."""
        return self.setting(name).lower() == "true"

    def slots(self, wanted: int) -> int:
        """Spark's own count, which grows as executors register, without those that are gone.

        Where it scales by itself: as many as are wanted, up to the most.
        """
        most = self.most()
        if self.scales:
            return wanted if most is None else min(wanted, most)
        if not self.is_local:
            self.forget(self.silent_hosts())
        promised = most is not None and most >= wanted
        patience_s = _PROMISED_S if promised else _REGISTRATION_S
        deadline = self._context.startTime / 1000 + patience_s
        while True:
            slots = self._counted()
            enough = slots >= wanted or slots == most
            if enough or self.is_local or time.time() > deadline:
                return slots
            time.sleep(0.1)

    def _counted(self) -> int:
        java = self._context._jsc.sc()
        profile = java.resourceProfileManager().defaultResourceProfile()
        return int(java.maxNumConcurrentTasks(profile))

    def most(self) -> int | None:
        """By its settings; a local one stays as it is."""
        return self._counted() if self.is_local else most_slots(self.master(), self._settings())

    def _settings(self) -> dict[str, str]:
        return dict(self._context.getConf().getAll())

    def host(self) -> str:
        """The driver's host."""
        if self.is_local:
            return "127.0.0.1"
        return socket.gethostbyname(self.setting("spark.driver.host"))

    def name(self, group: str, description: str) -> None:
        """Set the job group."""
        self._context.setJobGroup(group, description, interruptOnCancel=True)

    @contextmanager
    def python(self) -> Iterator[None]:
        """Locally the Python that runs this; everywhere what was shipped to the executors."""
        context = self._context
        with _context_lock:
            before = context.pythonExec, context.environment
            if self.is_local:
                context.pythonExec = sys.executable
            elif names := shipped(context):
                path = [*names, *filter(None, [context.environment.get("PYTHONPATH")])]
                context.environment = {
                    **context.environment,
                    "PYTHONPATH": os.pathsep.join(path),
                }
            try:
                yield
            finally:
                context.pythonExec, context.environment = before

    def ask(self, tasks: int, question: Callable[[], str]) -> list[str]:
        """As tasks of an RDD."""
        call = checked(question)
        rows = self._context.parallelize(range(tasks), tasks)
        stage = rows if self.scales else rows.barrier()
        asked = stage.mapPartitions(lambda _: iter((call(),)))
        with self.python():
            asked._jrdd  # noqa: B018  # from now on Spark knows what it runs, and with what
        answers: list[str] = asked.collect()
        return answers

    def cancel(self, group: str) -> None:
        """Cancel the job group; nothing happens if Spark has been stopped."""
        with suppress(Exception):
            self._context.cancelJobGroup(group)

    def silent_hosts(self) -> list[str]:
        """Asks every executor's host whether it is there."""
        return sorted({one.host for one in silent(self._executors())})

    def forget(self, hosts: list[str]) -> None:
        """Has their executors ended and replaced, by an interface of Spark's own."""
        if not hosts or self.is_local:
            return
        told = ", ".join(hosts)
        try:
            for one in at(self._executors(), hosts):
                self._context._jsc.sc().killAndReplaceExecutor(one.id)
        except Exception as error:
            _LOG.warning("no answer from %s, and Spark does not give it up: %s", told, error)
            return
        _LOG.warning(
            "no answer from %s: the executors there are given up, and jobs start on what is left",
            told,
        )

    def _executors(self) -> list[Executor]:
        """Those that count as alive, without the driver."""
        found = []
        try:  # no public interface has their numbers
            listed = self._context._jsc.sc().statusStore().executorList(True)
            for index in range(listed.size()):
                one = listed.apply(index)
                host, _, port = one.hostPort().rpartition(":")
                if one.id() != "driver" and host and port.isdigit():
                    found.append(Executor(one.id(), host, int(port)))
        except Exception as error:
            _LOG.debug("Spark does not say which executors it has: %s", error)
        return found
