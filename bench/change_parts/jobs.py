"""The job that `bench/change.py` changes while it runs, and the changes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from change_parts import logged as topology
from change_parts.logged import logged
from change_parts.windows import Results, Window, logs, paced
from recovery_parts import arrivals as when
from recovery_parts import keyed
from recovery_parts.arrivals import Arrivals, audit
from recovery_parts.jobs import EPOCH_S, RATE_PER_S, await_that, emitted
from tailrace.routing.slots import Routes
from tailrace.routing.tables import Table, Tables
from tailrace.runtime.deployment import Deployment, changed
from tailrace.runtime.moves import stream_by_key
from tailrace.spark.changes import Change
from tailrace.spark.job import Job

WORKERS = 2
SETTLE_S = 0.25
STEADY_S = 0.75
LONGEST_STEADY_S = 1.0
_PATIENCE_S = 60.0
_PROGRESS_S = 0.2

for module in (when, keyed, topology):  # which the workers' import path does not have
    cloudpickle.register_pickle_by_value(module)


@dataclass(frozen=True)
class Changed:
    """One change, from when it was asked for until it was done, and a while without."""

    during: Window
    steady: Window
    """About as long, right after it; at most `LONGEST_STEADY_S`."""
    moved_keys: int = 0
    moved_s: float = 0.0


@dataclass(frozen=True)
class Found:
    """What was in the logs of a job that is over."""

    results: Results
    lost: int
    duplicated: int


class Changing:
    """A job at the benchmark's rate over a million keys. It ends, or starts anew, when told."""

    def __init__(
        self, spark: Any, folder: Path, arrivals: Arrivals, *, checkpoints: bool = False
    ) -> None:
        folder.mkdir()
        self._spark = spark
        self._folder = folder
        self._arrivals = arrivals
        self._checkpoints = checkpoints
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._emitted = 0
        self.job = self._start()

    def __enter__(self) -> Changing:
        return self

    def __exit__(self, *error: object) -> None:
        if self.job.is_active:
            self.job.stop(drain=False)

    def _start(self, restore: Path | None = None) -> Job:
        checkpoint = None
        if self._checkpoints:
            checkpoint = self._folder / ("again" if restore else "checkpoints")
        return logged(self._arrivals, self._logs).start(
            self._spark,
            workers=WORKERS,
            checkpoint=checkpoint,
            checkpoint_s=EPOCH_S,
            restore=restore,
            progress_s=_PROGRESS_S,
        )

    def fill(self) -> None:
        """Until each key has its state, and records come at their pace."""
        enough = self._arrivals.keys + RATE_PER_S // 2
        await_that(self.job, "filled", lambda: self.job.last_progress.delivered >= enough)
        time.sleep(2 * SETTLE_S)

    def _during(self, change: Callable[[], Change | None]) -> Changed:
        """Do one thing, and then let it be for as long."""
        from_ns = time.monotonic_ns()
        asked = change()
        if asked is not None and not asked.await_done(_PATIENCE_S):
            raise RuntimeError(f"{asked} is not done within {_PATIENCE_S:.0f} s")
        during = Window(from_ns, time.monotonic_ns())
        time.sleep(SETTLE_S)
        steady_ns = time.monotonic_ns()
        time.sleep(min(max(STEADY_S, during.length_ns / 1e9), LONGEST_STEADY_S))
        steady = Window(steady_ns, time.monotonic_ns())
        if asked is None:
            return Changed(during, steady)
        return Changed(during, steady, asked.moved_keys, asked.moved_s)

    # ---- the changes, each there and back ----

    def half_the_keys(self) -> list[Changed]:
        """Half of the keys of either instance become the other's."""
        deployment = self._deployment
        stream = stream_by_key(deployment, "count")
        assert stream is not None
        before = deployment.route(stream)
        owners = array(before.owners.typecode, before.owners)
        for slot, owner in enumerate(owners):
            if slot // WORKERS % 2:
                owners[slot] = WORKERS - 1 - owner
        return [
            self._during(partial(self._routed, stream, routes))
            for routes in (Routes(owners), before)
        ]

    @property
    def _deployment(self) -> Deployment:
        return self.job._layout.of(self.job._graph)

    def _routed(self, stream: int, routes: Routes) -> Change:
        return self.job._change(
            lambda before: changed(before, routes={stream: routes}), "half of the keys"
        )

    def one_instance_to_another_worker(self) -> list[Changed]:
        """With its half of the keys."""
        return [self._during(partial(self.job.move, {("count", 1): rank})) for rank in (0, 1)]

    def rescale_2_3_2(self) -> list[Changed]:
        """One instance more, then one less."""
        return [self._during(partial(self.job.rescale, count=many)) for many in (3, 2)]

    def workers_2_3_2(self) -> list[Changed]:
        """One worker more, which a further Spark job starts, then one less."""
        return [self._during(partial(self.job.scale_workers, many)) for many in (3, 2)]

    def one_percent_by_table(self) -> list[Changed]:
        """One key of a hundred goes to another instance than its slot says."""
        arrivals, deployment = self._arrivals, self._deployment
        stream = stream_by_key(deployment, "count")
        assert stream is not None
        owner = deployment.route(stream).owner
        some = [arrivals.key(number) for number in range(0, arrivals.keys, 100)]
        table: dict[Hashable, int] = {key: WORKERS - 1 - owner(key) for key in some}
        tables = [Tables({"count": Table(WORKERS, keys)}) for keys in (table, {})]
        return [self._during(partial(self.job.apply, one)) for one in tables]

    def restart(self) -> Window:
        """Stop with a savepoint, and start anew from that."""
        from_ns = time.monotonic_ns()
        savepoint = self._folder / "savepoint"
        self._end(savepoint)
        self.job = self._start(savepoint)
        self.job.await_running(_PATIENCE_S)
        await_that(self.job, "there again", lambda: self.job.last_progress.delivered > 0)
        return Window(from_ns, time.monotonic_ns())

    def _end(self, savepoint: Path | None = None) -> None:
        self.job.stop(savepoint=savepoint)
        self._emitted += emitted(self.job)
        error = self.job.exception()
        if error is not None:
            raise error

    def end(self) -> Found:
        """Stop it when all that was sent has come, and look at what did."""
        self._end()
        found = list(logs(self._logs))
        lost, duplicated = audit(self._arrivals, ((number, n) for _, number, n in found))
        unsent = self._arrivals.total - self._emitted
        return Found(paced(self._arrivals, found), lost - unsent, duplicated)


CHANGES: dict[str, Callable[[Changing], list[Changed]]] = {
    change.__name__: change
    for change in (
        Changing.half_the_keys,
        Changing.one_instance_to_another_worker,
        Changing.rescale_2_3_2,
        Changing.one_percent_by_table,
        Changing.workers_2_3_2,
    )
}
