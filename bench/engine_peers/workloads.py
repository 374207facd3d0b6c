"""The two workloads, as data: what goes in, what has to come out, and the sinks that count it.

Tailrace and the handmade pipelines use the same records, the same functions and the same sinks, so
that only what lies between differs.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

WORDS = 1_000
WORDS_PER_SENTENCE = 10
RECORD_BYTES = 100
POOL = 8_192
"""Records are made before the clock starts and used in turn."""
_SAMPLE_NS = 2_000_000


def sentences() -> list[str]:
    """The pool of sentences; the same in every process."""
    chance = random.Random(7)
    vocabulary = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9)))
        + str(number % 10)
        for number in range(WORDS)
    ]
    return [" ".join(chance.choices(vocabulary, k=WORDS_PER_SENTENCE)) for _ in range(POOL)]


def chain_records() -> list[bytes]:
    """The pool of 100-byte records, each with its number in front."""
    filling = random.Random(7).randbytes(RECORD_BYTES - 8)
    return [number.to_bytes(8, "little") + filling for number in range(POOL)]


def relay(record: bytes) -> bytes:
    """What the two operators of the chain do."""
    return record


@dataclass(frozen=True)
class InTurn:
    """The pool, over and over; not an iterator, so that each source instance begins its own."""

    workload: str

    def __iter__(self) -> Iterator[Any]:
        return cycle(sentences() if self.workload == "wordcount" else chain_records())


def expected_counts(emitted: Sequence[int]) -> Counter[str]:
    """How often each word was in what the source instances emitted, every n-th sentence each."""
    pool = sentences()
    counts: Counter[str] = Counter()
    for index, number in enumerate(emitted):
        share = list(islice(cycle(pool), index, index + POOL * len(emitted), len(emitted)))
        rounds, rest = divmod(number, POOL)
        for sentence in share:
            for word in sentence.split():
                counts[word] += rounds
        for sentence in share[:rest]:
            counts.update(sentence.split())
    return counts


class Tally:
    """What every sink notes: how many records it had by when, and the CPU time of its process."""

    def __init__(self, every_write: bool) -> None:
        self.total = 0
        self.samples: list[tuple[int, int]] = []
        self._gap_ns = 0 if every_write else _SAMPLE_NS
        self._next_ns = 0
        self._cpu_s = 0.0

    def note(self, count: int) -> None:
        """So many more records are here."""
        now_ns = time.monotonic_ns()
        if not self.samples:
            self._cpu_s = time.process_time()
        self.total += count
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + self._gap_ns
            self.samples.append((now_ns, self.total))

    def results(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        self.samples.append((time.monotonic_ns(), self.total))
        return {
            "total": self.total,
            "samples": self.samples,
            "cpu_s": time.process_time() - self._cpu_s if self.total else 0.0,
        }


class WordTally(Tally):
    """Takes every (word, count) and keeps the last count of each word."""

    def __init__(self, every_write: bool) -> None:
        super().__init__(every_write)
        self.latest: dict[str, int] = {}

    def write(self, pairs: Iterable[tuple[str, int]], count: int) -> None:
        """Take `count` pairs."""
        self.latest.update(pairs)
        self.note(count)

    def results(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {**super().results(), "latest": self.latest}


class ChainTally(Tally):
    """Takes every record of the chain, and checks that each is the one that is next."""

    def __init__(self, every_write: bool) -> None:
        super().__init__(every_write)
        self._pool = chain_records() * 2
        self._next = 0
        self.lost = 0
        self.duplicated = 0

    def write(self, records: list[bytes], count: int) -> None:
        """Take records."""
        start = self._next
        if count > POOL or records != self._pool[start : start + count]:
            self._compare(records)
        else:
            self._next = (start + count) % POOL
        self.note(count)

    def _compare(self, records: list[bytes]) -> None:
        for record in records:
            ahead = (int.from_bytes(record[:8], "little") - self._next) % POOL
            if ahead < POOL // 2:
                self.lost += ahead
                self._next = (self._next + ahead + 1) % POOL
            else:
                self.duplicated += 1

    def results(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {**super().results(), "lost": self.lost, "duplicated": self.duplicated}


def tally_for(workload: str, every_write: bool) -> WordTally | ChainTally:
    """The sink of a workload."""
    return WordTally(every_write) if workload == "wordcount" else ChainTally(every_write)


@dataclass
class Outcome:
    """One run, of whomever."""

    rate_per_s: float
    """Sentences or records that reached the sinks, per second of the window."""
    cpu_us: float
    """Of all processes, per sentence or record."""
    lost: int
    duplicated: int
    latency_ms: dict[str, float] = field(default_factory=dict)
    """By percentile; empty when unpaced."""
    exact_latency_ms: dict[str, float] = field(default_factory=dict)
    """The same, from each record's own due time and its arrival; the chain only."""


def window(starts_ns: Sequence[int], seconds: float, warm_s: float) -> tuple[int, int]:
    """While all sources are running, and warm: begin and end."""
    return max(starts_ns) + int(warm_s * 1e9), min(starts_ns) + int(seconds * 1e9)


def rate_within(sinks: Sequence[dict[str, Any]], begin_ns: int, end_ns: int) -> float:
    """Records per second at all sinks together, between two times."""
    records = 0.0
    for sink in sinks:
        samples = [tuple(sample) for sample in sink["samples"]]
        records += _total_at(samples, end_ns) - _total_at(samples, begin_ns)
    return records / ((end_ns - begin_ns) / 1e9)


def _total_at(samples: Sequence[tuple[int, int]], at_ns: int) -> float:
    """The running total at a time, on the straight line between the samples around it."""
    before = (samples[0][0], 0)
    for sample in samples:
        if sample[0] >= at_ns:
            share = (at_ns - before[0]) / max(sample[0] - before[0], 1)
            return before[1] + max(share, 0.0) * (sample[1] - before[1])
        before = sample
    return samples[-1][1]


def audit(
    workload: str, emitted: Sequence[int], sinks: Sequence[dict[str, Any]]
) -> tuple[int, int]:
    """What was lost and what was duplicated between the sources and the sinks."""
    received = sum(sink["total"] for sink in sinks)
    if workload == "chain":
        missing = sum(emitted) - received
        lost = sum(sink["lost"] for sink in sinks)
        duplicated = sum(sink["duplicated"] for sink in sinks)
        # What was cut off at the end, no later record has shown.
        tail = missing - lost + duplicated
        return lost + max(tail, 0), duplicated + max(-tail, 0)
    expected = expected_counts(emitted)
    latest: Counter[str] = Counter()
    for sink in sinks:
        latest.update(sink["latest"])
    lost, duplicated = (expected - latest).total(), (latest - expected).total()
    # Counted, but the pair with the count did not come, or came twice.
    unseen = latest.total() - received
    return lost + max(unseen, 0), duplicated + max(-unseen, 0)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The usual ones, by nearest rank."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        name: ordered[min(int(len(ordered) * share), len(ordered) - 1)]
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }
