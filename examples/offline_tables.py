"""Tables of keys computed by Spark from the past, and how much of the traffic they save.

Orders go by customer first, and then by product; most customers buy the same few products again and
again. Spark counts in last year's orders who buys what, and only the heaviest pairs come to the
driver; the job starts with the tables. Keys that the past did not have go by their hash.
"""

from random import Random
from typing import Any

import tailrace as tr
from tailrace.spark.key_tables import key_tables

WORKERS = 3
SECONDS = 4


def order(number: int) -> dict[str, str]:
    """Customers of one region buy its products, but for one order in four."""
    chance = Random(number)
    region = chance.randrange(12)
    product = chance.randrange(40) if chance.random() < 0.75 else chance.randrange(480)
    return {
        "customer": f"customer {region * 50 + chance.randrange(50)}",
        "product": f"product {(region * 40 + product) % 480}",
    }


class Count(tr.Operator):
    """Counts its key, and hands the order on."""

    def process(self, record: Any) -> None:
        self.state = (self.state or 0) + 1
        self.emit(record)


def topology() -> tr.Topology:
    made = tr.Topology("orders")
    orders = made.source(tr.sources.rate(5_000, order, seconds=SECONDS))
    by_customer = orders.key_by(lambda o: o["customer"]).process(
        Count(), name="customer", parallelism=WORKERS
    )
    by_product = by_customer.key_by(lambda o: o["product"]).process(Count(), name="product")
    by_product.sink(lambda o: None)
    return made


def stays(job: tr.Job) -> float:
    """The share of orders that stay in their worker on the way from customer to product."""
    links = [link for link in job.traffic().links if link.stream == "customer -> product"]
    stay = sum(link.records for link in links if link.sender_worker == link.receiver_worker)
    return stay / sum(link.records for link in links)


if __name__ == "__main__":
    spark = tr.local_spark(WORKERS)
    last_year = spark.createDataFrame([order(-1 - i) for i in range(20_000)])
    tables = key_tables(last_year, [("customer", "product")], parts=WORKERS)
    tables.save("orders.parquet")  # or .json; start(..., tables="orders.parquet") takes it
    for name, given in (("hashes", None), ("tables", "orders.parquet")):
        job = topology().start(spark, workers=WORKERS, tables=given)
        job.await_termination()
        print(f"with {name} {stays(job):.0%} stay in their worker")
