"""Cores under one deployment after another: instances come, go and move with their state.

Without checkpoints; `tests/checkpoint` has the same with epochs, and with workers that are killed.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace.graph.validate import TopologyError
from tailrace.graph.wiring import InstanceId
from tailrace.routing.slots import SLOTS, Routes, slot_of
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.deployment import Deployment, changed, deploy
from tailrace.runtime.markers import Watermark
from tailrace.runtime.moves import stream_by_key
from tailrace.runtime.state import Stateful
from tailrace.testing import VirtualClock, collect
from tests.runtime.cores import Cores
from tests.runtime.posts import Kept

Event = tuple[str, int, int]
"""Key, time, number."""


def key_of(event: Event) -> str:
    return event[0]


def time_of(event: Event) -> int:
    return event[1]


class Counting(tr.Operator):
    def process(self, event: Event) -> None:
        self.state = (self.state or 0) + 1
        self.emit((self.key, self.state, event[2]))

    def finish_key(self) -> None:
        self.emit((self.key, "end", self.state))


def counted(stream: Any, right: Any) -> Any:
    return stream.scan(lambda state, event: (state or 0) + event[2], parallelism=2, name="op")


def folded(stream: Any, right: Any) -> Any:
    return stream.fold(lambda state, event: [*(state or []), event[2]], parallelism=2, name="op")


def processed(stream: Any, right: Any) -> Any:
    return stream.process(Counting(), parallelism=2, name="op")


def tumbled(stream: Any, right: Any) -> Any:
    return stream.window(tr.tumbling(4)).collect(parallelism=2, name="op")


def in_sessions(stream: Any, right: Any) -> Any:
    return stream.window(tr.session(3)).collect(parallelism=2, name="op")


def joined(stream: Any, right: Any) -> Any:
    return stream.join(right, within_s=2, how="outer", parallelism=2, name="op")


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "scan": counted,
    "fold": folded,
    "process": processed,
    "tumbling": tumbled,
    "session": in_sessions,
    "join": joined,
}


class Cluster(Cores):
    """Sources and sink in the first worker, an operator in the two others."""

    def __init__(self, operate: Callable[[Any, Any], Any], events: list[Event]) -> None:
        topology = tr.Topology()
        self.expected_calls = sorted(event[2] for event in events)
        self.calls: list[int] = []

        def noted_key_of(event: Event) -> str:
            self.calls.append(event[2])
            return key_of(event)

        def keyed(name: str, some: list[Event]) -> Any:
            source = topology.source(some, name=name).event_time(time_of, max_delay_s=0)
            return source.key_by(noted_key_of)

        left, right = events[::2], events[1::2]
        if operate is joined:
            results = joined(keyed("left", left), keyed("right", right))
        else:
            results = operate(keyed("left", events), None)
        self.results = collect(results.shuffle())
        heads = [name.operator for name in _ids(topology)]
        placement = [
            0 if head != "op" else 1 + heads[:i].count("op") for i, head in enumerate(heads)
        ]
        super().__init__(topology, placement)

    def finish(self) -> Counter[Any]:
        for _ in range(1000):
            self.rounds(1)
            if all(core.ended for core in self.cores) and not self.exchange():
                break
        else:
            raise AssertionError("it does not end")
        for core in self.cores:
            core.close()
        assert sorted(self.calls) == self.expected_calls, "a key is asked for once"
        return Counter(map(repr, self.results))


def _ids(topology: tr.Topology) -> tuple[InstanceId, ...]:
    from tailrace.graph.wiring import wire

    return wire(topology.graph).ids


def grown(before: Deployment) -> Deployment:
    return changed(before, parallelism={"op": 3}, workers={InstanceId("op", 2): 1})


def shrunk(before: Deployment) -> Deployment:
    return changed(before, parallelism={"op": 1})


def moved(before: Deployment) -> Deployment:
    return changed(before, workers={InstanceId("op", 1): 1})


def rerouted(before: Deployment) -> Deployment:
    streams = [n for n, s in enumerate(before.graph.streams) if s.target == "op"]
    even = Routes.even(2)
    halves = type(even.owners)("H", [int(slot < SLOTS // 3) for slot in range(SLOTS)])
    return changed(before, routes=dict.fromkeys(streams, Routes(halves, {"a": 1, "b": 0})))


CHANGES = [grown, shrunk, moved, rerouted]
events = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=60)


@pytest.mark.parametrize("operate", OPERATORS.values(), ids=OPERATORS.keys())
@settings(max_examples=40)
@given(events, st.integers(0, 12), st.sampled_from(CHANGES))
def test_a_change_in_the_middle_changes_no_result(
    operate: Callable[[Any, Any], Any],
    gaps: list[tuple[str, int]],
    when: int,
    change: Callable[[Deployment], Deployment],
) -> None:
    time, some = 0, []
    for number, (key, gap) in enumerate(gaps):
        time += gap
        some.append((key, time, number))
    expected = Cluster(operate, some).finish()
    cluster = Cluster(operate, some)
    cluster.rounds(when)
    if not all(instance.ended for core in cluster.cores[1:] for instance in core.instances):
        cluster.change(change(cluster.deployment))
    assert cluster.finish() == expected


@pytest.mark.parametrize("operate", OPERATORS.values(), ids=OPERATORS.keys())
def test_a_table_may_follow_another_that_has_the_same_keys(
    operate: Callable[[Any, Any], Any],
) -> None:
    some = [(key, time, time) for time, key in enumerate("abcdefgh" * 8)]
    expected = Cluster(operate, some).finish()
    cluster = Cluster(operate, some)
    cluster.rounds(6)
    streams = [n for n, one in enumerate(cluster.deployment.graph.streams) if one.target == "op"]
    owners = Routes.even(2).owners
    for instance in (0, 1, 0):
        routes = Routes(owners, dict.fromkeys("abcdefgh", instance))
        cluster.change(changed(cluster.deployment, routes=dict.fromkeys(streams, routes)))
    assert cluster.finish() == expected


def test_who_has_keys_of_several_asks_each_of_them() -> None:
    """Nobody gives anything by itself here: what comes, comes because it was asked for."""
    some = [(key, time, time) for time, key in enumerate("abcdefgh" * 8)]
    cluster = Cluster(counted, some)
    cluster.rounds(10)
    before = cluster.deployment
    stream = stream_by_key(before, "op")
    assert stream is not None
    owners = before.route(stream).owners
    apart: dict[Hashable, int] = dict.fromkeys("abcdefgh", 2)
    assert len({owners[slot_of(key)] for key in apart}) == 2, "all have one owner: nothing to see"
    after = changed(
        before,
        parallelism={"op": 3},
        workers={InstanceId("op", 2): 1},
        routes={stream: Routes(owners, apart)},
    )
    for core in cluster.cores:
        core.prepare(1, after)
    for core in cluster.cores:
        core.switch()
    cluster.rounds(100)
    assert len(cluster.results) == len(some)
    for core in cluster.cores:
        core.close()


def test_a_marker_may_come_before_the_word_to_switch() -> None:
    some = [(key, time, time) for time, key in enumerate("abcdefgh" * 8)]
    expected = Cluster(counted, some).finish()
    cluster = Cluster(counted, some)
    cluster.rounds(3)
    for core in cluster.cores:
        core.prepare(1, moved(cluster.deployment))
    cluster.cores[0].switch()  # it has the source; the others hear of it by its marker only
    cluster.rounds(5)
    assert all(core.moving is None or core.moving.begun for core in cluster.cores)
    for core in cluster.cores:
        core.switch()
    for _ in range(1000):
        cluster.rounds(1)
        for core in cluster.cores:
            core.move()
            core.moved()
        if all(core.moving is None for core in cluster.cores):
            break
    assert cluster.finish() == expected


@pytest.mark.parametrize("many", [3, 2000])
def test_a_table_moves_the_keys_that_it_has_and_no_others_are_looked_at(many: int) -> None:
    some = [(f"key {number}", number, number) for number in range(4000)]
    cluster = Cluster(counted, some)
    cluster.rounds(1200)  # nearly all
    before = cluster.deployment
    stream = stream_by_key(before, "op")
    assert stream is not None
    route = before.route(stream)
    table: dict[Hashable, int] = {}
    for number in range(many):
        table[f"key {number}"] = 1 - route.owner(f"key {number}")
    asked: list[object] = []
    after = changed(before, routes={stream: Watched(route.owners, table)})
    Watched.asked = asked
    for change in (after, changed(after, routes={stream: route})):
        asked.clear()
        moved = cluster.change(change)
        assert moved == many
        assert not set(asked) & {f"key {number}" for number in range(many, 3000)}
    for core in cluster.cores:
        core.close()


def test_many_keys_that_came_by_partial_key_move_bit_by_bit() -> None:
    def partial() -> tuple[tr.Topology, list[Any]]:
        topology = tr.Topology()
        keyed = topology.source(range(8000), name="in").partial_key_by(lambda n: n % 4000)
        counts = keyed.scan(lambda count, _: (count or 0) + 1, parallelism=2, name="op")
        return topology, collect(counts.shuffle())

    topology, expected = partial()
    cores = Cores(topology, [0, 1, 2, 0, 0])
    cores.rounds(3000)
    topology, results = partial()
    cores = Cores(topology, [0, 1, 2, 0, 0])
    cores.rounds(1800)
    step = cores.cores[1].steps()["op", 0]
    assert isinstance(step, Stateful)
    before = len(step.keys())
    assert before > 1000
    sizes: list[int] = []
    send = cores.posts[1].state

    def noted(peer: int, message: Any) -> bool:
        sizes.extend(len(entries) for _, entries in getattr(message, "entries", ()))
        return send(peer, message)

    cores.posts[1].state = noted  # type: ignore[method-assign]
    assert cores.change(changed(cores.deployment, workers={InstanceId("op", 0): 2})) >= before
    assert sum(sizes) >= before
    assert max(sizes) <= 128
    cores.rounds(3000)
    assert sorted(results) == sorted(expected)
    assert len(results) == 8000
    for core in cores.cores:
        core.close()


class Watched(Routes):
    """Notes which keys somebody wants to know the owner of."""

    asked: list[object]

    def owner(self, key: Hashable) -> int:
        self.asked.append(key)
        return super().owner(key)


def test_ids_stay_and_numbers_are_never_given_again() -> None:
    cluster = Cluster(counted, [])
    before = cluster.deployment
    after = changed(moved(grown(before)), workers={InstanceId("op", 1): 2})
    numbers = {gate.instance: gate.number for gates in before.gates.values() for gate in gates}
    for gates in after.gates.values():
        for gate in gates:
            if gate.instance == InstanceId("op", 1):
                # It has been away: what was on its way to where it was must not be taken for new.
                assert gate.number not in numbers.values()
            elif gate.instance in numbers:
                assert gate.number == numbers[gate.instance]
    assert after.next_gate > before.next_gate


def test_a_change_that_is_called_off_leaves_no_trace() -> None:
    some = [(key, time, time) for time, key in enumerate("abcdefgh" * 4)]
    expected = Cluster(counted, some).finish()
    cluster = Cluster(counted, some)
    cluster.rounds(2)
    for core in cluster.cores:
        core.prepare(1, grown(cluster.deployment))
    cluster.rounds(2)
    links = [set(core.site.inlets) for core in cluster.cores]
    for core in cluster.cores:
        core.call_off()
    assert [set(core.site.inlets) for core in cluster.cores] != links
    assert all(len(core.instances) <= 2 for core in cluster.cores[1:])
    assert cluster.finish() == expected


def test_an_instance_comes_back_to_where_it_was() -> None:
    some = [(key, time, time) for time, key in enumerate("abcdefgh" * 20)]
    expected = Cluster(processed, some).finish()
    cluster = Cluster(processed, some)
    for worker in (1, 2, 0, 1, 2):
        cluster.rounds(2)
        cluster.change(changed(cluster.deployment, workers={InstanceId("op", 1): worker}))
    assert cluster.finish() == expected


def test_a_link_that_is_held_waits_while_others_go_on() -> None:
    topology = tr.Topology()
    got = collect(topology.source([], parallelism=2).shuffle().map(abs, parallelism=1))
    core = Core(0, deploy(topology.graph, [1, 2, 0]), VirtualClock(), Kept())
    (first, second) = core.instances[0].inlets.values()
    first.hold()
    core.deliver(1, [(0, [(0, 0, [1, 2])])], 0)
    core.deliver(2, [(0, [(0, 0, [3])])], 0)
    core.deliver(1, [(0, [(0, 0, [4])])], 0)
    while core.round():
        pass
    assert got == [3]
    first.release()
    core.deliver(2, [(0, [(0, 0, [5])])], 0)
    while core.round():
        pass
    assert got == [3, 1, 2, 4, 5]
    assert (first.queued, second.queued) == (0, 0)


def test_a_window_does_not_shrink_because_its_link_was_held() -> None:
    topology = tr.Topology()
    collect(topology.source([], parallelism=2).shuffle().map(abs, parallelism=1))
    clock = VirtualClock()
    core = Core(0, deploy(topology.graph, [1, 2, 0]), clock, Kept())
    held, slow = core.instances[0].inlets.values()
    before = held.window
    held.hold()
    for sender in (1, 2):
        core.deliver(sender, [(0, [(0, 0, [1])])], 0)
    clock.now_ns += 1_000_000_000
    held.release(clock.now_ns)  # what waited behind a marker was not waiting for this instance
    core.round()
    assert (held.queued, slow.queued) == (0, 0)
    assert held.window == 2 * before
    assert slow.window < before  # and what was here for a second, was


def test_records_keep_the_origin_of_their_batch_through_operators_and_workers() -> None:
    topology = tr.Topology()
    stream = topology.source(range(10)).map(abs).shuffle().map(abs, parallelism=2)
    stream.shuffle().sink(print, parallelism=1)
    deployment = deploy(topology.graph, [0, 1, 1, 2])
    posts = [Kept(), Kept()]
    limits = Limits(poll_records=2)
    first, second = (
        Core(rank, deployment, VirtualClock(), post, limits=limits, origins=True)
        for rank, post in enumerate(posts)
    )
    while not first.ended:
        first.round()
    origins = {}
    for item in posts[0].items:
        if isinstance(item, tuple):
            origins.update(dict.fromkeys(item[2], item[1]))
    assert len(set(origins.values())) == 5, "two records have one origin"
    for parcels in posts[0].messages:
        second.deliver(0, parcels, 0)
    while not second.ended:
        second.round()
    for item in posts[1].items:
        if isinstance(item, tuple):
            assert {origins[record] for record in item[2]} == {item[1]}


def test_records_keep_the_origin_of_their_batch_through_coroutines() -> None:
    """They end in another order than they began, and several batches at once."""

    async def slow(number: int) -> int:
        for _ in range(20 - number):
            await asyncio.sleep(0)
        return number

    topology = tr.Topology()
    stream = topology.source(range(10)).async_map(slow, concurrency=100, ordered=False)
    stream.shuffle().sink(print, parallelism=1)
    woken = threading.Event()
    post = Kept()
    core = Core(
        0,
        deploy(topology.graph, [0, 1]),
        VirtualClock(),
        post,
        woken.set,
        limits=Limits(poll_records=2),
        origins=True,
    )
    while not core.ended:
        if not core.round():
            assert woken.wait(30)
            woken.clear()
    core.close()
    batches: dict[int, set[int]] = {}
    for item in post.items:
        if isinstance(item, tuple):
            batches.setdefault(item[1], set()).update(item[2])
    assert sorted(map(sorted, batches.values())) == [[n, n + 1] for n in range(0, 10, 2)]
    assert 0 not in batches


def test_a_link_held_by_a_marker_keeps_what_comes_behind_it() -> None:
    topology = tr.Topology()
    got = collect(topology.source([], parallelism=2).shuffle().map(abs, parallelism=1))
    core = Core(0, deploy(topology.graph, [1, 2, 0]), VirtualClock(), Kept())
    (instance,) = core.instances
    first, second = instance.inlets.values()
    heard = instance.hear

    def hear(inlet: Any, marker: Any) -> None:
        heard(inlet, marker)
        inlet.hold()

    instance.hear = hear  # type: ignore[method-assign]
    core.deliver(1, [(0, [(0, 0, [1]), Watermark(5, 0), (0, 0, [2])])], 0)
    core.deliver(1, [(0, [(0, 0, [3])])], 0)
    core.deliver(2, [(0, [(0, 0, [4])])], 0)
    while core.round():
        pass
    assert sorted(got) == [1, 4]
    assert (first.queued, second.queued) == (2, 0)
    first.release()
    while core.round():
        pass
    assert got[-2:] == [2, 3]
    assert first.queued == 0


def test_what_cannot_be_is_refused() -> None:
    cluster = Cluster(counted, [])
    before = cluster.deployment
    stream = next(n for n, s in enumerate(before.graph.streams) if s.target == "op")
    with pytest.raises(ValueError, match="lead to instance 7; there are 2"):
        changed(before, routes={stream: Routes(Routes.even(2).owners, {"a": 7})})
    with pytest.raises(KeyError, match="no operator 'nobody'"):
        changed(before, parallelism={"nobody": 2})
    topology = tr.Topology()
    topology.source([1], parallelism=2, name="in").map(abs, name="out").sink(print, name="end")
    with pytest.raises(TopologyError, match="parallelisms are 2 and 3"):
        changed(deploy(topology.graph, [0, 0]), parallelism={"out": 3})
    core = cluster.cores[2]
    core.prepare(1, moved(before))
    with pytest.raises(RuntimeError, match="change 2 begins before 1 is over"):
        core.prepare(2, moved(before))
