"""What changes cost and brought teaches what the next ones will."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adapt.changelog import KEYS_PER_S, MOST_ENTRIES, ChangeLog
from tailrace.adapt.estimate import Effort, Held, effort_of, estimate, moved_share
from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Place
from tailrace.plan.plan import Plan, plan_for, with_parallelism


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("truth", [30_000.0, 2_000_000.0])
def test_the_rate_at_which_keys_move_is_learned_from_changes(truth: float, seed: int) -> None:
    chance = random.Random(seed)
    changes = ChangeLog()
    for _ in range(12):
        keys = chance.randrange(10_000, 1_000_000)
        number = changes.begin(0.0, "plan", keys, 0.0, 0.1)
        changes.finished(number, 0.05 + keys / truth * chance.uniform(0.8, 1.25))
    assert changes.seconds(500_000) == pytest.approx(0.05 + 500_000 / truth, rel=0.35)


def test_small_changes_teach_what_any_change_takes_and_nothing_of_rates() -> None:
    changes = ChangeLog()
    for _ in range(20):
        changes.finished(changes.begin(0.0, "plan", 3, 0.0, 0.1), 0.4)
    assert changes.seconds(0) == pytest.approx(0.4, rel=0.01)
    assert changes.keys_per_s == KEYS_PER_S


def test_large_states_are_timed_by_their_bytes() -> None:
    changes = ChangeLog()
    for _ in range(20):
        changes.finished(changes.begin(0.0, "plan", 2_000, 2e9, 0.1), 20.0)
    assert changes.bytes_per_s == pytest.approx(1e8, rel=0.01)
    assert changes.keys_per_s == KEYS_PER_S


def test_who_has_promised_too_much_is_trusted_less_and_again_in_time() -> None:
    changes = ChangeLog()
    for at_s in range(5):
        number = changes.begin(float(at_s), "plan", 10, 0.0, gain=1.0)
        changes.finished(number, 0.1)
        changes.observed(number, gain=0.1)
    assert changes.trust("plan", 5.0) < 0.3
    assert changes.trust("tables", 5.0) == 1.0
    assert changes.trust("plan", 10_000.0) > 0.9
    better = estimate(changes, "tables", 5.0, 1.0, Effort())
    assert estimate(changes, "plan", 5.0, 1.0, Effort()).gain < 0.3 * better.gain


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0.01, 9)), max_size=20))
def test_trust_stays_between_nothing_and_twice(seen: list[tuple[float, float]]) -> None:
    changes = ChangeLog()
    for gain, expected in seen:
        changes.observed(changes.begin(0.0, "plan", 0, 0.0, expected), gain)
    assert 0 <= changes.trust("plan", 0.0) <= 2


def test_a_failed_change_has_brought_nothing() -> None:
    changes = ChangeLog()
    changes.failed(changes.begin(0.0, "plan", 1, 0.0, 1.0))
    assert changes.trust("plan", 0.0) == 0.5
    assert [str(one) for one in changes] == ["plan: 1 keys; failed"]


def test_only_the_last_changes_are_kept() -> None:
    changes = ChangeLog()
    for at_s in range(2 * MOST_ENTRIES):
        changes.begin(float(at_s), "plan", 0, 0.0, 1.0)
    assert len(changes) == MOST_ENTRIES
    assert next(iter(changes)).at_s == MOST_ENTRIES
    changes.finished(0, 1.0)  # long forgotten, and no error
    assert changes.keys_per_s == KEYS_PER_S


def words() -> Graph:
    import tailrace as tr

    topology = tr.Topology("words")
    source = topology.source(["a"], name="source", parallelism=2)
    counts = source.key_by().scan(lambda n, _: (n or 0) + 1, name="count", parallelism=2)
    counts.shuffle().sink(print, name="sink", parallelism=1)
    return topology.graph


def placed(graph: Graph, place_of: tuple[int, ...]) -> Plan:
    places = tuple(Place(0, 0) for _ in range(4))
    return plan_for(graph, places, place_of, scheduler="test", reason="")


def test_what_moves_between_plans_is_what_leaves_its_place() -> None:
    graph = words()
    held = {"count": Held.of(1000)}
    first = placed(graph, (0, 1, 0, 1, 0))
    assert effort_of(graph, first, first, held) == Effort(0, 0.0)
    assert effort_of(graph, first, placed(graph, (1, 0, 0, 1, 3)), held).keys == 0
    assert effort_of(graph, first, placed(graph, (0, 1, 0, 2, 0)), held).keys == 500
    wider = with_parallelism(graph, {"count": 4})
    more = placed(wider, (0, 1, 0, 1, 2, 3, 0))
    assert effort_of(graph, first, more, held) == Effort(500, 50_000.0)
    assert effort_of(graph, more, first, held) == Effort(500, 50_000.0)


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_the_share_that_moves_is_a_share(was: list[int], becomes: list[int]) -> None:
    assert 0 <= moved_share(tuple(was), tuple(becomes)) <= 1
    assert moved_share(tuple(was), tuple(was)) == 0
    assert moved_share(tuple(was), tuple(becomes)) == moved_share(tuple(becomes), tuple(was))
