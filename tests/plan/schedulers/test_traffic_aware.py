"""Greedy by traffic: pairs together while the load permits."""

from hypothesis import given, settings

from tailrace.plan.model.machine import Place, cluster
from tailrace.plan.model.profile import Profile
from tailrace.plan.model.traffic import estimate, locality
from tailrace.plan.model.weighted import Weighted
from tailrace.plan.plan import check
from tailrace.plan.schedulers.traffic_aware import put_together, traffic_aware
from tailrace.plan.search.balance import Balance, carried
from tests.plan.graphs import Case, cases
from tests.plan.topologies import Setting, pipelines, settings_of_schedulers


@given(settings_of_schedulers())
@settings(max_examples=100)
def test_plans_fit_and_are_the_same_every_time(setting: Setting) -> None:
    given_ = (setting.graph, setting.profile, setting.machine, setting.places)
    plan = traffic_aware(*given_)
    check(plan, setting.graph, setting.places)
    assert plan == traffic_aware(*given_)


@given(cases())
@settings(max_examples=200)
def test_no_part_gets_more_than_it_may_and_one_instance(case: Case) -> None:
    loads = case.graph.loads
    single = 0.0 if len(set(loads)) == 1 else max(loads)
    parts = carried(loads, put_together(case.graph, case.balance), len(case.workers))
    assert all(load <= high + single for load, high in zip(parts, case.balance.high, strict=True))


def test_the_pair_that_exchanges_most_comes_first() -> None:
    path = Weighted.of([1.0] * 4, [(0, 1, 1.0), (1, 2, 9.0), (2, 3, 1.0)])
    part_of = put_together(path, Balance.of(path.loads, [1.0, 1.0], 0.0))
    assert part_of[1] == part_of[2] != part_of[0] == part_of[3]


def test_a_pair_already_placed_may_move_together() -> None:
    # 0 and 1 start in one part, 2 and 3 in the other; then 1 is drawn to 2 and 3 by both.
    drawn = Weighted.of(
        [1.0] * 5, [(0, 1, 9.0), (2, 3, 8.0), (1, 2, 7.0), (1, 3, 6.0), (0, 4, 1.0)]
    )
    part_of = put_together(drawn, Balance.of(drawn.loads, [1.0, 1.0], 0.2))
    assert part_of[1] == part_of[2] == part_of[3] != part_of[0] == part_of[4]


def test_what_a_pair_exchanges_counts_once() -> None:
    triangle = Weighted.of([1.0] * 3, [(0, 2, 4.0), (1, 2, 3.0), (0, 1, 1.0)])
    part_of = put_together(triangle, Balance.of(triangle.loads, [1.0, 1.0], 0.3))
    assert part_of[0] == part_of[2] != part_of[1]


def test_pipelines_are_kept_whole() -> None:
    machine = cluster(2, 1, 2)
    graph, nothing = pipelines(4), Profile({})
    plan = traffic_aware(graph, nothing, machine, machine.workers())
    assert locality(estimate(graph, nothing), plan.place_of, plan.places).leaving_fraction == 0.0


def test_a_node_without_instances_is_no_obstacle() -> None:
    places = tuple(Place(node, 0) for node in range(5))
    plan = traffic_aware(pipelines(1), Profile({}), cluster(5), places)
    check(plan, pipelines(1), places)
