"""Streams dealt in every way, and in another one at any moment: nothing lost, twice or stuck."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace import testing
from tailrace.runtime.core import Core, Limits
from tailrace.runtime.loads import LOADS_BYTES, Loads
from tailrace.tail.modes import MODES, SHUFFLED, Tail
from tailrace.testing import collect
from tests.runtime.test_flow_control import LIMITS, random_dag
from tests.runtime.watched import WatchedCore, watched_run


class Fickle(WatchedCore):
    """Deals in another way now and then; each worker when it likes, as if told at other times."""

    rows: ClassVar[dict[int, bytearray]] = {}

    def __init__(self, rank: int, *arguments: Any, **options: Any) -> None:
        self.rows[rank] = bytearray(LOADS_BYTES)
        loads = Loads(rank, self.rows.get)
        for other in range(4):
            loads.find(other)
        super().__init__(rank, *arguments, **options, loads=loads)
        self._whim = random.Random(rank + 100)

    def round(self, poll: bool = True) -> bool:
        graph = self.deployment.graph
        for number, stream in enumerate(graph.streams):
            shuffled = stream.grouping.rule in SHUFFLED and number in self.deployment.gates
            if shuffled and self._whim.random() < 0.05:
                self.set_tail(number, self._whim.choice(MODES))
        return super().round(poll)


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    limits=LIMITS,
    channel_messages=st.integers(1, 3),
    slow=st.sampled_from([0, 0, 5, 9]),
)
def test_nothing_is_lost_or_stuck_while_modes_change(
    seed: int, workers: int, limits: Limits, channel_messages: int, slow: int
) -> None:
    topology, sinks = random_dag(seed)
    Fickle.slow = slow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "Core", Fickle)
        report = testing.run(
            topology, workers=workers, seed=seed, limits=limits, channel_messages=channel_messages
        )
    assert report.sent == report.received
    for found, expected in sinks:
        assert Counter(found) == expected


@pytest.mark.parametrize("tail", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_windows_are_the_same_however_records_are_dealt(tail: Tail, seed: int) -> None:
    """A watermark that overtook records in a queue would make them late."""
    topology = tr.Topology()
    timed = topology.source(range(400), parallelism=2).event_time(lambda n: n, max_delay_s=3)
    passed = timed.shuffle(tail=tail).filter(lambda n: True, parallelism=3)
    keyed = passed.key_by(lambda n: n % 3)
    windows = keyed.window(tr.tumbling(10)).aggregate(lambda count, n: count + 1, 0, parallelism=2)
    results = collect(windows)
    limits = Limits(window_records=8, gathered_records=4, poll_records=3, round_messages=2)
    report = watched_run(
        topology, workers=3, seed=seed, limits=limits, channel_messages=2, slow=seed % 8
    )
    assert not any(report.late.values())
    assert sum(result.value for result in results) == 400


def test_each_senders_records_stay_in_order_on_their_way_to_one_receiver() -> None:
    topology = tr.Topology()
    stream = topology.source(range(500)).shuffle(tail="shared")
    results = collect(stream.map(lambda n: n, parallelism=1).gather())
    limits = Limits(window_records=4, gathered_records=4, poll_records=3)
    watched_run(topology, workers=2, limits=limits, channel_messages=2, slow=5)
    assert results == list(range(500))


def test_what_waits_in_a_shared_queue_is_bounded() -> None:
    largest = 0

    class Looking(Core):
        def round(self, poll: bool = True) -> bool:
            nonlocal largest
            progress = super().round(poll)
            largest = max(largest, *(one.queued for one in self._outgoing.exchanges), 0)
            return progress

    topology = tr.Topology()
    stream = topology.source(range(3000)).shuffle(tail="shared").map(abs, parallelism=2)
    results = collect(stream.gather())
    limits = Limits(window_records=8, gathered_records=8, poll_records=8, round_messages=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "Core", Looking)
        testing.run(topology, workers=3, limits=limits, channel_messages=1)
    assert sorted(results) == list(range(3000))
    assert 0 < largest < 2 * 8 + 8
