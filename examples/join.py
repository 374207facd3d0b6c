"""Which payments follow an order within a minute, and which orders are never paid?"""

from collections.abc import Sequence
from typing import Any

import tailrace as tr
from tailrace.testing import run

ORDERS = [
    {"order": 1, "at_s": 0.0, "item": "lamp"},
    {"order": 2, "at_s": 5.0, "item": "chair"},
    {"order": 3, "at_s": 20.0, "item": "table"},
]
PAYMENTS = [
    {"order": 2, "at_s": 12.0, "amount": 90},
    {"order": 1, "at_s": 30.0, "amount": 25},
    {"order": 3, "at_s": 300.0, "amount": 400},  # long after the minute
]


def describe(order: dict[str, Any], payment: dict[str, Any] | None) -> str:
    if payment is None:
        return f"{order['item']}: not paid in time"
    return f"{order['item']}: {payment['amount']} after {payment['at_s']} s"


def by_order(records: Sequence[dict[str, Any]], name: str) -> tr.KeyedStream:
    """Records may be two seconds behind later ones, and are found by their order's number."""
    stream = topology.source(records, name=name)
    timed = stream.event_time(lambda record: record["at_s"], max_delay_s=2, name=f"{name} time")
    return timed.key_by(lambda record: record["order"])


topology = tr.Topology("payments")
orders, payments = by_order(ORDERS, "orders"), by_order(PAYMENTS, "payments")
orders.join(payments, within_s=60, function=describe, how="left").sink(print)

if __name__ == "__main__":
    run(topology, workers=2)
