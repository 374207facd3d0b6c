"""The driver of a Spark application on one of the hosts; does what it is told, a line each.

    spark MASTER HOST N     begin, with executors on N hosts
    online ORDER            start an application in the worst placement, and have it moved on line

An ORDER is a pickle in base 64.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from hosts_parts.orders import obey, unpacked
from locality_parts.driver import Driver as Base
from online_parts import marks
from online_parts.marks import Marks
from tailrace.apps.sol import messages, sol
from tailrace.apps.word_count import sentences, word_count
from tailrace.connectors.generate import Generate, Poisson
from tailrace.control.progress.summary import Summary
from tailrace.graph.wiring import wire
from tailrace.spark.job import Job
from tailrace.topology import Topology

_PATIENCE_S = 60.0
_PROGRESS_S = 0.1
_AROUND_S = 0.3
"""Before and after a change, what counts as the time of it."""

cloudpickle.register_pickle_by_value(marks)  # which the workers' import path does not have


class Driver(Base):
    """What the commands do; each returns its answer."""

    def online(self, order: str) -> dict[str, Any]:
        """See above."""
        case, adapt_s, warm_s, seconds, machine, folder = unpacked(order)
        whole_s = warm_s + seconds + _PATIENCE_S + 60.0
        sink = Marks.new(Path(folder) / "marks", whole_s)
        topology = _topology(case, sink)
        worst = worst_placement(topology)
        job = topology.start(
            self._spark,
            placement=worst,
            scheduler="consolidate",
            adapt=adapt_s,
            machine=machine,
            progress_s=_PROGRESS_S,
        )
        try:
            if not job.await_running(_PATIENCE_S):
                raise RuntimeError(f"the job is {job.status} after {_PATIENCE_S:g} s")
            began_ns = time.monotonic_ns()
            time.sleep(warm_s)
            before = _window(job, sink, seconds)
            found = {"before": before, "worst": worst, **_await_change(job, sink, began_ns)}
            if not found["moved"]:
                return found
            time.sleep(warm_s)
            found["after"] = _window(job, sink, seconds)
            found["placement"] = job.placement
            found["changes"] = sum(one.status == "done" for one in job.last_progress.changes)
            job.stop()
            progress = job.last_progress
            if not progress.balanced:
                raise RuntimeError(f"records are lost: {progress.streams}")
            return found
        finally:
            if job.is_active:
                job.stop(drain=False)


def _topology(case: Any, sink: Marks) -> Topology:
    pace = Poisson(case.rate_per_s)
    if case.application == "sol":
        topology, stream = sol(Generate(messages(), pace), case.parallelism)
    else:
        topology, stream = word_count(Generate(sentences(), pace), case.parallelism)
    stream.shuffle().sink(sink, name="sink", parallelism=1)
    return topology


def worst_placement(topology: Topology) -> tuple[int, ...]:
    """Of chains of operators: by turns in either of two workers, so that no record stays."""
    chains = wire(topology.graph).chains
    return tuple(at % 2 for at, chain in enumerate(chains) for _ in range(chain.parallelism))


def _window(job: Job, sink: Marks, seconds: float) -> dict[str, Any]:
    """What the job does for so long."""
    first, sent, from_ns = job.last_progress, _sent(job), time.monotonic_ns()
    time.sleep(seconds)
    last, to_ns = job.last_progress, time.monotonic_ns()
    latency = last.latency_since(first)
    crossing = whole = 0
    for (_, hosts), records in (_sent(job) - sent).items():
        whole += records
        crossing += records * (hosts[0] != hosts[1])
    return {
        "internode_fraction": crossing / max(whole, 1),
        "mean_ms": latency.mean_ns / 1e6,
        "p50_ms": latency.percentile_ns(50) / 1e6,
        "p99_ms": latency.percentile_ns(99) / 1e6,
        "longest_silence_ms": sink.longest_silence_ms(from_ns, to_ns),
        "cores": _cores(first, last),
        "rate_per_s": (sum(last.emitted.values()) - sum(first.emitted.values()))
        / ((last.at_ns - first.at_ns) / 1e9),
    }


def _sent(job: Job) -> Counter[tuple[Any, tuple[str, str]]]:
    """Records from instance to instance, with the hosts of both."""
    host = {worker["rank"]: worker["host"] for worker in job.workers}
    found: Counter[tuple[Any, tuple[str, str]]] = Counter()
    for link in job.traffic().links:
        hosts = host[link.sender_worker], host[link.receiver_worker]
        found[(link.stream, link.sender, link.receiver), hosts] += link.records
    return found


def _cores(first: Summary, last: Summary) -> float:
    used = sum(last.cpu_s.values()) - sum(first.cpu_s.values())
    return used / ((last.at_ns - first.at_ns) / 1e9)


def _await_change(job: Job, sink: Marks, began_ns: int) -> dict[str, Any]:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s and job.is_active:
        progress = job.last_progress
        done = [change for change in progress.changes if change.status == "done"]
        if done:
            now_ns = time.monotonic_ns()
            time.sleep(_AROUND_S)
            around_ns = int(_AROUND_S * 1e9)
            from_ns = now_ns - int(done[0].took_ms * 1e6) - around_ns
            entry = job._adapting.changes[0] if job._adapting is not None else None
            return {
                "moved": True,
                "seconds_until_moved": (now_ns - began_ns) / 1e9,
                "took_ms": done[0].took_ms,
                "moved_keys": done[0].moved_keys,
                "longest_silence_ms": sink.longest_silence_ms(from_ns, now_ns + around_ns),
                "reason": progress.thought,
                "predicted_cores": None if entry is None else entry.predicted_gain,
            }
        time.sleep(0.005)
    job.await_termination(0.0)  # raises if it has failed
    return {"moved": False, "reason": job.last_progress.thought}


def main() -> None:
    """Obey until there are no more lines."""
    obey(Driver())


if __name__ == "__main__":
    from online_parts.driver import main as run

    run()
