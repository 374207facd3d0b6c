"""How long rows take from Spark into a topology, and from a topology into Spark.

    python bench/spark_paths.py [--quick] [--seconds S] [--rounds N] [--out FOLDER]

The ways, on one local Spark with four task slots, one after the other in each round:

    micro-batch      streaming DataFrame -> a Python function in Spark (`mapInArrow`)
    into topology    the same DataFrame -> `sources.dataframe` -> a map -> a sink
    to a stream      topology -> `sinks.parquet(every_s=0.25)` -> `spark.readStream.parquet`
    to a table       topology -> `sinks.parquet(every_s=0.25)` -> `spark.read.parquet`, repeated

What a latency is. Each row carries the time it was made: for the first two just before its file
was written (20 files a second of 5 rows, which a stream of files finds), for the others when the
topology's source emitted it (100 a second). It ends when a Python function in Spark, a sink of the
topology, or the driver (table) has the row. All triggers are as fast as possible. A run begins when
a first row has come through, and leaves out its first seconds. What the topology itself adds is its
own histogram, from the row's arrival in the worker to the end of the sink.

Exactness. Every run goes on until all its rows have come; `lost` and `duplicated` sum over all.

Sizes, not statistics: percentiles are over the rows of all rounds, their range over the rounds.
Compare the ways inside one run.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tailrace as tr
from engine_peers.workloads import percentiles
from harness.frame import Benchmark, Options, machine, main
from harness.spread import Spread, limits, middle, rounded, short
from tailrace.spark.job import Job
from tailrace.spark.session import local_spark

FILES_PER_S, ROWS_PER_FILE = 20, 5
ROWS_PER_S = FILES_PER_S * ROWS_PER_FILE
EVERY_S = 0.25
PATIENCE_S = 120.0
SCHEMA = "n long, made_ns long"
ARROW = {"n": pa.int64(), "made_ns": pa.int64()}
WAYS = ("micro-batch", "into topology", "to a stream", "to a table")
PERCENTILES = ("p50", "p99")
Row = dict[str, int]


@dataclass
class Notes:
    """Who has seen which row after how long: lines in a file, from whatever process."""

    path: Path

    def add(self, rows: list[Row]) -> None:
        now_ns = time.monotonic_ns()  # one clock for all processes of a machine
        lines = "".join(f"{row['n']} {now_ns - row['made_ns']}\n" for row in rows)
        with self.path.open("a") as file:
            file.write(lines)

    def read(self) -> list[tuple[int, int]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [(int(n), int(ns)) for n, ns in map(str.split, lines)]

    def await_row(self, last: int, alive: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        deadline_s = time.monotonic() + within_s
        while all(n != last for n, _ in self.read()):
            if not alive():
                raise RuntimeError(f"it ended before row {last} came")
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"row {last} did not come in {within_s:.0f} s")
            time.sleep(0.1)


@dataclass(frozen=True)
class Outcome:
    """One way in one round."""

    latencies_ms: list[float]
    """Of the rows after the warm-up."""
    lost: int
    duplicated: int
    inside_ms: dict[str, float] | None
    """Of that, what the topology itself adds; None if it says nothing about it."""


def write_files(folder: Path, seconds: float) -> None:
    """Rows at even distances, whatever happens."""
    start = time.monotonic()
    for number in range(int(seconds * FILES_PER_S)):
        time.sleep(max(0.0, start + number / FILES_PER_S - time.monotonic()))
        first = number * ROWS_PER_FILE
        write_file(folder, range(first, first + ROWS_PER_FILE))


def write_file(folder: Path, numbers: range) -> None:
    made_ns = time.monotonic_ns()
    hidden = folder / f".{numbers[0]}"
    hidden.write_text("".join(json.dumps({"n": n, "made_ns": made_ns}) + "\n" for n in numbers))
    hidden.rename(folder / f"{numbers[0]}.json")


class Ways:
    """All ways, each for so many seconds, of which some are warm-up."""

    def __init__(self, spark: Any, seconds: float, warm_s: float) -> None:
        self._spark = spark
        self._seconds = seconds
        self._warm_s = warm_s
        self._rows = int(seconds * FILES_PER_S) * ROWS_PER_FILE

    def run(self, way: str, folder: Path) -> Outcome:
        """Go this way once, in an empty folder."""
        notes = Notes(folder / "notes")
        rows = folder / "rows"
        rows.mkdir()
        inside_ms = None
        if way == "micro-batch":
            self._micro_batch(rows, notes)
        elif way == "into topology":
            inside_ms = self._into_topology(rows, notes)
        else:
            self._out(rows, notes, way)
        seen = [(n, ns) for n, ns in notes.read() if n >= 0]
        numbers = {n for n, _ in seen}
        return Outcome(
            latencies_ms=[ns / 1e6 for n, ns in seen if n >= self._warm_s * ROWS_PER_S],
            lost=self._rows - len(numbers),
            duplicated=len(seen) - len(numbers),
            inside_ms=inside_ms,
        )

    def _files(self, folder: Path) -> Any:
        return self._spark.readStream.schema(SCHEMA).json(str(folder))

    def _query(self, df: Any, notes: Notes) -> Any:
        def note(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                notes.add(batch.to_pylist())
            yield from ()

        return df.mapInArrow(note, "nothing long").writeStream.format("noop").start()

    def _micro_batch(self, folder: Path, notes: Notes) -> None:
        query = self._query(self._files(folder), notes)
        self._write(folder, notes, lambda: query.isActive)
        query.stop()

    def _into_topology(self, folder: Path, notes: Notes) -> dict[str, float]:
        topology = tr.Topology("into")
        rows = topology.source(tr.sources.dataframe(self._files(folder)))
        rows.shuffle().map(dict, parallelism=2).sink(lambda row: notes.add([row]))
        job = topology.start(self._spark, workers=2)
        self._write(folder, notes, lambda: job.is_active)
        job.stop()
        return {f"p{percent}": job.last_progress.latency_ms(percent) for percent in (50, 99)}

    def _write(self, folder: Path, notes: Notes, alive: Callable[[], bool]) -> None:
        write_file(folder, range(-1, 0))
        notes.await_row(-1, alive)
        write_files(folder, self._seconds)
        notes.await_row(self._rows - 1, alive)

    def _out(self, folder: Path, notes: Notes, way: str) -> None:
        def stamp(n: int) -> Row:
            return {"n": n, "made_ns": time.monotonic_ns()}

        topology = tr.Topology("out")
        rows = topology.source(tr.sources.rate(ROWS_PER_S, stamp, count=self._rows))
        rows.sink(tr.sinks.parquet(folder, ARROW, every_s=EVERY_S))
        table = pa.Table.from_pydict({"n": [-1], "made_ns": [0]}, schema=pa.schema(ARROW))
        pq.write_table(table, folder / "first.parquet")
        if way == "to a stream":
            query = self._query(self._spark.readStream.schema(SCHEMA).parquet(str(folder)), notes)
            notes.await_row(-1, lambda: query.isActive)
            job = topology.start(self._spark, workers=1)
            notes.await_row(
                self._rows - 1,
                lambda: query.isActive and job.exception() is None,
                self._seconds + PATIENCE_S,
            )
            query.stop()
        else:
            job = topology.start(self._spark, workers=1)
            self._read_again_and_again(folder, notes, job)
        job.await_termination()

    def _read_again_and_again(self, folder: Path, notes: Notes, job: Job) -> None:
        seen = 0
        deadline_s = time.monotonic() + self._seconds + PATIENCE_S
        while seen < self._rows and job.exception() is None:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"row {self._rows - 1} did not come; the last was {seen - 1}")
            table = self._spark.read.schema(SCHEMA).parquet(str(folder))
            rows = [row.asDict() for row in table.where(f"n >= {seen}").collect()]
            if rows:
                notes.add(rows)
                seen = max(row["n"] for row in rows) + 1


@dataclass(frozen=True)
class Plan:
    """What to measure and for how long."""

    rounds: int
    seconds: float
    """Of each way in a round."""

    @property
    def warm_s(self) -> float:
        """What is left out of it."""
        return min(3.0, self.seconds / 2)


QUICK = Plan(rounds=1, seconds=6.0)
FULL = Plan(rounds=3, seconds=20.0)


class Run(Benchmark):
    """One run of the benchmark."""

    name = "spark_paths"
    description = "How long rows take from Spark into a topology, and back."
    quick_help = "one round of 6 s for each way, not three of 20 s"
    settings = ("rounds", "seconds")

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(QUICK, FULL)
        self._found: dict[str, list[Outcome]] = {way: [] for way in WAYS}
        self._discarded: list[Outcome] = []
        self._background_percent = 0.0

    def measure(self) -> None:
        """All rounds."""
        plan = self._plan
        self._background_percent = self.background_percent()
        self.say("starting Spark")
        spark = local_spark(4)
        self.ends.callback(spark.stop)
        self.say("warming up")
        for way in WAYS:
            Ways(spark, plan.warm_s, 0.0).run(way, self._new_folder())
        ways = Ways(spark, plan.seconds, plan.warm_s)
        for number in range(plan.rounds):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                self.say(f"round {number + 1} of {plan.rounds}: {way}")
                found = self.undisturbed(partial(self._run, ways, way), self._discarded.append)
                self._found[way].append(found)

    def _run(self, ways: Ways, way: str) -> Outcome:
        return ways.run(way, self._new_folder())

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    def _rows_ms(self, way: str) -> list[float]:
        """The latencies of all rounds."""
        return [ms for outcome in self._found[way] for ms in outcome.latencies_ms]

    def _over_rounds(self, way: str, percentile: str) -> Spread:
        return Spread.of(
            [percentiles(found.latencies_ms)[percentile] for found in self._found[way]]
        )

    def _inside(self, percentile: str) -> Spread:
        told = [outcome.inside_ms for outcome in self._found["into topology"]]
        return Spread.of([inside_ms[percentile] for inside_ms in told if inside_ms])

    def _sum(self, count: str) -> int:
        every = (*self._found.values(), self._discarded)
        return sum(getattr(outcome, count) for found in every for outcome in found)

    def table(self) -> str:
        """Everything that was measured, as text."""
        lines = ["", f"{'ms (min..max of rounds)':34}{'p50':>26}{'p99':>26}"]
        for way in WAYS:
            cells = ""
            for percentile in PERCENTILES:
                rounds = self._over_rounds(way, percentile)
                over_all = short(percentiles(self._rows_ms(way))[percentile])
                cells += f"{f'{over_all} ({short(rounds.low)}..{short(rounds.high)})':>26}"
            lines.append(f"{way:34}{cells}")
        p50, p99 = map(self._inside, PERCENTILES)
        lines.append(f"{'of into topology, inside of it':34}{p50!s:>26}{p99!s:>26}")
        lines += ["", f"{self._sum('lost')} rows lost, {self._sum('duplicated')} came twice", ""]
        return "\n".join(lines)

    def headline(self) -> dict[str, Any]:
        """Latencies by way, and whether all rows came once."""
        figures: dict[str, Any] = {}
        for way in WAYS:
            rows_ms = self._rows_ms(way)
            of_way: dict[str, Any] = {"rows": len(rows_ms)}
            for name in PERCENTILES:
                of_way[f"{name}_ms"] = rounded(percentiles(rows_ms)[name])
                of_way[f"{name}_ms_range"] = limits(self._over_rounds(way, name))
            figures[way.replace(" ", "_").replace("-", "_")] = of_way
        inside = {f"{name}_ms": middle(self._inside(name)) for name in PERCENTILES}
        figures["inside_topology"] = inside
        figures["lost"] = self._sum("lost")
        figures["duplicated"] = self._sum("duplicated")
        figures["rounds"] = self._plan.rounds
        figures["background_cpu_percent"] = rounded(self._background_percent)
        return figures

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        rounds = {
            way: [{**asdict(one), "latencies_ms": percentiles(one.latencies_ms)} for one in found]
            for way, found in self._found.items()
        }
        return {"headline": figures, "machine": machine(), "rounds": rounds}


if __name__ == "__main__":
    main(Run)
