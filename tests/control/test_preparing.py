"""Tables that go to workers in pieces are whole when they are needed."""

from __future__ import annotations

import tailrace as tr
from tailrace.control.changing import Prepare
from tailrace.control.preparing import Preparing, in_pieces
from tailrace.control.protocol import pack, unpack
from tailrace.routing.tables import Table, Tables
from tailrace.runtime.deployment import Layout, deploy
from tailrace.runtime.tabled import with_tables


def layout(keys: int) -> Layout:
    topology = tr.Topology()
    keyed = topology.source(["a"], name="in").key_by()
    keyed.scan(lambda count, _: 1, parallelism=2, name="count").sink(print)
    table = Table(2, {f"key {number}": number % 2 for number in range(keys)})
    return with_tables(deploy(topology.graph, [0, 0, 0]), Tables({"count": table})).layout


def test_a_large_table_is_put_together_in_slices_and_is_what_it_was() -> None:
    sent = layout(5_000)
    told = unpack(pack(in_pieces(Prepare(1, sent, epoch=3))))
    assert isinstance(told, Prepare)
    assert all(not routes.keys for routes in told.layout.routes.values())
    preparing, now_ns, slices = Preparing(told), 0, 1

    def clock_ns() -> int:
        nonlocal now_ns
        now_ns += 60_000
        return now_ns

    while (found := preparing.work(clock_ns)) is None:
        slices += 1
    assert found == sent
    assert slices == 10  # of 20 pieces, two in each


def test_a_small_table_goes_as_it_is() -> None:
    told = Prepare(1, layout(10))
    assert in_pieces(told) is told
    assert Preparing(told).work(lambda: 0) == told.layout
