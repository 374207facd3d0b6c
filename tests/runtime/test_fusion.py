"""Operators that run fused are taken apart, and others fused, while the stream flows."""

from __future__ import annotations

from typing import Any

import pytest

import tailrace as tr
from tailrace.graph.wiring import InstanceId, wire
from tailrace.runtime.deployment import Deployment, changed, with_forwarded
from tailrace.runtime.moves import check
from tailrace.tail.modes import changes, with_tail
from tailrace.testing import collect
from tests.runtime.cores import WORKERS, Cores


class Counting(tr.Operator):
    """Counts what it has seen; not by key."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, record: Any) -> None:
        self.seen += 1
        self.emit(record)

    def finish(self) -> None:
        self.emit(("seen", self.seen))

    def snapshot(self) -> int:
        return self.seen

    def restore(self, state: int) -> None:
        self.seen += state


def counted() -> tuple[tr.Topology, list[Any]]:
    topology = tr.Topology()
    keyed = topology.source(range(600), name="in").key_by(lambda n: n % 7)
    totals = keyed.scan(lambda total, n: (total or 0) + n, parallelism=2, name="sum")
    seen = totals.process(Counting(), parallelism=2, name="seen")
    return topology, collect(seen.map(lambda one: one, parallelism=2, name="out").shuffle())


def fused(before: Deployment, *pairs: tuple[str, str], shift: int = 0) -> Deployment:
    """These pairs of operators fused, and no others; instances dealt to the workers in turn."""
    streams = enumerate(before.graph.streams)
    forwarded = frozenset(n for n, one in streams if (one.source, one.target) in pairs)
    ids = wire(with_forwarded(before.graph, forwarded)).ids
    workers = {one: (at + shift) % WORKERS for at, one in enumerate(ids)}
    workers[InstanceId("in", 0)] = 0
    after = changed(before, forwarded=forwarded, workers=workers)
    check(before, after, checkpoints=True)
    return after


ALL = (("sum", "seen"), ("seen", "out"))


@pytest.mark.parametrize(
    "ways",
    [[()], [(), ALL], [ALL[1:], ALL[:1]], [ALL[:1], (), ALL[1:], ALL]],
    ids=["apart", "apart and back", "one, then the other", "bit by bit"],
)
@pytest.mark.parametrize("shift", [0, 1])
def test_a_stream_goes_on_exactly_whatever_is_fused(
    ways: list[tuple[tuple[str, str], ...]], shift: int
) -> None:
    topology, results = counted()
    cores = Cores(topology, [index % WORKERS for index in range(wire(topology.graph).instances)])
    cores.rounds(10)
    for number, way in enumerate(ways):
        after = fused(cores.deployment, *way, shift=number * shift)
        cores.change(after)
        assert all(
            (one in after.wiring.home[other].operators) == ((one, other) in way)
            for one, other in ALL
        )
        cores.rounds(10)
    cores.rounds(1000)
    assert all(core.ended for core in cores.cores)
    totals = dict.fromkeys(range(7), 0)
    expected = []
    for n in range(600):
        totals[n % 7] += n
        expected.append((n % 7, totals[n % 7]))
    assert sorted(one for one in results if one[0] != "seen") == sorted(expected)
    assert sum(one[1] for one in results if one[0] == "seen") == 600
    for core in cores.cores:
        core.close()


def test_what_reads_several_streams_stays_as_it_is() -> None:
    topology = tr.Topology()
    some = topology.source(range(3), name="some").map(abs, name="a")
    more = topology.source(range(3), name="more")
    collect(some.merge(more.shuffle()).map(abs, name="both"))
    cores = Cores(topology, [0] * wire(topology.graph).instances)
    before = cores.deployment
    with pytest.raises(ValueError, match="'both' reads others, too"):
        check(before, changed(before, forwarded=frozenset(), workers=apart(before)))
    for core in cores.cores:
        core.close()


def apart(before: Deployment) -> dict[InstanceId, int]:
    return dict.fromkeys(wire(with_forwarded(before.graph, frozenset())).ids, 0)


def test_the_mode_of_a_stream_that_runs_fused_counts_when_it_is_taken_apart() -> None:
    topology = tr.Topology()
    mapped = topology.source(range(600), name="in", parallelism=2).shuffle(tail="shared")
    results = collect(mapped.map(lambda one: one, parallelism=2, name="out").shuffle())
    cores = Cores(topology, [0, 1, 0, 1, 2, 2])
    cores.rounds(3)
    cores.change(fused(cores.deployment, ("in", "out")))
    for core in cores.cores:
        core.set_tail(0, "balance")  # as who goes back, or joins, is told of all modes
    cores.rounds(3)
    cores.change(fused(cores.deployment))
    assert all(
        inlet.prompt
        for core in cores.cores
        for inlet in core.site.inlets.values()
        if inlet.stream == 0
    )
    cores.rounds(400)
    assert sorted(results) == list(range(600))


def test_what_was_fused_from_the_start_is_dealt_as_the_job_is_told_when_it_is_taken_apart() -> None:
    topology = tr.Topology()
    mapped = topology.source(range(600), name="in", parallelism=2).map(lambda one: one, name="out")
    results = collect(mapped.shuffle())
    told = with_tail(topology.graph, "shared")  # as `start(..., tail="shared")`
    assert changes(told, "balance", ["in -> out"]) == {0: "balance"}  # as `Job.set_tail`
    cores = Cores(told, [0, 1, 2, 2])
    cores.rounds(3)
    assert len(cores.deployment.wiring.chains) == 2
    cores.change(fused(cores.deployment))
    inlets = [one for core in cores.cores for one in core.site.inlets.values() if one.stream == 0]
    assert inlets
    assert all(inlet.prompt for inlet in inlets)
    cores.rounds(400)
    assert sorted(results) == list(range(600))


def test_what_is_fused_may_change_when_all_input_has_ended() -> None:
    topology, results = counted()
    cores = Cores(topology, [index % WORKERS for index in range(wire(topology.graph).instances)])
    cores.rounds(600)
    assert all(core.ended for core in cores.cores)
    for number, way in enumerate([(), ALL, ALL[:1], ()]):
        cores.change(fused(cores.deployment, *way, shift=number))
    cores.rounds(50)
    assert all(core.ended for core in cores.cores)
    assert len(results) == 600 + 2


def test_links_stay_for_who_is_about_to_send_by_them_also_if_who_did_leaves_first() -> None:
    topology, _ = counted()
    graph = topology.graph

    def here(before: Deployment, forwarded: frozenset[int]) -> Deployment:
        ids = wire(with_forwarded(graph, forwarded)).ids
        return changed(before, forwarded=forwarded, workers=dict.fromkeys(ids, 0))

    cores = Cores(topology, [0] * wire(graph).instances)
    cores.change(here(cores.deployment, frozenset()))
    [last] = [n for n, one in enumerate(graph.streams) if one.source == "seen"]
    core = cores.cores[0]
    core.prepare(2, here(cores.deployment, frozenset({last})))
    moving = core.moving
    assert moving is not None
    for index in range(2):  # as when all of their input has ended
        moving._leave(core.instance("out", index))
    new = moving._new[InstanceId("seen", 0)]
    assert all(
        router.exchange in core.site.exchanges.values()
        for routers in new.routers.values()
        for router in routers
    )
