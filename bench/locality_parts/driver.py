"""The driver of a Spark application on one of the hosts; does what it is told, a line each.

    spark MASTER HOST N     begin, with executors on N hosts
    rate ORDER              tuples per second of a case, and the share that stays in its worker
    online ORDER            the same before and after keys have moved by what was counted

An ORDER is a pickle in base 64.
"""

import time
from typing import Any

from pyspark import cloudpickle

from hosts_parts.orders import obey, session, unpacked
from locality_parts import tuples
from locality_parts.tuples import FIRST, SECOND, Tuples, counted, placement, tables
from tailrace.sources import unpaced
from tailrace.spark.job import Job

_PATIENCE_S = 60.0
_PROGRESS_S = 0.1
_PAIRS_TOLD_S = 7.0
"""Workers tell about every 5 s what they have counted."""

cloudpickle.register_pickle_by_value(tuples)  # which the workers' import path does not have


class Driver:
    """What the commands do; each returns its answer."""

    def __init__(self) -> None:
        self._spark: Any = None

    def spark(self, master: str, host: str, executors: str) -> dict[str, Any]:
        """See above."""
        self._spark = session(master, host, "tailrace locality")
        known = self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus
        deadline_s = time.monotonic() + _PATIENCE_S
        while known().size() <= int(executors):  # the driver counts as one
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{known().size() - 1} executors have come, of {executors}")
            time.sleep(0.1)
        return {}

    def rate(self, order: str) -> dict[str, Any]:
        """See above."""
        case, warm_s, seconds = unpacked(order)
        job = self._start(case, warm_s + seconds)
        try:
            job.await_running(_PATIENCE_S)
            time.sleep(warm_s)
            found = _rate(job, seconds - 3 * _PROGRESS_S)
            if not job.await_termination(_PATIENCE_S):
                raise RuntimeError(f"the job did not end; it is {job.status}")
            _audit(job)
            return {"rate_per_s": found, "local": _local(job)}
        finally:
            if job.is_active:
                job.stop(drain=False)

    def online(self, order: str) -> dict[str, Any]:
        """See above. Without `Job.apply` keys do not move while it runs: it starts anew instead."""
        case, warm_s, seconds = unpacked(order)
        live = hasattr(Job, "apply")
        job = self._start(case, None, count_pairs=True)
        try:
            job.await_running(_PATIENCE_S)
            time.sleep(max(warm_s, _PAIRS_TOLD_S - seconds))
            before = _rate(job, seconds)
            made = job.key_tables()
            found: dict[str, Any] = {"live": live, "before_per_s": before, "keys": len(made)}
            if live:
                change = job.apply(made)
                change.await_done(_PATIENCE_S)
                if change.status != "done":
                    raise RuntimeError(f"the change is {change.status}: {change.error}")
                found |= {"took_s": change.took_s, "moved_keys": change.moved_keys}
            else:
                job.stop()
                _audit(job)
                job = self._start(case, None, made=made)
                job.await_running(_PATIENCE_S)
            time.sleep(warm_s)
            found["after_per_s"] = _rate(job, seconds)
            job.stop()
            _audit(job)
            return {**found, "local": _local(job)}
        finally:
            if job.is_active:
                job.stop(drain=False)

    def _start(self, case: Any, seconds: float | None, made: Any = None, **options: Any) -> Job:
        make = Tuples(case.servers, case.locality, case.padding_bytes)
        routed = made if made is not None else tables(case.routing, case.servers)
        return counted(unpaced(make, seconds=seconds), case.servers).start(
            self._spark,
            placement=placement(case.servers),
            progress_s=_PROGRESS_S,
            tables=routed,
            **options,
        )

    def end(self) -> None:
        """Stop Spark, if it was started."""
        if self._spark is not None:
            self._spark.stop()


def _rate(job: Job, seconds: float) -> float:
    """Tuples that reach the sink per second, by the job's clock."""
    first = job.last_progress
    time.sleep(seconds)
    last = job.last_progress
    if last.at_ns <= first.at_ns:
        raise RuntimeError(f"no news of the job for {seconds} s; it is {job.status}")
    return (last.delivered - first.delivered) / (last.at_ns - first.at_ns) * 1e9


def _audit(job: Job) -> None:
    progress = job.last_progress
    emitted = sum(progress.emitted.values())
    if not progress.balanced or progress.delivered != emitted:
        raise RuntimeError(f"{emitted} were emitted, {progress.delivered} delivered")


def _local(job: Job) -> float:
    """The share of tuples that stayed in their worker between the two counts."""
    links = [link for link in job.traffic().links if link.stream == f"{FIRST} -> {SECOND}"]
    stay = sum(link.records for link in links if link.sender_worker == link.receiver_worker)
    return stay / max(sum(link.records for link in links), 1)


def main() -> None:
    """Obey until there are no more lines."""
    obey(Driver())


if __name__ == "__main__":
    from locality_parts.driver import main as run

    run()
