"""A streaming DataFrame feeds a topology, and Spark reads what comes out as a table.

Sensors report temperatures; the topology tells of each that is above the mean of its sensor so far.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tailrace as tr

Reading = dict[str, Any]
Mean = tuple[int, float, Reading | None]  # how many, their sum, and the newest if it is above


def follow(mean: Mean, reading: Reading) -> Mean:
    count, total, _ = mean
    celsius = reading["celsius"]
    above = count > 0 and celsius > total / count
    return count + 1, total + celsius, reading if above else None


def main() -> None:
    spark = tr.local_spark(3)  # two workers, and a task slot in which Spark reads its DataFrame
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    readings = stream.selectExpr("value % 5 AS sensor", "value * 7 % 40 + 0.5D AS celsius")
    with TemporaryDirectory() as table:
        topology = tr.Topology("hot sensors")
        (
            topology.source(tr.sources.dataframe(readings))
            .key_by(lambda reading: reading["sensor"])
            .scan(follow, initial=(0, 0.0, None), parallelism=2)
            .flat_map(lambda result: [result[1][2]] if result[1][2] else [])
            .sink(tr.sinks.parquet(Path(table), every_s=0.5))
        )
        job = topology.start(spark)
        while job.is_active and not list(Path(table).glob("*.parquet")):
            time.sleep(0.1)
        print("while it runs:", spark.read.parquet(table).count() > 0)
        job.stop()
        spark.read.parquet(table).groupBy("sensor").count().orderBy("sensor").show()
        print(f"{job.last_progress.emitted['source']:,} readings")


if __name__ == "__main__":
    main()
