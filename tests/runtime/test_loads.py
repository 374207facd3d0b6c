"""How much work each worker of a node has, as all of them see it at once."""

from __future__ import annotations

import pytest

from tailrace.graph.wiring import InstanceId
from tailrace.runtime.core import Limits
from tailrace.runtime.deployment import Gate
from tailrace.runtime.exchange import Exchange, Lane, Stamp
from tailrace.runtime.loads import LOADS_BYTES, Loads


def rows(workers: int) -> list[Loads]:
    """Of workers that all know each other."""
    memory = [bytearray(LOADS_BYTES) for _ in range(workers)]
    loads = [Loads(rank, memory.__getitem__) for rank in range(workers)]
    for one in loads:
        for rank in range(workers):
            one.find(rank)
    return loads


def gate(worker: int) -> Gate:
    return Gate(worker, 0, InstanceId("b", worker), worker)


def exchange(
    rank: int,
    loads: Loads | None,
) -> Exchange:
    """To a receiver in each of two workers."""
    made = Exchange(0, "a -> b", Limits(), [], rank=rank, clock_ns=lambda: 0, loads=loads)
    made.deal_by("balance")
    made.lay([gate(0), gate(1)])
    return made


def test_all_see_at_once_what_each_has_given() -> None:
    a, b, c = rows(3)
    a.note(1, 500)
    b.note(1, 70)
    b.note(2, 3)
    assert [one.at(1) for one in (a, b, c)] == [570] * 3
    assert [one.at(2) for one in (a, b, c)] == [3] * 3
    a.note(1, -500)
    assert c.at(1) == 70


def test_who_is_gone_counts_no_more_and_who_comes_instead_begins_with_nothing() -> None:
    memory = [bytearray(LOADS_BYTES) for _ in range(2)]
    a, b = (Loads(rank, memory.__getitem__) for rank in range(2))
    a.find(1)
    b.note(0, 900)
    assert a.at(0) == 900
    a.forget(1)
    assert a.at(0) == 0
    memory[1] = bytearray(LOADS_BYTES)
    a.find(1)
    assert a.at(0) == 0
    a.note(0, 5)
    a.reset()
    assert a.at(0) == 0


def test_a_row_that_cannot_be_had_counts_as_nothing() -> None:
    own = bytearray(LOADS_BYTES)
    loads = Loads(0, lambda rank: own if rank == 0 else None)
    loads.find(1)
    loads.note(1, 7)
    assert loads.at(1) == 7
    loads.note(5000, 7)
    assert loads.at(5000) == 0, "no room for that many workers"
    loads.close()
    loads.note(1, 7)
    assert loads.at(1) == 0
    with pytest.raises(ValueError, match="a row of 8 bytes; it takes 8192"):
        Loads(0, lambda rank: bytearray(8))


def test_a_lane_tells_of_its_work_until_it_is_done() -> None:
    a, b = rows(2)
    lane: Lane = exchange(0, a).lanes[1]
    lane.credit(0, 100, (9_000, 1_000, 10, 0, 2_000))
    assert (lane.service_ns, lane.spread_ns) == (2_000, 0), "its worker's other work counts apart"
    lane.put(["x", "y"], Stamp())
    lane.take(10)
    lane.credit(0, 100, (9_000, 1_000, 10, 0, 2_000))
    assert (b.at(1), lane.work_ns) == (4_000, 4_000)
    lane.credit(1, 100, (9_000, 1_000, 10, 0, 3_000))
    assert b.at(1) == 3_000
    lane.exchange.deal_by("off")
    assert b.at(1) == 0


def test_a_receiver_that_is_no_more_has_no_work() -> None:
    a, b = rows(2)
    made = exchange(0, a)
    made.lanes[1].put(["x"], Stamp())
    made.lanes[1].credit(0, 100, (9_000, 1_000, 10, 0, 2_000))
    assert b.at(1) == 2_000
    made.lay([gate(0)])
    assert b.at(1) == 0


def test_without_rows_a_lane_goes_by_what_receivers_say() -> None:
    lane: Lane = exchange(0, None).lanes[1]
    lane.credit(0, 100, (9_000, 1_000, 10, 4, 2_000))
    assert (lane.work_ns, lane.service_ns, lane.others) == (-1, 9_000, 4)
