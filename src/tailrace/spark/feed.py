"""In the driver: run the DataFrame that feeds a source, for as long as the job runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from time import monotonic, sleep
from typing import Any

from tailrace.control.coordinator import Coordinator
from tailrace.control.feed import Note, Say
from tailrace.control.protocol import GUEST_ID
from tailrace.control.roster import RECOVERING, RUNNING, STARTING
from tailrace.graph.model import Graph
from tailrace.graph.wiring import Wiring
from tailrace.runtime.reading import SourceLogic
from tailrace.spark.cluster import cluster_of
from tailrace.spark.dataframe import DataFrameSource
from tailrace.spark.launch import gist
from tailrace.spark.push import Line, Target, Targets, push

_GRACE_S = 2.0
_NOTICE_S = 30.0
"""So much later than Spark's tasks the coordinator may notice that a worker is gone."""
_LOOK_S = 0.02


def dataframes(graph: Graph) -> Iterator[tuple[str, DataFrameSource]]:
    """The sources of a graph that are DataFrames, by name."""
    for operator in graph.operators:
        logic = operator.logic
        if isinstance(logic, SourceLogic) and isinstance(logic.source, DataFrameSource):
            yield operator.name, logic.source


class Feed:
    """One DataFrame on its way into a job: a Spark job, or a streaming query.

    It begins when the workers run. When it ends, so does its source; when it fails, so does the
    job; and when the job is over, it is stopped. Rows go from Spark's tasks to the workers. A job
    that makes checkpoints may lose workers and go on: then it is run again, for the new ones, and
    Spark computes anew what no epoch holds.
    `group` is what Spark knows it by: unique, and without commas, which Connect refuses.
    """

    def __init__(
        self,
        name: str,
        source: DataFrameSource,
        group: str,
        coordinator: Coordinator,
        wiring: Wiring,
        placement: tuple[int, ...],
    ) -> None:
        self._name = name
        self._source = source
        self._group = group
        self._coordinator = coordinator
        self._wiring = wiring
        self._placement = placement
        self._query: Any = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tailrace-feed", daemon=True)

    def start(self) -> None:
        """Wait for the workers and begin, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the Spark job or query; called when the job is over, so nothing takes its rows."""
        with self._lock:
            query = self._query
        with suppress(Exception):  # Spark itself may have been stopped
            if self._thread.is_alive() and (query is None or query.status["isTriggerActive"]):
                # Its tasks have lost their workers and fail by themselves; to be killed while
                # they do would make them complain on stderr.
                self._thread.join(_GRACE_S)
            if query is not None:
                query.stop()
            elif self._thread.is_alive():
                cluster_of(self._source.df.sparkSession).cancel(self._group)

    def _run(self) -> None:
        self._coordinator.started.wait()
        pushed = False
        while (attempt := self._attempt()) is not None:
            try:
                targets = self._targets()
                pushed = pushed or self._read(targets)  # and, with checkpoints, all is safe
                if pushed and self._runs(attempt):
                    self._end(targets)
            except Exception as error:
                if self._runs(attempt) and not self._lost_workers(attempt, error):
                    self._coordinator.fail(
                        f"the DataFrame of {self._name!r} failed: {gist(error)}", str(error)
                    )
                    return
            if not self._coordinator.roster.recover:
                return
            while self._runs(attempt):  # the end of the source may have to be told again
                sleep(_LOOK_S)

    def _attempt(self) -> int | None:
        """The attempt in which the workers run now, as soon as they do; None: they will not."""
        roster = self._coordinator.roster
        while roster.phase in (STARTING, RECOVERING):
            sleep(_LOOK_S)
        attempt = roster.attempt
        return attempt if self._job_runs else None

    def _runs(self, attempt: int) -> bool:
        return self._job_runs and self._coordinator.roster.attempt == attempt

    def _lost_workers(self, attempt: int, error: Exception) -> bool:
        """Whether it failed because workers were lost, which the coordinator may not know yet."""
        if not self._coordinator.roster.recover or "Connection" not in str(error):
            return False
        deadline = monotonic() + _NOTICE_S
        while self._runs(attempt) and monotonic() < deadline:
            sleep(_LOOK_S)
        return not self._runs(attempt)

    @property
    def _job_runs(self) -> bool:
        return self._coordinator.roster.phase == RUNNING

    def _targets(self) -> Targets:
        chain = next(one for one in self._wiring.chains if one.operators[0] == self._name)
        roster = self._coordinator.roster
        hellos, placement = roster.hellos, roster.seated(self._placement)
        homes = [(instance, placement[instance]) for instance in chain.instances]
        found = tuple(Target(instance, rank, hellos[rank].address) for instance, rank in homes)
        return Targets(
            found,
            pusher_id=GUEST_ID,
            secret=self._coordinator.secret,
            tls=self._coordinator.tls,
        )

    def _read(self, targets: Targets) -> bool:
        """Push everything; returns when the DataFrame has ended. False: the job did not run."""
        source = self._source
        cluster = cluster_of(source.df.sparkSession)
        with cluster.python():
            pushed = source.df.mapInArrow(lambda rows: push(rows, targets), "nothing long")
        if not source.df.isStreaming:
            cluster.name(self._group, f"tailrace: feeds {self._name!r}")
            pushed.write.format("noop").mode("overwrite").save()
            return True
        writer = pushed.writeStream.format("noop").outputMode(source.output_mode)
        writer = writer.queryName(f"tailrace {self._group} {self._name}")
        if source.trigger:
            writer = writer.trigger(**source.trigger)
        if source.checkpoint:
            writer = writer.option("checkpointLocation", source.checkpoint)
        with self._lock:
            if not self._job_runs:
                return False
            self._query = writer.start()
        self._query.awaitTermination()
        return True

    def _end(self, targets: Targets) -> None:
        with ExitStack() as lines:
            told = []
            for target in targets.instances:
                line = Line(targets, target)
                lines.callback(line.close)
                line.say(Note(Say.END))
                told.append(line)
            for line in told:  # one whose end is in an epoch already says nothing any more
                line.hear()
