"""Lines of JSON in, Parquet out: each file appears whole, or not at all.

What is written is a directory that Spark reads: `spark.read.parquet(...)`.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

import tailrace as tr
from tailrace import sinks, sources
from tailrace.testing import run


@dataclass
class Visit:
    user: str
    page: str
    seconds: float


def convert(source: Path, target: Path) -> tr.Topology:
    topology = tr.Topology("visits")
    (
        topology.source(sources.ndjson(source, Visit), parallelism=2)
        .filter(lambda visit: visit.seconds >= 1)
        .map(lambda visit: {"user": visit.user, "page": visit.page, "minutes": visit.seconds / 60})
        .sink(sinks.parquet(target))
    )
    return topology


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        visits, table = Path(directory) / "visits.ndjson", Path(directory) / "table"
        visits.write_text(
            "".join(
                f'{{"user": "user {i % 3}", "page": "/{i}", "seconds": {i * 7 % 40}}}\n'
                for i in range(1000)
            )
        )
        run(convert(visits, table))
        for part in sorted(table.iterdir()):
            print(f"{part.name}: {pq.read_metadata(part).num_rows} rows")
