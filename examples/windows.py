"""Clicks, out of order by some seconds: clicks per page and minute, and the visits of each user."""

from typing import NamedTuple

import tailrace as tr
from tailrace.testing import run


class Click(NamedTuple):
    time_s: float
    user: str
    page: str


CLICKS = [
    Click(3, "ann", "home"),
    Click(9, "bob", "home"),
    Click(31, "ann", "search"),
    Click(28, "bob", "search"),
    Click(64, "ann", "basket"),
    Click(61, "cid", "home"),
    Click(190, "bob", "home"),
    Click(12, "cid", "home"),  # three minutes after its time
    Click(200, "bob", "search"),
]

topology = tr.Topology("clicks")
clicks = topology.source(CLICKS).event_time(lambda click: click.time_s, max_delay_s=10)

per_minute = clicks.key_by(lambda click: click.page).window(tr.tumbling(60))
counts = per_minute.aggregate(lambda count, click: count + 1, 0)
counts.sink(lambda r: print(f"{r.start:3.0f} s  {r.key:7} {r.value} clicks"))

visits = clicks.key_by(lambda click: click.user).window(tr.session(60)).collect()
visits.sink(lambda r: print(f"{r.start:3.0f} s  {r.key} saw {[click.page for click in r.value]}"))
counts.late().sink(lambda click: print(f"too late: {click}"))

if __name__ == "__main__":
    # Time moves on with each batch of records; here each is a batch of its own.
    run(topology, limits=tr.Limits(poll_records=1))
