"""The topologies that grow, on a local Spark of 16 slots, and what a record costs in them.

Costs are CPU time of all workers, from their own reports, per record of the source. Sources begin
when every worker has reported once, so that building a job is not in it; then they emit as fast as
records are taken, and what has been emitted is processed to the end.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle

import tailrace as tr
from engine_peers import workloads
from engine_peers.workloads import chain_records, relay, sentences
from tailrace.connectors.generate import Generate, Pace
from tailrace.runtime.source import Reader, Source, Split

SLOTS = 16
_END_TIMEOUT_S = 60.0
_WARM_S = 1.5
"""Wide topologies learn more at first: which key goes where. The newest report may be 0.5 s old."""
_REPORTS_S = 0.25
_BEGIN_S = 0.35
"""After the start of a job; by then all have reported."""
_POOLS: dict[str, list[Any]] = {}
_SCATTER = 7_919 * 104_729
"""Odd and large: keys come in no order that a cache would like."""


def sentence(number: int) -> str:
    """A sentence of ten words of a thousand."""
    pool = _POOLS.get("sentences") or _POOLS.setdefault("sentences", sentences())
    text: str = pool[number % workloads.POOL]
    return text


def hundred_bytes(number: int) -> bytes:
    """A record of the chain."""
    pool = _POOLS.get("chain") or _POOLS.setdefault("chain", chain_records())
    record: bytes = pool[number % workloads.POOL]
    return record


@dataclass(frozen=True)
class Keys:
    """Records that are their own key, of so many different ones; 0: all differ."""

    different: int

    def __call__(self, number: int) -> str:
        """The record of that number."""
        return f"key {number * _SCATTER % self.different if self.different else number}"


class Later(Source):
    """A generator that begins some time after its job."""

    def __init__(self, generate: Generate) -> None:
        self.generate = generate

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        return _Late(self.generate.open(split, clock_ns, position), clock_ns)


class _Late(Reader):
    def __init__(self, reader: Reader, clock_ns: Callable[[], int]) -> None:
        self._reader = reader
        self._clock_ns = clock_ns
        self._begin_ns = 0

    def poll(self, most: int) -> list[Any] | None:
        now_ns = self._clock_ns()
        if now_ns < self.due_ns():
            return []
        self.emitted_ns = now_ns
        return self._reader.poll(most)

    def due_ns(self) -> int:
        if not self._begin_ns:
            self._begin_ns = self._clock_ns() + int(_BEGIN_S * 1e9)
        return self._begin_ns


def nothing(record: object) -> None:
    """What the sinks do."""


def word_count(source: Source, parallelism: int, sources: int) -> tr.Topology:
    """So many instances that split, dealt to by the sources, and as many that count."""
    topology = tr.Topology("word count")
    stream = topology.source(source, parallelism=sources).shuffle()
    words = stream.flat_map(str.split, name="split", parallelism=parallelism)
    counts = words.key_by().scan(
        lambda count, word: count + 1, initial=0, name="count", parallelism=parallelism
    )
    counts.sink(nothing)
    return topology


def keyed(source: Source, parallelism: int) -> tr.Topology:
    """How often each key came."""
    topology = tr.Topology("keys")
    records = topology.source(source, parallelism=parallelism)
    counts = records.key_by().scan(
        lambda count, key: count + 1, initial=0, name="count", parallelism=parallelism
    )
    counts.sink(nothing)
    return topology


def deep(source: Source, hops: int, parallelism: int = 2) -> tr.Topology:
    """A source, and so many maps, each dealt to anew by the one before."""
    topology = tr.Topology("deep")
    stream: tr.Stream = topology.source(source, parallelism=parallelism)
    for _ in range(hops):
        stream = stream.shuffle().map(relay, parallelism=parallelism)
    stream.sink(nothing)
    return topology


class OnSpark:
    """Jobs one after the other on one local Spark."""

    def __init__(self) -> None:
        # The workers do not have this folder on their path.
        for module in (workloads, __import__(__name__, fromlist=["x"])):
            cloudpickle.register_pickle_by_value(module)
        self.spark = tr.local_spark(SLOTS)
        self.lost = 0

    def end(self) -> None:
        """Stop Spark."""
        self.spark.stop()

    def cpu_us(
        self,
        build: Callable[[Source], tr.Topology],
        workers: int,
        make: Callable[[int], Any],
        seconds: float | None = None,
        count: int | None = None,
    ) -> float:
        """CPU time of all workers for one record of a source that emits for so long, or so many."""
        source = Later(Generate(make, seconds=seconds, count=count))
        job = build(source).start(self.spark, workers=workers, progress_s=_REPORTS_S)
        while job.is_active and len(job.last_progress.cpu_s) < workers:
            time.sleep(0.01)
        before = job.last_progress
        if not job.await_termination(_END_TIMEOUT_S):
            job.stop(drain=False)
            raise RuntimeError(f"a job did not end; {job.last_progress}")
        after = self._checked(job)
        cpu_s = sum(after.cpu_s.values()) - sum(before.cpu_s.values())
        return float(cpu_s * 1e6 / sum(after.emitted.values()))

    def p99_ms(self, parallelism: int, workers: int, pace: Pace, seconds: float) -> float:
        """Of the word count, for a source that is paced; the beginning does not count."""
        source = Generate(sentence, pace=pace)
        job = word_count(source, parallelism, workers).start(self.spark, workers=workers)
        while job.status == "starting":
            time.sleep(0.005)
        time.sleep(_WARM_S)
        warm = job.last_progress
        time.sleep(seconds)
        job.stop()
        return float(self._checked(job).latency_since(warm).percentile_ns(99) / 1e6)

    def _checked(self, job: Any) -> Any:
        progress = job.last_progress
        self.lost += sum(abs(stream.under_way) for stream in progress.streams.values())
        return progress
