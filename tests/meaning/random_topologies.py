"""Topologies that follow from a seed, with errors in every function, built in different ways.

What a topology means must not depend on how many instances run where, or on what is fused. So one
seed gives one meaning, and a `Way` says how it is run. Every function fails on some records, which
are told by a hash, so that they are the same ones however it is run.

Records are (where from, number, history). State functions count, so that results do not depend on
the order in which records meet, which parallelism may change. Nothing is ever late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tailrace as tr
from tailrace.routing.hashing import stable_hash
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import Report, run

KINDS = [
    "map",
    "flat_map",
    "filter",
    "split",
    "scan",
    "fold",
    "window",
    "join",
    "process",
    "async_map",
    "map_arrow",
    "broadcast",
    "gather_all",
    "partition",
    "partial_fold",
    "merged_keys",
    "timers",
]
KEYS = 5
LONG_S = 1e6
"""Longer than all records take: what comes in whatever order is never late."""


@dataclass(frozen=True)
class Way:
    """How a topology is run: nothing here may change what it means."""

    most: int = 1
    """The most instances of an operator."""
    fused: bool = True
    workers: int = 1
    seed: int = 0
    limits: tr.Limits = field(default_factory=tr.Limits)
    strict: bool = False


PLAIN = Way()


@dataclass
class Outcome:
    """What came of a run, so that two can be compared."""

    results: dict[str, Counter[Any]] = field(default_factory=dict)
    """By sink."""
    dead: dict[str, Counter[Any]] = field(default_factory=dict)
    """By operator, the records and their errors."""
    records_in: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    failed: str = ""
    """The operator that failed the job, if one did."""


class BadRecordError(ValueError):
    """What functions raise."""


def check(name: str, record: Any, one_in: int = 6) -> None:
    """Fail on some records, always on the same ones."""
    if stable_hash((name, record)) % one_in == 0:
        raise BadRecordError(f"{name} does not like {record!r}")


class Tally(tr.Operator):
    """Counts by key in its state; tells of each record, and of the key when it is over."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, record: Any) -> None:
        self.state = (self.state or 0) + 1
        self.emit(("begun", record[1] % KEYS, ()))
        check(self.name, record)  # nothing is left of a record on which it raises

    def finish_key(self) -> None:
        self.emit(("tally", (self.key, self.state), ()))


class Share(tr.Operator):
    """Of the records that every instance gets, each is for one of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, record: Any) -> None:
        if stable_hash(record) % self.instance.parallelism == self.instance.index:
            check(self.name, record)
            self.emit((*record[:2], (*record[2], self.name)))


class Alarm(tr.Operator):
    """Tells of each record half a second later, and of keys for which that never came."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, record: Any) -> None:
        self.state = (self.state or 0) + 1
        self.set_timer(0.5, record[1])
        if record[1] % 3 == 0:
            self.cancel_timer(record[1])
        check(self.name, record)

    def timer(self, tag: int) -> None:
        self.emit(("due", (self.key, self.state, tag), ()))

    def finish_key(self) -> None:
        self.emit(("left", (self.key, self.state), ()))


class Builder:
    """Builds the topology of a seed in some way."""

    def __init__(self, seed: int, way: Way, fatal: bool = False, bad_keys: bool = True) -> None:
        self.chance = random.Random(seed)  # says what is meant
        self.how = random.Random(way.seed)  # says how it is done
        self.way = way
        self.bad_keys = bad_keys
        self.outcome = Outcome()
        self.topology = tr.Topology()
        self.ends: list[tr.Stream] = []
        self._numbers = iter(range(10**6))
        self._found: list[tuple[dict[str, Counter[Any]], str, list[Any]]] = []
        self._uncounted: set[str] = set()  # operators that get more records, the more instances
        for _ in range(self.chance.randint(1, 2)):
            self.ends.append(self.source())
        picked = [self.chance.choice(KINDS) for _ in range(self.chance.randint(1, 5))]
        self._fatal = self.chance.randrange(len(picked)) if fatal else -1
        for self._step, kind in enumerate(picked):
            end = self.ends.pop(self.chance.randrange(len(self.ends)))
            if self.chance.random() < 0.3:
                self.ends.append(end)  # it has a second reader
            if self.chance.random() < 0.2 and self.ends:
                end = self.between(end).merge(self.between(self.chance.choice(self.ends)))
            self.ends += getattr(self, kind)(self.name(kind), end)
        for end in self.ends:
            self.sink(end)

    def name(self, kind: str) -> str:
        return f"{kind} {next(self._numbers)}"

    def source(self) -> tr.Stream:
        name = self.name("source")
        records = [(name, n, ()) for n in range(self.chance.randint(0, 40))]
        return self.topology.source(records, name=name, parallelism=self.parallelism())

    def parallelism(self) -> int:
        return self.how.randint(1, self.way.most)

    def options(self, name: str) -> dict[str, Any]:
        """How an operator is run, and what becomes of records on which it fails."""
        policy = self.chance.choice(["skip", "dead letter"])
        if self._step == self._fatal:
            policy = "fail"
        return {"name": name, "parallelism": self.parallelism(), "on_error": policy}

    def between(self, stream: tr.Stream) -> tr.Stream:
        if self.way.fused:
            return stream
        way = self.how.randrange(3)
        if way == 2:
            return stream.partition_by(lambda record, count: stable_hash(record) % count)
        return stream.local_or_shuffle() if way else stream.shuffle()

    def watched(self, stream: tr.Stream, options: dict[str, Any]) -> tr.Stream:
        """Keep an operator's dead letters."""
        if options["on_error"] == "dead letter":
            self.gather(self.outcome.dead, options["name"], stream.dead_letters())
        return stream

    def gather(self, into: dict[str, Counter[Any]], name: str, stream: tr.Stream) -> None:
        found: list[Any] = []
        self._found.append((into, name, found))
        stream.sink(found.append, name=f"{name}, gathered", parallelism=self.parallelism())

    def keyed(self, name: str, stream: tr.Stream) -> tr.KeyedStream:
        """By a key that cannot be told of some records."""

        def key(record: Any) -> int:
            if self.bad_keys:
                check(f"key of {name}", record)
            return int(stable_hash(record[1])) % KEYS

        return stream.key_by(key)

    def timed(self, name: str, stream: tr.Stream) -> tr.Stream:
        def time(record: Any) -> float:
            check(f"time of {name}", record)
            return float(stable_hash(record[1]) % 100)

        options = self.options(f"time of {name}")
        timed = self.between(stream).event_time(time, max_delay_s=LONG_S, **options)
        return self.watched(timed, options)

    # ---- operators: each returns its outputs ----

    def map(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        def function(record: Any) -> Any:
            check(name, record)
            return (*record[:2], (*record[2], name))

        options = self.options(name)
        return [self.watched(self.between(stream).map(function, **options), options)]

    def flat_map(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        def function(record: Any) -> Any:
            yield record
            check(name, record)  # and then the first is not handed on, either
            yield (*record[:2], (*record[2], name))

        options = self.options(name)
        return [self.watched(self.between(stream).flat_map(function, **options), options)]

    def filter(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        def function(record: Any) -> bool:
            check(name, record)
            return bool(stable_hash(record) % 3)

        options = self.options(name)
        return [self.watched(self.between(stream).filter(function, **options), options)]

    def split(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        def function(record: Any) -> str:
            check(name, record)
            return "yes" if stable_hash(record) % 2 else "no"

        options = self.options(name)
        sides = self.between(stream).split(function, ["yes", "no"], **options)
        self.watched(sides["yes"], options)
        return list(sides.values())

    def scan(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        options = self.options(name)
        counted = self.keyed(name, stream).scan(
            self.counting(name), initial=0, ttl_s=self.ttl_s(), **options
        )
        return self.again(name, self.watched(counted, options))

    def ttl_s(self) -> float | None:
        """Keys may be forgotten, but none is old enough before the input ends."""
        return self.how.choice([None, LONG_S])

    def merged_keys(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        """Of two streams that are keyed by functions of their own."""
        other = self.chance.choice([stream, *self.ends])
        one = self.keyed(f"one of {name}", stream)
        both: Any = one.merge(self.keyed(f"other of {name}", other))
        options = self.options(name)
        counted = both.scan(self.counting(name), initial=0, ttl_s=self.ttl_s(), **options)
        return self.again(name, self.watched(counted, options))

    def partial_fold(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        options = {**self.options(name), "on_error": "skip"}
        counted = self.keyed(name, stream).fold(
            self.counting(name), initial=0, combine=lambda one, other: one + other, **options
        )
        self._uncounted.add(name)
        return self.again(name, counted)

    def async_map(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        async def function(record: Any) -> Any:
            check(name, record)
            return (*record[:2], (*record[2], name))

        options = self.options(name)
        mapped = self.between(stream).async_map(
            function,
            ordered=self.how.choice([True, False]),
            concurrency=self.how.choice([1, 3, 64]),
            **options,
        )
        return [self.watched(mapped, options)]

    def map_arrow(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        import pyarrow as pa

        def function(batch: Any) -> Any:
            rows = batch.column("row").to_pylist()
            for row in rows:
                check(name, row)
            return pa.RecordBatch.from_pydict({"row": [row + 1 for row in rows]})

        options = self.options(name)
        rows = stream.map(lambda record: {"row": stable_hash(record)}, name=f"{name}, rows")
        mapped = (rows if self.way.fused else rows.shuffle()).map_arrow(function, **options)
        self.watched(mapped, options)
        return [mapped.map(lambda row: (name, row["row"], ()), name=f"{name}, again")]

    def broadcast(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        options = self.options(name)
        self._uncounted.add(name)
        return [self.watched(stream.broadcast().process(Share(name), **options), options)]

    def gather_all(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        """An operator that has one instance however many others have."""

        def function(record: Any) -> Any:
            check(name, record)
            return record

        options = {**self.options(name), "parallelism": 1}
        return [self.watched(stream.gather().map(function, **options), options)]

    def partition(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        """To instances that a function picks, which fails on some records."""

        def pick(record: Any, count: int) -> int:
            if self.bad_keys:
                check(f"pick of {name}", record)
            return int(stable_hash(record)) % count

        def function(record: Any) -> Any:
            check(name, record)
            return record

        options = self.options(name)
        return [self.watched(stream.partition_by(pick).map(function, **options), options)]

    def timers(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        """With a source of its own, that takes its time."""
        rate = tr.sources.rate(1, lambda n: (name, n, ()), count=self.chance.randint(0, 8))
        ticks = self.topology.source(rate, name=f"{name} in", parallelism=self.parallelism())
        options = self.options(name)
        alarm = self.keyed(name, ticks).process(Alarm(name), ttl_s=self.ttl_s(), **options)
        return [stream, self.watched(alarm, options)]

    def fold(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        options = self.options(name)
        counted = self.keyed(name, stream).fold(
            self.counting(name), initial=0, ttl_s=self.ttl_s(), **options
        )
        return self.again(name, self.watched(counted, options))

    def window(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        timed = self.timed(name, stream)
        kind: Any = self.chance.choice([tr.tumbling(10), tr.sliding(20, 10), tr.session(3)])
        options = self.options(name)
        windows = self.keyed(name, timed).window(kind)
        counted = windows.aggregate(
            self.counting(name), 0, merge=lambda one, other: one + other, **options
        )
        return self.again(name, self.watched(counted, options))

    def process(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        options = self.options(name)
        tally = self.keyed(name, stream).process(Tally(name), ttl_s=self.ttl_s(), **options)
        return [self.watched(tally, options)]

    def join(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        """With sources of its own; every record has at most one match.

        Where what has no match comes out, too, the function does not fail: which record of a pair
        is at fault, and so which is left over without a match, depends on which came last.
        """
        left, right = self.numbered(f"{name} left"), self.numbered(f"{name} right")

        def function(one: Any, other: Any) -> Any:
            if how == "inner":
                check(name, one)
            return ("joined", (one, other), ())

        options = self.options(name)
        how = self.chance.choice(["inner", "left", "outer"])
        joined = left.join(right, within_s=1, function=function, how=how, **options)
        if options["on_error"] == "dead letter":
            # Which of a pair is at fault is the one that came last: its number is that of both.
            letters = joined.dead_letters().map(lambda letter: letter[0][1])
            self.gather(self.outcome.dead, name, letters)
        return [stream, joined]

    def numbered(self, name: str) -> tr.KeyedStream:
        def time(record: Any) -> int:
            check(f"time of {name}", record)
            return int(record[1])

        def key(record: Any) -> int:
            if self.bad_keys:
                check(f"key of {name}", record)
            return int(record[1])

        records = [(name, n, ()) for n in range(self.chance.randint(0, 30))]
        stream = self.topology.source(records, name=name, parallelism=self.parallelism())
        options = {**self.options(f"time of {name}"), "on_error": "skip"}
        timed = self.between(stream).event_time(time, max_delay_s=LONG_S, **options)
        return timed.key_by(key)

    def counting(self, name: str) -> Callable[[int, Any], int]:
        def function(count: int, record: Any) -> int:
            check(name, record)
            return count + 1

        return function

    def again(self, name: str, stream: tr.Stream) -> list[tr.Stream]:
        """Results as records."""
        return [stream.map(lambda result: (name, tuple(result), ()), name=f"{name}, again")]

    def sink(self, stream: tr.Stream) -> None:
        name, found = self.name("sink"), []

        def function(record: Any) -> None:
            check(name, record)
            found.append(record)

        self._found.append((self.outcome.results, name, found))
        options = self.options(name)
        if options["on_error"] == "dead letter":
            options["on_error"] = "skip"  # what a sink cannot take is seen in its count
        self.between(stream).sink(function, **options)

    def run(self) -> Outcome:
        way, outcome = self.way, self.outcome
        try:
            report: Report | None = run(
                self.topology,
                workers=way.workers,
                seed=way.seed,
                limits=way.limits,
                strict=way.strict,
            )
        except OperatorFailed as failure:
            outcome.failed, report = failure.operator, None
        if report is not None:
            outcome.records_in, outcome.skipped = report.records_in, report.skipped
            for name in self._uncounted:
                del outcome.records_in[name]
        for into, name, found in self._found:
            into[name] = Counter(map(repr, found))
        return outcome


def outcome_of(seed: int, way: Way, fatal: bool = False, bad_keys: bool = True) -> Outcome:
    """What the topology of a seed does in some way."""
    return Builder(seed, way, fatal, bad_keys).run()
