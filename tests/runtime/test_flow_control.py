"""Nothing lost, nothing twice, no deadlock and bounded queues, whatever is slow or small.

A failing case is replayed by what Hypothesis prints: the topology follows from its seed.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace.graph.wiring import InstanceId
from tailrace.routing.hashing import stable_hash
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.deployment import Gate
from tailrace.runtime.exchange import Exchange, Lane, Stamp
from tailrace.runtime.markers import Marker
from tailrace.runtime.outgoing import Item
from tailrace.testing import collect, run
from tests.runtime.posts import core_of
from tests.runtime.watched import WatchedCore, watched_run
from tests.seeds import seeds

LIMITS = st.builds(
    Limits,
    window_records=st.integers(1, 6),
    window_bytes=st.integers(1, 1000),
    gathered_records=st.integers(1, 6),
    poll_records=st.integers(1, 6),
    round_messages=st.integers(1, 3),
)
GROUPINGS: dict[str, Callable[[tr.Stream], tr.Stream]] = {
    "forward": lambda stream: stream,
    "shuffle": lambda stream: stream.shuffle(),
    "local or shuffle": lambda stream: stream.local_or_shuffle(),
    "balanced": lambda stream: stream.shuffle(tail="balance"),
    "shared": lambda stream: stream.shuffle(tail="shared"),
    "local or shared": lambda stream: stream.local_or_shuffle(tail="shared"),
    "local or balanced": lambda stream: stream.local_or_shuffle(tail="balance"),
    "key": lambda stream: stream.key_by(),
    "partial key": lambda stream: stream.partial_key_by(),
    "broadcast": lambda stream: stream.broadcast(),
    "gather": lambda stream: stream.gather(),
    "custom": lambda stream: stream.partition_by(lambda record, n: stable_hash(record) % n),
}
MOST_RECORDS = 400


@dataclass
class Expected:
    """A stream, and a plain computation of what flows there."""

    stream: tr.Stream
    records: Counter[Any]


def third(record: Any) -> bool:
    return stable_hash(record) % 3 == 0


def operate(kind: str, stream: Any, records: Counter[Any], options: Any) -> list[Expected]:
    """Add an operator, and say what comes out of it."""
    after: Counter[Any] = Counter()
    if kind == "map":
        for record, count in records.items():
            after[(record, "m")] += count
        return [Expected(stream.map(lambda record: (record, "m"), **options), after)]
    if kind == "flat_map":
        for record, count in records.items():
            after[record] += count
            after[(record, "f")] += count
        return [Expected(stream.flat_map(lambda one: [one, (one, "f")], **options), after)]
    if kind == "filter":
        after.update({record: count for record, count in records.items() if not third(record)})
        return [Expected(stream.filter(lambda record: not third(record), **options), after)]
    if kind == "split":
        sides = stream.split(lambda record: str(third(record)), ["True", "False"], **options)
        parts: dict[str, Counter[Any]] = {"True": Counter(), "False": Counter()}
        for record, count in records.items():
            parts[str(third(record))][record] += count
        return [Expected(sides[name], part) for name, part in parts.items()]
    for record, count in records.items():
        after.update((record, n + 1) for n in range(count))
    counting = stream.key_by().scan(lambda count, record: (count or 0) + 1, **options)
    return [Expected(counting, after)]


def random_dag(seed: int) -> tuple[tr.Topology, list[tuple[list[Any], Counter[Any]]]]:
    """A topology, and for each of its sinks what it gets and what it should get."""
    chance = random.Random(seed)
    topology = tr.Topology()
    open_ends = []
    for number in range(chance.randint(1, 3)):
        items = [(number, n) for n in range(chance.randint(0, 40))]
        stream = topology.source(items, parallelism=chance.randint(1, 3))
        open_ends.append(Expected(stream, Counter(items)))
    for _ in range(chance.randint(1, 7)):
        merged = chance.sample(open_ends, min(len(open_ends), chance.choice([1, 1, 1, 2, 3])))
        records: Counter[Any] = sum((one.records for one in merged), Counter())
        stream = merged[0].stream.merge(*(one.stream for one in merged[1:]))
        kind = chance.choice(["map", "flat_map", "filter", "split", "scan"])
        options = {"parallelism": chance.randint(1, 4)}
        grouping = chance.choice(list(GROUPINGS)) if kind != "scan" else "key"
        if grouping == "gather":
            options = {"parallelism": 1}
        if grouping == "broadcast":
            records = Counter({key: n * options["parallelism"] for key, n in records.items()})
        if records.total() > MOST_RECORDS:
            continue
        results = operate(kind, GROUPINGS[grouping](stream), records, options)
        for one in merged:
            if chance.random() < 0.7:  # the others get a second reader
                open_ends.remove(one)
        open_ends += results
    sinks = []
    for end in open_ends:
        end_stream = end.stream.shuffle() if chance.random() < 0.5 else end.stream
        sinks.append((collect(end_stream), end.records))
    return topology, sinks


@settings(max_examples=seeds(300))
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    limits=LIMITS,
    channel_messages=st.integers(1, 3),
    slow=st.sampled_from([0, 0, 5, 9]),
)
def test_random_topologies_lose_nothing_and_never_get_stuck(
    seed: int, workers: int, limits: Limits, channel_messages: int, slow: int
) -> None:
    topology, sinks = random_dag(seed)
    watched_run(
        topology,
        workers=workers,
        seed=seed,
        limits=limits,
        channel_messages=channel_messages,
        slow=slow,
    )
    for found, expected in sinks:
        assert Counter(found) == expected


@pytest.mark.parametrize("seed", range(20))
def test_every_operator_on_every_worker_with_one_of_everything(seed: int) -> None:
    topology = tr.Topology()
    stream = topology.source(range(200), parallelism=3)
    for _ in range(4):  # all workers send to all, so each pair has traffic both ways
        stream = stream.shuffle().map(lambda n: n + 1, parallelism=3)
    results = collect(stream.shuffle())
    watched_run(
        topology,
        workers=3,
        seed=seed,
        limits=Limits(window_records=1, gathered_records=1, poll_records=1, round_messages=1),
        channel_messages=1,
        slow=seed % 10,
    )
    assert sorted(results) == [n + 4 for n in range(200)]


def test_queues_stay_small_however_fast_the_source_is() -> None:
    limits = Limits(window_records=8, gathered_records=8, poll_records=8, round_messages=1)
    topology = tr.Topology()
    stream = topology.source(range(5000), parallelism=2)
    results = collect(stream.shuffle().map(abs, parallelism=2).shuffle())
    watched_run(topology, workers=3, limits=limits, channel_messages=2, slow=8)
    assert sorted(results) == list(range(5000))
    # Gathered: less than 8 and one more poll, then less than 8 and one more such message.
    assert WatchedCore.largest_gathered < 8 + (8 + 8)
    assert WatchedCore.largest_queue < 8 + 8 + (8 + 8)


def test_bytes_under_way_stay_below_the_window_and_one_jumbo() -> None:
    limits = Limits(window_bytes=1000, poll_records=1, round_messages=1)
    topology = tr.Topology()
    texts = [f"{n:0200}" for n in range(5000)]  # a jumbo has one or two
    results = collect(topology.source(texts).shuffle().map(str, parallelism=2).shuffle())
    watched_run(topology, workers=3, limits=limits, channel_messages=10_000, slow=8)
    assert sorted(results) == texts
    assert 1000 <= WatchedCore.largest_bytes_used < 2000


def lane_of(limits: Limits) -> Lane:
    exchange = Exchange(0, "a -> b", limits, [])
    exchange.lay([Gate(0, 0, InstanceId("b", 0), 1)])
    (lane,) = exchange.lanes
    return lane


def test_of_large_records_fewer_are_gathered_and_of_small_ones_again_more() -> None:
    lane = lane_of(Limits(window_bytes=1000, gathered_records=50))
    lane.put([b"large"] * 4, Stamp())
    lane.take(800)
    assert lane.most_records == 5
    lane.put([b"larger than the window"], Stamp())
    lane.take(5000)
    assert lane.most_records == 1
    lane.put([b"small"], Stamp())
    lane.take(10)
    assert lane.most_records == 50


def test_bytes_are_free_again_when_their_records_are_taken() -> None:
    lane = lane_of(Limits(window_bytes=1000))
    for size_bytes in (100, 20, 3):
        lane.put([1, 2], Stamp())
        lane.take(size_bytes)
    assert lane.bytes_used == 123
    lane.credit(3, 8192)  # half of the second
    assert lane.bytes_used == 23
    lane.credit(2, 8192)  # an older report
    lane.credit(6, 8192)
    assert lane.bytes_used == 0


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=200)
    | st.lists(st.integers(1, 50), min_size=50, max_size=400),
    st.integers(1, 1 << 16) | st.integers(1, 1 << 20),
)
def test_who_waits_for_bytes_is_told_of_enough_to_go_on(
    sizes: list[int], window_bytes: int
) -> None:
    """The receiver reports when a quarter of the window is taken; small messages count together."""
    lane = lane_of(Limits(window_bytes=window_bytes, first_window_records=8192))
    taken = unreported_bytes = 0
    for size_bytes in sizes:
        assert lane.open
        lane.put([None], Stamp())
        lane.take(size_bytes)
        taken += 1
        unreported_bytes += size_bytes
        assert lane.bytes_used <= unreported_bytes + window_bytes // 1024
        if unreported_bytes >= window_bytes // 4:
            lane.credit(taken, 8192)
            unreported_bytes = 0
    lane.credit(taken, 8192)
    assert lane.bytes_used == 0


def test_a_slow_branch_holds_up_its_sender_but_loses_nothing() -> None:
    topology = tr.Topology()
    stream = topology.source(range(300)).map(abs)
    slow = collect(stream.shuffle().flat_map(lambda n: [n] * 5, parallelism=3).gather())
    fast = collect(stream.shuffle().filter(bool, parallelism=2))
    limits = Limits(window_records=2, gathered_records=1, poll_records=4, round_messages=1)
    watched_run(topology, workers=4, limits=limits, channel_messages=1, slow=7)
    assert Counter(slow) == dict.fromkeys(range(300), 5)
    assert sorted(fast) == list(range(1, 300))


def test_a_stream_merged_with_itself_carries_everything_twice() -> None:
    topology = tr.Topology()
    stream = topology.source(range(50), parallelism=2)
    results = collect(stream.merge(stream).shuffle().map(abs, parallelism=3))
    report = watched_run(topology, workers=2, limits=Limits(window_records=1, gathered_records=1))
    assert Counter(results) == dict.fromkeys(range(50), 2)
    assert report.sent["source -> map"] == 100


def test_two_outputs_of_one_operator_may_enter_the_same_other() -> None:
    topology = tr.Topology()
    sides = topology.source(range(60), parallelism=2).split(
        lambda n: "odd" if n % 2 else "even", ["odd", "even"]
    )
    results = collect(sides["odd"].merge(sides["even"]))
    report = watched_run(topology, workers=3, limits=Limits(window_records=1, gathered_records=1))
    assert sorted(results) == list(range(60))
    assert (report.sent["split[odd] -> sink"], report.sent["split[even] -> sink"]) == (30, 30)


def test_forwarded_streams_into_a_merged_operator_cross_workers() -> None:
    topology = tr.Topology()
    left = topology.source(range(40), parallelism=3, name="left")
    right = topology.source(range(40, 80), parallelism=3, name="right")
    results = collect(left.merge(right).map(abs))
    watched_run(
        topology, workers=2, limits=Limits(window_records=1, gathered_records=1), channel_messages=1
    )
    assert sorted(results) == list(range(80))


def test_a_hundred_by_a_hundred_instances() -> None:
    topology = tr.Topology()
    stream = topology.source(range(2000), parallelism=100)
    results = collect(stream.shuffle().map(abs, parallelism=100).gather().map(abs, parallelism=1))
    run(topology, workers=2)
    assert sorted(results) == list(range(2000))


class _Direct:
    """Carries messages to the other of two cores, and says their true size."""

    def __init__(self, cores: list[Core], rank: int) -> None:
        self._cores = cores
        self._rank = rank
        self.messages: deque[tuple[list[tuple[int, list[Item]]], int]] = deque()

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        size = sum(
            len(record)
            for _, items in parcels
            for item in items
            if not isinstance(item, Marker)
            for record in item[2]
        )
        self.messages.append((parcels, size))
        return max(size, 1)

    def credit(self, peer: int, *credit: Any) -> None:
        self._cores[peer].credit(*credit)

    def check(self, record: Any) -> None:
        pass

    def size(self, records: list[Any]) -> int:
        return 1


@pytest.mark.parametrize("seed", range(20))
def test_large_records_never_stop_a_link(seed: int) -> None:
    chance = random.Random(seed)
    topology = tr.Topology()
    got: list[bytes] = []
    records = [bytes(chance.randint(20, 900)) for _ in range(400)]
    topology.source(records).shuffle().sink(got.append)
    limits = Limits(window_bytes=4000, poll_records=64)
    cores: list[Core] = []
    posts = [_Direct(cores, rank) for rank in (0, 1)]
    cores += [
        core_of(topology, (0, 1), post=posts[rank], limits=limits, rank=rank) for rank in (0, 1)
    ]
    sender, receiver = cores
    while not receiver.ended:
        progress = sender.round()
        while posts[0].messages:
            parcels, size = posts[0].messages.popleft()
            receiver.deliver(0, parcels, 0, size)
        progress |= receiver.round()
        assert progress, f"stuck after {len(got)} of {len(records)} records"
    assert got == records


def test_a_hot_receiver_among_others_in_one_jumbo_is_never_waited_for_in_vain() -> None:
    """What a link is charged and what its receiver reports must be counted alike, or both wait."""
    topology = tr.Topology()
    records = [("hot" if n % 20 else f"k{n}", bytes(10_000), n) for n in range(3000)]
    keyed = topology.source(records).key_by(lambda record: record[0])
    got: list[int] = []
    keyed.process(_Number(), parallelism=8).sink(got.append)
    cores: list[Core] = []
    posts = [_Sized(cores, rank) for rank in (0, 1)]
    placement = (0, *[1] * 8)
    cores += [core_of(topology, placement, post=posts[rank], rank=rank) for rank in (0, 1)]
    for _ in range(20_000):
        progress = cores[0].round()
        while posts[0].messages:
            parcels, size = posts[0].messages.popleft()
            cores[1].deliver(0, parcels, 0, size)
        progress |= cores[1].round()
        if cores[1].ended:
            break
        assert progress, f"stuck after {len(got)} of {len(records)} records"
    assert sorted(got) == list(range(3000))


class _Number(tr.Operator):
    def process(self, record: Any) -> None:
        self.emit(record[2])


class _Sized(_Direct):
    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        records = sum(
            len(item[2]) for _, items in parcels for item in items if not isinstance(item, Marker)
        )
        self.messages.append((parcels, 10_000 * records))
        return max(10_000 * records, 1)


class _Picky(_Direct):
    """Cannot send functions."""

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        for _, items in parcels:
            for item in items:
                for record in [] if isinstance(item, Marker) else item[2]:
                    self.check(record)
        self.messages.append((parcels, 1))
        return 1

    def check(self, record: Any) -> None:
        if callable(record):
            raise ValueError("no functions")


class _Pickier(_Picky):
    """Nor what functions are in."""

    def check(self, record: Any) -> None:
        if callable(record) or (isinstance(record, tuple) and callable(record[0])):
            raise ValueError("no functions")


def run_until_ended(topology: tr.Topology, kind: type[_Picky]) -> None:
    """In two workers: the source in the first, all behind it in the second."""
    cores: list[Core] = []
    posts = [kind(cores, rank) for rank in (0, 1)]
    cores += [core_of(topology, (0, 1, 1), post=posts[rank], rank=rank) for rank in (0, 1)]
    for _ in range(50):
        cores[0].round()
        while posts[0].messages:
            parcels, size = posts[0].messages.popleft()
            cores[1].deliver(0, parcels, 0, size)
        cores[1].round()
    assert all(core.ended for core in cores)


def test_a_dead_letter_that_cannot_travel_either_comes_as_text() -> None:
    topology = tr.Topology()
    made = topology.source([1, 2, 3]).map(
        lambda n: abs if n == 2 else n, name="made", on_error="dead letter"
    )
    dead, got = collect(made.dead_letters().shuffle()), collect(made.shuffle())
    here = collect(made.dead_letters())
    run_until_ended(topology, _Pickier)
    assert got == [1, 3]
    ((text, error),) = dead
    assert text == "<built-in function abs>"
    assert "cannot travel to another worker on made -> sink" in error
    ((record, _),) = here
    assert record is abs, "who can have it as it is gets it once"


def test_dead_letters_of_what_cannot_be_sent_come_before_their_end() -> None:
    topology = tr.Topology()
    made = topology.source([1, 2, 3]).map(
        lambda n: abs if n == 2 else n, name="made", on_error="dead letter"
    )
    dead, got = collect(made.dead_letters().shuffle()), collect(made.shuffle())
    run_until_ended(topology, _Picky)
    assert got == [1, 3]
    ((record, error),) = dead
    assert record is abs
    assert "cannot travel to another worker on made -> sink" in error
