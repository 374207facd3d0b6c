"""Tables of keys keep together what meets: computed by Spark from the past, or counted live.

Messages go by region first, and then by tag. Hashes send two thirds of them to another one of three
workers; with tables, most stay in theirs.
"""

from random import Random
from typing import Any

import tailrace as tr
from tailrace.spark.key_tables import key_tables

WORKERS = 3
SECONDS = 6


def message(number: int) -> tuple[str, str]:
    """A region, and a tag; four of five tags are of their region."""
    chance = Random(number)
    region = chance.randrange(30)
    tag = region * 10 + chance.randrange(10) if chance.random() < 0.8 else chance.randrange(300)
    return f"region {region}", f"tag {tag}"


class Count(tr.Operator):
    """Counts its key, and hands the message on."""

    def process(self, record: Any) -> None:
        self.state = (self.state or 0) + 1
        self.emit(record)


def past(spark: Any) -> Any:
    """Stands for a table of past messages."""
    return spark.createDataFrame([message(i) for i in range(20_000)], "region string, tag string")


def by_region_and_tag() -> tr.Topology:
    topology = tr.Topology("regions and tags")
    messages = topology.source(tr.sources.rate(5_000, message, seconds=SECONDS))
    by_region = messages.key_by(lambda m: m[0]).process(Count(), name="region", parallelism=WORKERS)
    by_tag = by_region.key_by(lambda m: m[1]).process(Count(), name="tag", parallelism=WORKERS)
    by_tag.sink(lambda m: None)
    return topology


def locality(job: tr.Job) -> float:
    """The share of messages that stay in their worker on the way from region to tag."""
    links = [link for link in job.traffic().links if link.stream == "region -> tag"]
    stay = sum(link.records for link in links if link.sender_worker == link.receiver_worker)
    return stay / sum(link.records for link in links)


if __name__ == "__main__":
    spark = tr.local_spark(WORKERS)
    offline = key_tables(past(spark), [("region", "tag")], parts=WORKERS)
    offline.save("tables.parquet")  # for later starts

    job = by_region_and_tag().start(spark, workers=WORKERS, count_pairs=True)
    job.await_termination()
    print(f"by hash {locality(job):.0%}")
    online = job.key_tables()  # by what it has counted while it ran

    for name, tables in (("off-line", tr.Tables.load("tables.parquet")), ("counted", online)):
        job = by_region_and_tag().start(spark, workers=WORKERS, tables=tables)
        job.await_termination()
        print(f"{name} {locality(job):.0%} with {len(tables)} keys in tables")
