"""How long rows take from Spark into a topology, and from a topology into Spark.

    python bench/spark_paths.py [--quick] [--seconds S] [--rounds N]

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

Sizes, not statistics: compare the ways inside one run.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tailrace as tr
from tailrace.spark.job import Job
from tailrace.spark.session import local_spark

FILES_PER_S, ROWS_PER_FILE = 20, 5
ROWS_PER_S = FILES_PER_S * ROWS_PER_FILE
EVERY_S = 0.25
PATIENCE_S = 120.0
SCHEMA = "n long, made_ns long"
ARROW = {"n": pa.int64(), "made_ns": pa.int64()}
WAYS = ("micro-batch", "into topology", "to a stream", "to a table")
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


@dataclass
class Tally:
    """One way, all rounds."""

    latencies_ns: list[int] = field(default_factory=list)
    lost: int = 0
    duplicated: int = 0

    def count(self, notes: Notes, rows: int, warm_s: float) -> None:
        seen = [(n, ns) for n, ns in notes.read() if n >= 0]
        numbers = {n for n, _ in seen}
        self.lost += rows - len(numbers)
        self.duplicated += len(seen) - len(numbers)
        self.latencies_ns += [ns for n, ns in seen if n >= warm_s * ROWS_PER_S]

    def ms(self, percent: float) -> float:
        ordered = sorted(self.latencies_ns)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] / 1e6


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


class Bench:
    def __init__(self, spark: Any, seconds: float, warm_s: float) -> None:
        self.spark = spark
        self.seconds = seconds
        self.warm_s = warm_s
        self.rows = int(seconds * FILES_PER_S) * ROWS_PER_FILE
        self.tallies = {way: Tally() for way in WAYS}
        self.inside: list[tuple[float, float]] = []

    def run(self, way: str) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            notes = Notes(folder / "notes")
            (folder / "rows").mkdir()
            if way == "micro-batch":
                self._micro_batch(folder / "rows", notes)
            elif way == "into topology":
                self._into_topology(folder / "rows", notes)
            else:
                self._out(folder / "rows", notes, way)
            self.tallies[way].count(notes, self.rows, self.warm_s)

    def _files(self, folder: Path) -> Any:
        return self.spark.readStream.schema(SCHEMA).json(str(folder))

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

    def _into_topology(self, folder: Path, notes: Notes) -> None:
        topology = tr.Topology("into")
        rows = topology.source(tr.sources.dataframe(self._files(folder)))
        rows.shuffle().map(dict, parallelism=2).sink(lambda row: notes.add([row]))
        job = topology.start(self.spark, workers=2)
        self._write(folder, notes, lambda: job.is_active)
        job.stop()
        self.inside.append((job.last_progress.latency_ms(50), job.last_progress.latency_ms(99)))

    def _write(self, folder: Path, notes: Notes, alive: Callable[[], bool]) -> None:
        write_file(folder, range(-1, 0))
        notes.await_row(-1, alive)
        write_files(folder, self.seconds)
        notes.await_row(self.rows - 1, alive)

    def _out(self, folder: Path, notes: Notes, way: str) -> None:
        def stamp(n: int) -> Row:
            return {"n": n, "made_ns": time.monotonic_ns()}

        topology = tr.Topology("out")
        rows = topology.source(tr.sources.rate(ROWS_PER_S, stamp, count=self.rows))
        rows.sink(tr.sinks.parquet(folder, ARROW, every_s=EVERY_S))
        table = pa.Table.from_pydict({"n": [-1], "made_ns": [0]}, schema=pa.schema(ARROW))
        pq.write_table(table, folder / "first.parquet")
        if way == "to a stream":
            query = self._query(self.spark.readStream.schema(SCHEMA).parquet(str(folder)), notes)
            notes.await_row(-1, lambda: query.isActive)
            job = topology.start(self.spark, workers=1)
            notes.await_row(
                self.rows - 1,
                lambda: query.isActive and job.exception() is None,
                self.seconds + PATIENCE_S,
            )
            query.stop()
        else:
            job = topology.start(self.spark, workers=1)
            self._read_again_and_again(folder, notes, job)
        job.await_termination()

    def _read_again_and_again(self, folder: Path, notes: Notes, job: Job) -> None:
        seen = 0
        deadline_s = time.monotonic() + self.seconds + PATIENCE_S
        while seen < self.rows and job.exception() is None:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"row {self.rows - 1} did not come; the last was {seen - 1}")
            table = self.spark.read.schema(SCHEMA).parquet(str(folder))
            rows = [row.asDict() for row in table.where(f"n >= {seen}").collect()]
            if rows:
                notes.add(rows)
                seen = max(row["n"] for row in rows) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of 6 s")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each way in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seconds, rounds = (6.0, 1) if options.quick else (options.seconds, options.rounds)
    warm_s = min(3.0, seconds / 2)
    spark = local_spark(4)
    print("warming up ...", flush=True)
    for way in WAYS:
        Bench(spark, warm_s, 0.0).run(way)
    bench = Bench(spark, seconds, warm_s)
    for number in range(rounds):
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            print(f"round {number + 1} of {rounds}: {way} ...", flush=True)
            bench.run(way)
    print(f"\n{'way':15} {'p50 ms':>8} {'p99 ms':>8} {'lost':>6} {'twice':>6}")
    for way, tally in bench.tallies.items():
        print(
            f"{way:15} {tally.ms(50):8.0f} {tally.ms(99):8.0f} {tally.lost:6} {tally.duplicated:6}"
        )
    p50, p99 = (sorted(values)[len(values) // 2] for values in zip(*bench.inside, strict=True))
    print(f"of 'into topology', inside the topology: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    result: dict[str, Any] = {
        way.replace(" ", "_").replace("-", "_"): {
            "p50_ms": round(tally.ms(50), 1),
            "p99_ms": round(tally.ms(99), 1),
            "rows": len(tally.latencies_ns),
        }
        for way, tally in bench.tallies.items()
    }
    result["inside_topology"] = {"p50_ms": round(p50, 2), "p99_ms": round(p99, 2)}
    result["lost"] = sum(tally.lost for tally in bench.tallies.values())
    result["duplicated"] = sum(tally.duplicated for tally in bench.tallies.values())
    print(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
