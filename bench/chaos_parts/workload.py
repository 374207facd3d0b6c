"""What is run while processes are killed, and what must have come of it in the end.

Two sources of two splits each, and behind them a sum by key (NDJSON), a count by key and second
(text) and a left join in event time (Parquet): all of it exactly once, every record following from
its number alone. So what must be in the files is known without having run anything.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tailrace as tr
from tailrace.connectors.generate import Generate, Poisson

KEYS = 101
PER_S = 1000
"""Records of a source in a second of event time."""
WITHIN = 40
"""How far apart, in thousandths of a second, an order and its payment may be."""
LAG_S = 1.5
"""So long one of the instances that give payments is behind the other: if a change forgets it for a
moment, its payments are late."""
SUMS, COUNTS, PAID = "sums", "counts", "paid"
ORDERS, PAYMENTS, SUM, COUNT, JOIN = "orders", "payments", "sum", "count", "join"


@dataclass(frozen=True)
class Order:
    """One run of the workload."""

    folder: str
    records: int
    """Of each of the two sources."""
    rate_per_s: int
    seed: int = 0
    changes: bool = False
    """Whether the job is changed while it runs."""

    @property
    def checkpoints(self) -> str:
        """The folder of its checkpoints."""
        return f"{self.folder}/checkpoints"


def order(number: int) -> tuple[int, int, int]:
    """(number, key, amount); it happens at `number` thousandths."""
    return number, number * 7919 % KEYS, number % 1000


def payment(number: int) -> tuple[int, int]:
    """(time in thousandths, key): of an order, and three in ten come too late for it."""
    return number + (30 if number % 10 < 7 else WITHIN + 1 + number % 50), number * 7919 % KEYS


def topology(todo: Order) -> tr.Topology:
    """The workload, at about `rate_per_s` records from each source."""
    made = tr.Topology("chaos")
    orders = made.source(_source(order, todo, 0), name=ORDERS, parallelism=2)
    orders = orders.event_time(lambda one: one[0] / PER_S, max_delay_s=0.5, parallelism=2)
    payments = made.source(_source(payment, todo, 1), name=PAYMENTS, parallelism=2)
    payments = payments.event_time(lambda one: one[0] / PER_S, max_delay_s=0.5, parallelism=2)
    by_key = orders.key_by(lambda one: one[1])

    sums = by_key.scan(_add, initial=(0, 0), parallelism=2, name=SUM)
    sums.sink(tr.sinks.ndjson(f"{todo.folder}/{SUMS}"), name=SUMS, parallelism=2)

    windows = by_key.window(tr.tumbling(1))
    counts = windows.aggregate(lambda count, _: count + 1, 0, parallelism=2, name=COUNT)
    rows = counts.map(lambda one: (one.key, one.start, one.value))
    rows.sink(tr.sinks.text(f"{todo.folder}/{COUNTS}"), name=COUNTS)

    paid = by_key.join(
        payments.key_by(lambda one: one[1]),
        within_s=WITHIN / PER_S,
        function=lambda one, by: {"number": one[0], "paid": -1 if by is None else by[0]},
        how="left",
        parallelism=2,
        name=JOIN,
    )
    paid.sink(tr.sinks.parquet(f"{todo.folder}/{PAID}"), name=PAID, parallelism=2)
    return made


@dataclass(frozen=True)
class _Lagging(Poisson):
    """The second split is behind the first, by more than the event times allow for."""

    def offsets_ns(self, index: int, of: int, skip: int) -> Iterator[int]:
        behind_ns = round(index * LAG_S * 1e9)
        return (behind_ns + one for one in super().offsets_ns(index, of, skip))


def _source(make: Any, todo: Order, which: int) -> Generate:
    pace = (_Lagging if which else Poisson)(todo.rate_per_s, 2 * todo.seed + which)
    return Generate(make, pace, count=todo.records, shares=2)


def _add(state: tuple[int, int], one: tuple[int, int, int]) -> tuple[int, int]:
    return state[0] + 1, state[1] + one[2]


# ---- what must have come of it ----


def expected(records: int) -> dict[str, Counter[Hashable]]:
    """What must be in the files of each sink.

    Of the sums: of each key all counts, and with the last one the sum. On the way a sum depends on
    the order in which records came.
    """
    sums: Counter[Hashable] = Counter()
    counts: Counter[Hashable] = Counter()
    paid: Counter[Hashable] = Counter()
    totals: dict[int, tuple[int, int]] = {}
    for number in range(records):
        one = order(number)
        totals[one[1]] = _add(totals.get(one[1], (0, 0)), one)
        sums[one[1], totals[one[1]][0]] += 1
        counts[one[1], number // PER_S] += 1
        near = [at for at in _around(number, one[1], records) if abs(at - number) <= WITHIN]
        paid.update((number, at) for at in near or [-1])
    sums.update((key, count, total) for key, (count, total) in totals.items())
    windows: Counter[Hashable] = Counter((*place, count) for place, count in counts.items())  # type: ignore[misc]
    return {SUMS: sums, COUNTS: windows, PAID: paid}


def _around(number: int, key: int, records: int) -> list[int]:
    """When payments of a key come that may be near that time."""
    first, last = max(number - 2 * WITHIN - 60, 0), min(number + WITHIN + 1, records)
    found = map(payment, range(first, last))
    return [at for at, of in found if of == key]


def found(folder: Path) -> dict[str, Counter[Hashable]]:
    """What is in the files of each sink."""
    import pyarrow.parquet as pq

    sums: Counter[Hashable] = Counter()
    totals: dict[int, tuple[int, int]] = {}
    for line in _lines(folder / SUMS):
        key, (count, total) = json.loads(line)
        sums[key, count] += 1
        totals[key] = max(totals.get(key, (0, 0)), (count, total))
    sums.update((key, count, total) for key, (count, total) in totals.items())
    counts: Counter[Hashable] = Counter(
        tuple(map(int, re.findall(r"\d+", line))) for line in _lines(folder / COUNTS)
    )
    paid: Counter[Hashable] = Counter()
    for path in (folder / PAID).glob("part-*"):
        columns = pq.read_table(path).to_pydict()
        paid.update(zip(columns["number"], columns["paid"], strict=True))
    return {SUMS: sums, COUNTS: counts, PAID: paid}


def _lines(folder: Path) -> list[str]:
    return [line for path in folder.glob("part-*") for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Audit:
    """How what was found differs from what was expected."""

    results: int
    lost: int
    duplicated: int
    """Also what should not be there at all."""
    samples: tuple[str, ...]

    @classmethod
    def of(cls, todo: Order) -> Audit:
        """Look at the files of a run that has ended."""
        there, right = found(Path(todo.folder)), expected(todo.records)
        lost = duplicated = results = 0
        samples: list[str] = []
        for sink, wanted in right.items():
            missing, more = wanted - there[sink], there[sink] - wanted
            lost, duplicated = lost + missing.total(), duplicated + more.total()
            results += there[sink].total()
            samples += [f"{sink}: {one} is missing" for one in list(missing)[:5]]
            samples += [f"{sink}: {one} is too much" for one in list(more)[:5]]
        return cls(results, lost, duplicated, tuple(samples))
