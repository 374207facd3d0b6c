"""The two workloads as topologies, on Spark, with two workers."""

import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import tailrace as tr
from engine_peers import workloads
from engine_peers.workloads import (
    WORDS_PER_SENTENCE,
    InTurn,
    Outcome,
    audit,
    percentiles,
    rate_within,
    relay,
    tally_for,
    window,
)
from harness.arrivals import EVEN, pace_of
from tailrace.connectors.generate import Generate, Pace
from tailrace.control.progress.summary import Summary
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.sink import Sink
from tailrace.runtime.source import Reader, Source, Split

_END_TIMEOUT_S = 20.0


class _Watched(Reader):
    """A reader that tells in the end when it began and how much it emitted."""

    def __init__(self, reader: Reader, clock_ns: Callable[[], int], path: Path) -> None:
        self._reader = reader
        self._clock_ns = clock_ns
        self._path = path
        self._first_ns = 0
        self._cpu_s = 0.0

    def poll(self, most: int) -> list[Any] | None:
        if not self._first_ns:
            self._first_ns = self._clock_ns()
            self._cpu_s = time.process_time()
        records = self._reader.poll(most)
        self.emitted_ns = self._reader.emitted_ns
        return records

    def due_ns(self) -> int | None:
        return self._reader.due_ns()

    def close(self) -> None:
        cpu_s = time.process_time() - self._cpu_s
        told = {"emitted": self._reader.position(), "first_ns": self._first_ns, "cpu_s": cpu_s}
        self._path.write_text(json.dumps(told))


class WatchedSource(Source):
    """A generator that leaves its numbers in a folder."""

    def __init__(self, generate: Generate, folder: Path) -> None:
        self.generate = generate
        self.folder = folder

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        reader = self.generate.open(split, clock_ns, position)
        return _Watched(reader, clock_ns, self.folder / f"source-{split.index}.json")


class Silence(Source):
    """Never has anything, never ends."""

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return _Silent()


class _Silent(Reader):
    def poll(self, most: int) -> list[Any] | None:
        return []

    def due_ns(self) -> int | None:
        return None


class TallySink(Sink):
    """The workload's sink; leaves its numbers in a folder."""

    def __init__(self, workload: str, every_write: bool, folder: Path) -> None:
        self.workload = workload
        self.every_write = every_write
        self.folder = folder

    def open(self, index: int, parallelism: int) -> None:
        self._path = self.folder / f"sink-{index}.json"
        self._tally = tally_for(self.workload, self.every_write)
        self._as_list = self.workload == "chain"

    def write(self, records: Iterator[Any]) -> None:
        count = length_hint(records)
        self._tally.write(list(records) if self._as_list else records, count)  # type: ignore[arg-type]

    def close(self) -> None:
        self._path.write_text(json.dumps(self._tally.results()))


def word_count(source: Source, sink: Sink, workers: int = 2) -> tr.Topology:
    """Each worker generates, splits and counts; words go where they belong."""
    topology = tr.Topology("word count")
    words = topology.source(source, parallelism=workers).flat_map(str.split, name="split")
    counts = words.key_by().scan(lambda count, word: count + 1, initial=0, name="count")
    counts.sink(sink)
    return topology


def chain(source: Source, sink: Sink) -> tr.Topology:
    """source -> a -> b -> sink, one instance each."""
    topology = tr.Topology("chain")
    first = topology.source(source).shuffle().map(relay, name="a")
    first.shuffle().map(relay, name="b").shuffle().sink(sink)
    return topology


def built(
    workload: str, source: Source, sink: Sink, workers: int = 2
) -> tuple[tr.Topology, tuple[int, ...]]:
    """The topology, and the worker of each instance.

    Word count has (source and split) and (count and sink) in each worker; source, a, b and sink of
    the chain take turns.
    """
    if workload == "wordcount":
        return word_count(source, sink, workers), (*range(workers), *range(workers))
    return chain(source, sink), tuple(i % workers for i in range(4))


def _local() -> Any:
    from tailrace.spark.session import local_spark

    return local_spark(2)


class OnSpark:
    """Tailrace on a local Spark of two slots, or on another with two workers or more."""

    def __init__(self, folder: Path, session: Callable[[], Any] = _local) -> None:
        begun = time.monotonic()
        # The workers do not have this folder on their path.
        cloudpickle.register_pickle_by_value(workloads)
        cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
        self.spark = session()
        self.spark_start_s = time.monotonic() - begun
        self.job_start_s: list[float] = []
        self._folder = folder
        self._runs = 0

    def _start(
        self, workload: str, source: Source, sink: Sink, workers: int = 2, **options: Any
    ) -> Any:
        topology, placement = built(workload, source, sink, workers)
        begun = time.monotonic()
        job = topology.start(self.spark, placement=placement, **options)
        while job.status == "starting":
            time.sleep(0.005)
        self.job_start_s.append(time.monotonic() - begun)
        return job

    def run(
        self,
        workload: str,
        seconds: float,
        rate_per_s: float,
        warm_s: float,
        pacing: str = EVEN,
        workers: int = 2,
        **options: Any,
    ) -> Outcome:
        """Run a workload, unpaced (rate 0) or paced; the first `warm_s` do not count."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        pace = pace_of(pacing, rate_per_s) if rate_per_s else None
        ends = watched_ends(workload, seconds, pace, folder)
        job = self._start(workload, *ends, workers, **options)
        time.sleep(warm_s)
        warm = job.last_progress
        if not job.await_termination(seconds + _END_TIMEOUT_S):
            job.stop(drain=False)
            raise RuntimeError(f"{workload} did not end; {job.last_progress}")
        progress = job.last_progress
        outcome, sinks, starts_ns = outcome_of(folder, workload, progress, seconds, warm_s)
        begin_ns, _ = window(starts_ns, seconds, warm_s)
        if rate_per_s:
            outcome.latency_ms = latencies_ms(progress.latency_since(warm))
            if workload == "chain":
                assert pace is not None
                outcome.exact_latency_ms = _exact(sinks[0], starts_ns[0], pace, begin_ns)
        return outcome

    def idle_cpu_percent(self, seconds: float) -> float:
        """CPU of both workers, in percent of one core, while a job has no input."""
        sink = TallySink("wordcount", False, self._folder)
        job = self._start("wordcount", Silence(), sink)
        pids = [worker["pid"] for worker in job.workers]
        time.sleep(0.3)
        before_s = sum(map(_cpu_s, pids))
        time.sleep(seconds)
        used_s = sum(map(_cpu_s, pids)) - before_s
        job.stop()
        return 100 * used_s / seconds

    def end(self) -> None:
        """Stop Spark."""
        self.spark.stop()


def watched_ends(
    workload: str, seconds: float, pace: Pace | None, folder: Path
) -> tuple[Source, Sink]:
    """Source and sink of a run, which leave their numbers in its folder; no pace: unpaced."""
    source = WatchedSource(Generate(InTurn(workload), pace=pace, seconds=seconds), folder)
    return source, TallySink(workload, pace is not None, folder)


def latencies_ms(latency: Histogram) -> dict[str, float]:
    """The usual percentiles."""
    return {
        name: latency.percentile_ns(percent) / 1e6
        for name, percent in (("p50", 50), ("p99", 99), ("p99.9", 99.9))
    }


def outcome_of(
    folder: Path, workload: str, progress: Summary, seconds: float, warm_s: float
) -> tuple[Outcome, list[dict[str, Any]], list[int]]:
    """What sources and sinks left in the folder of a run that has ended, checked and summed up.

    With what the sinks noted, and when the sources began.
    """
    sources = [json.loads(path.read_text()) for path in sorted(folder.glob("source-*"))]
    sinks = [json.loads(path.read_text()) for path in sorted(folder.glob("sink-*"))]
    emitted = [told["emitted"] for told in sources]
    starts_ns = [told["first_ns"] for told in sources]
    begin_ns, end_ns = window(starts_ns, seconds, warm_s)
    unit = WORDS_PER_SENTENCE if workload == "wordcount" else 1
    lost, duplicated = audit(workload, emitted, sinks)
    for stream in progress.streams.values():
        lost += max(stream.under_way, 0)
        duplicated += max(-stream.under_way, 0)
    if progress.emitted != {"source": sum(emitted)}:
        raise RuntimeError(f"emitted {emitted}, but the audit says {progress.emitted}")
    # Word count: source and sink of a worker share a process, and its CPU time.
    both = sources if workload == "wordcount" else [*sources, *sinks]
    cpu_us = sum(told["cpu_s"] for told in both) * 1e6 / max(sum(emitted), 1)
    rate_per_s = rate_within(sinks, begin_ns, end_ns) / unit
    return Outcome(rate_per_s, cpu_us, lost, duplicated), sinks, starts_ns


def _exact(sink: dict[str, Any], first_ns: int, pace: Pace, begin_ns: int) -> dict[str, float]:
    """Latencies from when each record was due; the sink has noted every arrival, in order."""
    values = []
    done = 0
    offsets_ns = pace.offsets_ns(0, 1, 0)
    for at_ns, total in sink["samples"]:
        for offset_ns in islice(offsets_ns, total - done):
            due_ns = first_ns + offset_ns
            if due_ns >= begin_ns:
                values.append((at_ns - due_ns) / 1e6)
        done = total
    return percentiles(values)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(fields[0]) / 1e9
