"""TurboStream's algorithms 1 and 2, step by step."""

import pytest
from hypothesis import given

from tailrace.plan.model.weighted import Weighted
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.split import assign, consolidate_once, consolidated, split_in_two
from tests.plan.graphs import Case, cases

# Figure 7's shape: one instance of each operator, a fork that joins again. The figure's own
# numbers are in its picture only.
FORK = Weighted.of(
    [1.0] * 6, [(0, 1, 9.0), (0, 2, 4.0), (1, 3, 2.0), (2, 3, 3.0), (2, 4, 8.0), (3, 5, 5.0)]
)


def unlimited() -> Effort:
    return Effort(10**12)


def test_each_instance_joins_the_free_neighbour_it_exchanges_most_with() -> None:
    assert consolidate_once(FORK) == (0, 0, 1, 2, 1, 2)


def test_parents_add_up_loads_and_the_traffic_between_them() -> None:
    parents = FORK.merged(consolidate_once(FORK), 3)
    assert parents.loads == (2.0, 2.0, 2.0)
    assert parents.flows == ({1: 4.0, 2: 2.0}, {0: 4.0, 2: 3.0}, {0: 2.0, 1: 3.0})


def test_an_instance_whose_neighbours_are_all_taken_stays_alone() -> None:
    star = Weighted.of([1.0] * 4, [(0, 1, 3.0), (0, 2, 2.0), (0, 3, 1.0)])
    assert consolidate_once(star) == (0, 0, 1, 2)


def test_no_pair_is_heavier_than_asked_for() -> None:
    path = Weighted.of([3.0, 2.0, 1.0], [(0, 1, 9.0), (0, 2, 1.0)])
    assert consolidate_once(path, most_load=4.0) == (0, 1, 0)


def test_levels_are_added_until_the_threshold_is_met() -> None:
    path = Weighted.of([1.0] * 16, [(i, i + 1, 1.0) for i in range(15)])
    tree = consolidated(path, 3, unlimited())
    assert [level.graph.size for level in tree.levels] == [16, 8, 4]
    assert tree.top.loads == (8.0, 8.0)
    assert tree.down([0, 1]) == [0] * 8 + [1] * 8


def test_consolidation_ends_when_nobody_communicates() -> None:
    alone = Weighted.of([1.0] * 5, [])
    assert consolidated(alone, 2, unlimited()).top == alone


def test_a_split_takes_its_target_and_cuts_the_thinnest_stream() -> None:
    flows = [5.0, 5.0, 5.0, 1.0, 5.0, 5.0, 5.0]
    path = Weighted.of([1.0] * 8, [(i, i + 1, flow) for i, flow in enumerate(flows)])
    assert split_in_two(path, 0.5, 0.1, unlimited()) in ({0, 1, 2, 3}, {4, 5, 6, 7})
    assert len(split_in_two(path, 0.25, 0.05, unlimited())) == 2


def test_a_split_goes_on_where_nothing_is_connected() -> None:
    pairs = Weighted.of([1.0] * 6, [(0, 1, 1.0), (2, 3, 1.0), (4, 5, 1.0)])
    part = split_in_two(pairs, 2 / 3, 0.1, unlimited())
    assert len(part) == 4
    assert pairs.cut([int(v in part) for v in range(6)]) == 0


def test_the_nearest_split_is_taken_when_none_is_within_the_factor() -> None:
    lopsided = Weighted.of([3.0, 4.0, 2.0], [(0, 1, 1.0), (1, 2, 3.0)])
    # {1, 2} would cut less, but has 6 of 9.
    assert split_in_two(lopsided, 0.5, 0.05, unlimited()) == {0, 2}


def test_nodes_get_load_by_their_number_of_workers() -> None:
    path = Weighted.of([1.0] * 12, [(i, i + 1, 1.0) for i in range(11)])
    part_of = assign(path, [3.0, 2.0, 1.0], 0.05, 64, unlimited())
    assert [part_of.count(part) for part in range(3)] == [6, 4, 2]


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_odd_numbers_of_nodes_are_halved_too(nodes: int) -> None:
    path = Weighted.of([1.0] * (4 * nodes), [(i, i + 1, 1.0) for i in range(4 * nodes - 1)])
    part_of = assign(path, [1.0] * nodes, 0.02, 64, unlimited())
    assert [part_of.count(part) for part in range(nodes)] == [4] * nodes


@given(cases())
def test_every_instance_gets_one_of_the_nodes(case: Case) -> None:
    part_of = assign(case.graph, case.capacities, case.factor, case.threshold, unlimited())
    assert len(part_of) == case.graph.size
    assert set(part_of) <= set(range(len(case.workers)))
