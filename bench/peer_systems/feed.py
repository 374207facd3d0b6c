"""The source of every peer system: the workload's records, as fast as they are taken, or when due.

A paced record carries the time at which it was due, so that the sink can tell its latency however
it came there: a sentence beside it, a record of the chain in its bytes 8 to 16.
"""

import json
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from engine_peers.workloads import POOL, chain_records, sentences

LATE_FACTOR = 2
"""A source that cannot emit at its rate gives up after so many times the planned time."""


@cache
def _pool(workload: str) -> Sequence[Any]:
    return sentences() if workload == "wordcount" else chain_records()


@dataclass(frozen=True)
class Order:
    """One run of a workload; its sources and sinks leave their numbers in the folder."""

    workload: str
    seconds: float
    rate_per_s: int
    """0: as fast as it goes."""
    folder: str
    pacing: str = "even"
    """Or "poisson": at random distances, the same for all systems."""

    @property
    def planned(self) -> int:
        """How many records a paced run has."""
        return round(self.rate_per_s * self.seconds)

    def to_json(self) -> str:
        """As `Order(**json.loads(text))` takes it."""
        return json.dumps(asdict(self))


def record_at(workload: str, number: int, due_ns: int) -> Any:
    """The record of a number: (sentence, due time), or 100 bytes; due 0 is an unpaced one."""
    record = _pool(workload)[number % POOL]
    if workload == "wordcount":
        return record, due_ns
    return record[:8] + due_ns.to_bytes(8, "little") + record[16:] if due_ns else record


def due_times_ns(order: Order, index: int, sources: int) -> list[int]:
    """When the records of a paced source are due, from its start.

    The same times as `harness.arrivals.pace_of` gives, which the environments of other systems do
    not have.
    """
    numbers = range(index, order.planned, sources)
    if order.pacing == "even":
        return [int(number * 1e9 / order.rate_per_s) for number in numbers]
    chance = random.Random(f"0 {index} {sources}")
    gaps = (chance.expovariate(order.rate_per_s / sources / 1e9) for _ in numbers)
    return [int(at_ns) for at_ns in accumulate(gaps)]


class Feed:
    """What one of several source instances emits: every n-th record."""

    def __init__(
        self,
        order: Order,
        index: int = 0,
        sources: int = 1,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        _pool(order.workload)  # before the clock starts
        self.emitted = 0
        self.first_ns = clock_ns()
        self._order = order
        self._index = index
        self._sources = sources
        self._clock_ns = clock_ns
        self._planned = len(range(index, order.planned, sources))
        self._dues_ns = due_times_ns(order, index, sources) if order.rate_per_s else []
        factor = LATE_FACTOR if order.rate_per_s else 1
        self._end_ns = self.first_ns + int(factor * order.seconds * 1e9)

    def next_due_ns(self) -> int:
        """When the next record is due; of an unpaced source, always now."""
        ahead_ns = self._dues_ns[self.emitted] if self.emitted < len(self._dues_ns) else 0
        return self.first_ns + ahead_ns

    def due(self, most: int) -> int | None:
        """How many records may be emitted now, at most `most`; None: this was the last one."""
        now_ns = self._clock_ns()
        if now_ns >= self._end_ns:
            return None
        if not self._order.rate_per_s:
            return most
        if self.emitted >= self._planned:
            return None
        through = bisect_right(self._dues_ns, now_ns - self.first_ns)
        return max(min(through, self.emitted + most) - self.emitted, 0)

    def take(self, most: int) -> list[Any] | None:
        """The records that are due, none if it is too early, None after the last one."""
        count = self.due(most)
        if count is None:
            return None
        workload, sources = self._order.workload, self._sources
        first = self._index + self.emitted * sources
        numbers = range(first, first + count * sources, sources)
        if self._order.rate_per_s:
            dues_ns = self._dues_ns[self.emitted : self.emitted + count]
            records = [
                record_at(workload, number, self.first_ns + due_ns)
                for number, due_ns in zip(numbers, dues_ns, strict=True)
            ]
        else:
            records = self._unpaced(numbers)
        self.emitted += count
        return records

    def _unpaced(self, numbers: range) -> list[Any]:
        pool = _pool(self._order.workload)
        if self._order.workload == "wordcount":
            return [(pool[number % POOL], 0) for number in numbers]
        return [pool[number % POOL] for number in numbers]

    def tell(self) -> None:
        """Leave the numbers of this source in the folder; it ends now."""
        tell_source(self._order, self._index, self.emitted, self.first_ns, self._clock_ns())


def tell_source(order: Order, index: int, emitted: int, first_ns: int, end_ns: int) -> None:
    """Leave a source's numbers in the folder, whole or not at all."""
    told = {"emitted": emitted, "first_ns": first_ns, "end_ns": end_ns}
    path = Path(order.folder) / f"source-{index}.json"
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(told))
    partial.rename(path)
