"""Visits per page and minute: live from a socket, and the same pipeline over the recorded past."""

from typing import Any

import tailrace as tr

PORT = 9998

topology = tr.Topology("visits")
# One JSON value a line: {"at_s": 12.5, "page": "home"}
visits = topology.source(tr.sources.listen(PORT, json=True)).event_time(
    lambda visit: visit["at_s"], max_delay_s=5
)
per_minute = visits.key_by(lambda visit: visit["page"]).window(tr.tumbling(60))
counts = per_minute.aggregate(lambda count, _: count + 1, 0, parallelism=2)
counts.sink(lambda r: print(f"{r.start:5.0f} s  {r.key:7} {r.value} visits"))


def recorded(spark: Any) -> Any:
    """Stands for a table of past visits; its rows are in no order."""
    pages = "element_at(array('home', 'search', 'basket'), cast(id % 3 + 1 as int))"
    return spark.range(600).selectExpr("double((id * 7919) % 600) as at_s", f"{pages} as page")


if __name__ == "__main__":
    spark = tr.local_spark(2)
    history = topology.transform(
        recorded(spark),
        "key string, start double, end double, value long",
        order_by="at_s",
    )
    history.groupBy("key").avg("value").show()  # a DataFrame like any other: 20 visits a minute

    job = topology.start(spark)  # and live
    print(
        f"waiting for visits on port {PORT}, for example from nc 127.0.0.1 {PORT}; Ctrl-C ends it"
    )
    try:
        job.await_termination()
    except KeyboardInterrupt:
        job.stop()
