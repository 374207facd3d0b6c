"""Which instance gets a record, by every grouping."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.runtime.core import Limits
from tailrace.runtime.step import OperatorFailed
from tailrace.testing import collect, run

TINY = Limits(window_records=3, gathered_records=2, poll_records=2, round_messages=1)


class Where(tr.Operator):
    """(index of the instance, record)"""

    def process(self, record: Any) -> None:
        self.emit((self.instance.index, record))


def spread(
    topology: tr.Topology, stream: tr.Stream, instances: int, **how: Any
) -> list[tuple[int, Any]]:
    results = collect(stream.process(Where(), parallelism=instances).gather().map(tuple))
    run(topology, **how)
    return results


def test_shuffle_is_even_to_one_record_per_sender() -> None:
    topology = tr.Topology()
    stream = topology.source(range(1000), parallelism=3).shuffle()
    load = Counter(index for index, _ in spread(topology, stream, 4, workers=2))
    assert sum(load.values()) == 1000
    assert max(load.values()) - min(load.values()) <= 3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_shuffle_is_even_whatever_comes_together(sizes: list[int]) -> None:
    bunches = [[0] * size for size in sizes]
    topology = tr.Topology()
    stream = topology.source(bunches).flat_map(list).shuffle()
    load = Counter(index for index, _ in spread(topology, stream, 3, limits=Limits(poll_records=1)))
    # What comes together stays together while it is few records.
    assert max(load.values()) - min(load[index] for index in range(3)) <= 12


def test_local_or_shuffle_stays_in_the_worker_if_it_can() -> None:
    topology = tr.Topology()
    stream = topology.source(range(100), parallelism=2).local_or_shuffle()
    # Instances 0 and 1 are the sources, on workers 0 and 1; 2 to 5 follow on workers 0, 1, 0, 1.
    found = spread(topology, stream, 4, workers=2)
    assert {(index % 2, record % 2) for index, record in found} == {(0, 0), (1, 1)}
    assert set(Counter(index for index, _ in found).values()) == {25}


def test_local_or_shuffle_goes_everywhere_if_nobody_is_here() -> None:
    topology = tr.Topology()
    stream = topology.source(range(100)).local_or_shuffle()
    # The source is on worker 0 of 4, instances 1 and 2 are on others.
    assert Counter(index for index, _ in spread(topology, stream, 2, workers=4)) == {0: 50, 1: 50}


@given(st.lists(st.integers(0, 20), max_size=200), st.integers(1, 5), st.integers(0, 1000))
def test_a_key_has_one_instance_and_keeps_each_senders_order(
    keys: list[int], instances: int, seed: int
) -> None:
    records = [(key, position) for position, key in enumerate(keys)]
    topology = tr.Topology()
    stream = topology.source(records, parallelism=3).key_by(lambda record: record[0])
    found = spread(
        topology, stream, instances, workers=3, seed=seed, limits=TINY, channel_messages=1
    )
    assert sorted(record for _, record in found) == sorted(records)
    homes = defaultdict(set)
    positions = defaultdict(list)
    for index, (key, position) in found:
        homes[key].add(index)
        positions[key, position % 3].append(position)  # instance i of the source has every third
    assert all(len(home) == 1 for home in homes.values())
    assert all(found == sorted(found) for found in positions.values())


def test_equal_keys_of_different_types_meet() -> None:
    topology = tr.Topology()
    stream = topology.source([1, 1.0, True]).key_by()
    assert len({index for index, _ in spread(topology, stream, 5)}) == 1


def test_a_partial_key_has_at_most_two_instances_and_evens_out_a_hot_key() -> None:
    records = [n if n % 2 else 0 for n in range(4000)]  # half of all are one key
    topology = tr.Topology()
    stream = topology.source(records).partial_key_by()
    found = spread(topology, stream, 4)
    homes = defaultdict(set)
    for index, key in found:
        homes[key].add(index)
    assert max(len(home) for home in homes.values()) == 2
    load = Counter(index for index, _ in found)
    # The hot key's two get 1000 each, and the sixth of the other keys that have just these two.
    assert max(load.values()) < 1250


def test_a_partial_key_that_is_more_than_two_instances_can_take_has_all() -> None:
    records = [-1 if n % 5 else n // 5 % 40 for n in range(20_000)]  # four of five are one key
    topology = tr.Topology()
    found = spread(topology, topology.source(records).partial_key_by(), 8)
    homes = defaultdict(set)
    for index, key in found:
        homes[key].add(index)
    assert len(homes[-1]) == 8
    assert max(len(home) for key, home in homes.items() if key != -1) == 2
    # It takes some thousand records to see that it is hot; the others then get the more of it.
    load = Counter(index for index, _ in found)
    assert max(load.values()) < 1.1 * len(records) / 8


def test_partial_keys_of_all_senders_have_the_same_two_instances() -> None:
    topology = tr.Topology()
    stream = topology.source([7] * 300, parallelism=3).partial_key_by()
    assert len({index for index, _ in spread(topology, stream, 6)}) == 2


def test_broadcast_reaches_every_instance() -> None:
    topology = tr.Topology()
    stream = topology.source(range(10)).broadcast()
    found = spread(topology, stream, 3, workers=2)
    assert sorted(found) == [(index, record) for index in range(3) for record in range(10)]


def test_what_is_gathered_has_one_instance() -> None:
    topology = tr.Topology()
    stream = topology.source(range(30), parallelism=3).gather()
    results = collect(stream.process(Where(), name="one"))
    run(topology, workers=2)
    assert sorted(results) == [(0, n) for n in range(30)]
    assert topology.graph.operator("one").parallelism == 1
    with pytest.raises(tr.TopologyError, match=r"parallelism of 'map' is 4, but gather\(\) before"):
        stream.map(abs, parallelism=4)


def test_merged_streams_keep_their_groupings() -> None:
    topology = tr.Topology()
    rules = topology.source(["rule"], name="rules").broadcast()
    events = topology.source(range(20), name="events").shuffle()
    found = spread(topology, rules.merge(events), 3, workers=2)
    assert sorted(index for index, record in found if record == "rule") == [0, 1, 2]
    assert sorted(record for _, record in found if record != "rule") == list(range(20))


class PerKey(tr.Operator):
    def process(self, record: Any) -> None:
        self.state = (self.state or 0) + 1
        self.emit((self.key, self.state))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_merged_keyed_streams_are_keyed_each_by_its_own_key(parallelism: int) -> None:
    topology = tr.Topology()
    orders = topology.source([("order", n % 4) for n in range(40)], name="orders")
    clicks = topology.source([{"user": n % 4} for n in range(80)], name="clicks")
    both = orders.key_by(lambda order: order[1]).merge(clicks.key_by(lambda click: click["user"]))
    assert isinstance(both, tr.KeyedStream)
    counts = collect(both.fold(lambda n, _: (n or 0) + 1, parallelism=parallelism))
    states = collect(both.process(PerKey(), parallelism=parallelism))
    timed = orders.event_time(lambda _: 1, max_delay_s=0).key_by(lambda order: order[1])
    more = clicks.event_time(lambda _: 1, max_delay_s=0).key_by(lambda click: click["user"])
    again = timed.merge(more).event_time(lambda _: 1)
    assert isinstance(again, tr.KeyedStream)
    windows = collect(again.window(tr.tumbling(5)).aggregate(lambda n, _: n + 1, 0))
    run(topology, workers=2)
    assert sorted(counts) == [(key, 30) for key in range(4)]
    assert sorted(states) == [(key, n) for key in range(4) for n in range(1, 31)]
    assert sorted((r.key, r.value) for r in windows) == [(key, 30) for key in range(4)]


def test_merging_keys_with_partial_keys_is_refused() -> None:
    topology = tr.Topology()
    stream = topology.source([1])
    with pytest.raises(tr.TopologyError, match="group them alike, or behind the merge"):
        stream.key_by().merge(stream.partial_key_by())
    both = stream.key_by(abs).merge(stream.key_by(str))
    with pytest.raises(tr.TopologyError, match="left side of a join is merged of streams"):
        both.join(stream.key_by(), within_s=1)  # type: ignore[attr-defined]


def test_a_function_may_pick() -> None:
    topology = tr.Topology()
    stream = topology.source(range(9)).partition_by(lambda record, n: record % n)
    assert sorted(spread(topology, stream, 3)) == sorted((n % 3, n) for n in range(9))


@pytest.mark.parametrize("index", [3, -1])
def test_a_picked_instance_that_is_not_there_names_the_record(index: int) -> None:
    topology = tr.Topology()
    stream = topology.source(["r1"], name="in").partition_by(lambda record, n: index)
    with pytest.raises(OperatorFailed, match=f"gave {index} for 'r1'; there are 3 instances"):
        spread(topology, stream, 3)


def test_a_key_function_that_raises_names_the_stream_and_the_one_record() -> None:
    topology = tr.Topology()
    stream = topology.source([1, 2, 0, 4], name="in").key_by(lambda record: 1 // record)
    with pytest.raises(OperatorFailed, match="operator 'process' failed on 0: ZeroDiv"):
        spread(topology, stream, 2)


@dataclass
class Loose:
    n: int


BAD_KEYS = pytest.mark.parametrize(
    ("key", "kind"),
    [
        (object(), "object"),
        ([1], "list"),
        ({}, "dict"),
        (bytearray(b"x"), "bytearray"),
        (Loose(1), "Loose"),
        ((1, [2]), "list"),
    ],
    ids=["object", "list", "dict", "bytearray", "dataclass", "list in a tuple"],
)


@BAD_KEYS
@pytest.mark.parametrize("group", ["key_by", "partial_key_by"])
def test_a_key_that_no_process_could_hash_alike_is_refused(
    group: str, key: object, kind: str
) -> None:
    topology = tr.Topology()
    stream = getattr(topology.source([1]), group)(lambda _: key)
    with pytest.raises(OperatorFailed, match=f"a key of type {kind} has no hash .*; use str"):
        spread(topology, stream, 2)


LETTERS: dict[str, Any] = {"name": "op", "on_error": "dead letter"}


@BAD_KEYS
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.key_by().scan(lambda n, _: 1, **LETTERS),
        lambda s: s.key_by().fold(lambda n, _: 1, **LETTERS),
        lambda s: s.key_by().process(PerKey(), **LETTERS),
        lambda s: s.key_by().window(tr.tumbling(1), time="processing").collect(**LETTERS),
        lambda s: s.key_by().join(s.key_by(lambda _: 1), within_s=1, time="processing", **LETTERS),
    ],
    ids=["scan", "fold", "process", "window", "join"],
)
def test_such_a_key_is_refused_by_the_operator_with_one_instance_too(
    build: Any, key: object, kind: str
) -> None:
    topology = tr.Topology()
    built = build(topology.source([1, key, 2]))
    collect(built)
    why = collect(built.dead_letters().map(itemgetter(1)))
    assert run(topology).skipped["op"] == 1
    (error,) = why
    assert re.search(f"a key of type {kind} has no hash .*; use str", error)


def test_inside_a_worker_the_record_itself_is_handed_over() -> None:
    topology = tr.Topology()
    records = [object() for _ in range(10)]
    same = collect(topology.source(records).shuffle().map(lambda one: one, parallelism=2))
    run(topology, workers=1)
    assert {id(one) for one in same} == {id(one) for one in records}
