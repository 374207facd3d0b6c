"""RLAS against exhaustive search, and what it promises of its plans."""

from collections.abc import Callable
from math import inf
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_parts.briskstream import APPS, fraud_detection, word_count
from tailrace.graph.model import Graph, Rule
from tailrace.plan.model.flow import flow_of
from tailrace.plan.model.machine import Cost, Crossing, Machine, Place, cluster, server_a
from tailrace.plan.model.prediction import predict
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, apply, check, with_parallelism
from tailrace.plan.schedulers.first_fit import first_fit
from tailrace.plan.schedulers.random_plan import random_plan
from tailrace.plan.schedulers.rlas import PLACEMENT_LAYOUTS, rlas, rlas_fix_l, rlas_fix_u
from tailrace.plan.search.branch_and_bound import Search, Solution
from tailrace.plan.search.effort import Effort
from tailrace.plan.search.layout import Layout, layout_of_plan
from tests.plan.small import all_counts, graph, graphs, machines, placed, profile, sustained
from tests.seeds import seeds

Case = tuple[Graph, Profile]
On = tuple[Machine, tuple[Place, ...]]


def best_placement(topology: Graph, times: Profile, on: On) -> float:
    """The best source rate of all placements."""
    flow = flow_of(topology, times, *on)
    sizes = [len(part.instances) for part in flow.parts]
    return max(sustained(flow, counts) for counts in all_counts(sizes, len(on[1])))


@given(graphs(most=4), machines(), st.integers(4, 7))
@settings(max_examples=seeds(200))
def test_no_placement_of_its_instances_is_better(case: Case, on: On, limit: int) -> None:
    topology, times = case
    plan = rlas(topology, times, *on, compression=1, max_instances=limit)
    applied = check(plan, topology, on[1])
    assert len(plan.place_of) <= max(limit, len(topology.operators))
    found = predict(topology, plan, times, on[0]).source_rate
    assert found == pytest.approx(best_placement(applied, times, on))


@given(graphs(most=3, rules=(Rule.SHUFFLE, Rule.KEY)), machines(), st.integers(3, 5))
@settings(max_examples=seeds(100))
def test_no_replication_is_better_in_tiny_cases(case: Case, on: On, limit: int) -> None:
    topology, times = case
    names = [operator.name for operator in topology.operators]
    best = 0.0
    for sizes in all_counts([limit], len(names) + 1):
        if all(sizes[0][: len(names)]):
            wider = with_parallelism(topology, dict(zip(names, sizes[0], strict=False)))
            best = max(best, best_placement(wider, times, on))
    plan = rlas(topology, times, *on, max_instances=limit)
    assert predict(topology, plan, times, on[0]).source_rate == pytest.approx(best)


def test_what_goes_to_the_nearest_is_not_taken_to_be_shared_evenly() -> None:
    """The first c reads all of b and, when the other is nearer to a, nothing of a."""
    streams = [
        ("a", "b", Rule.SHUFFLE),
        ("a", "c", Rule.LOCAL_OR_SHUFFLE),
        ("b", "c", Rule.GLOBAL),
    ]
    topology = graph(streams, {"c": 2})
    times = profile({"a": 50, "b": 50, "c": 150}, a=2.0)
    machine = cluster(2, cores=1, link_bits_per_s=inf)
    on = (machine, machine.workers())
    flow = flow_of(topology, times, *on)
    layout = Layout(flow, [len(part.instances) for part in flow.parts])
    exact = Solution()
    assert Search(layout, 1, Effort(100_000), exact, exact=True).run()
    assert 1 / exact.fullest == pytest.approx(best_placement(topology, times, on))


@given(graphs(most=3), machines(), st.data())
@settings(max_examples=seeds(200))
def test_branch_and_bound_proves_what_it_finds(case: Case, on: On, data: st.DataObject) -> None:
    """Exact search gives the optimum, the paper's heuristics never claim more."""
    sizes = {operator.name: data.draw(st.integers(1, 2)) for operator in case[0].operators}
    topology = with_parallelism(case[0], sizes)
    flow = flow_of(topology, case[1], *on)
    layout = Layout(flow, [len(part.instances) for part in flow.parts])
    best = best_placement(topology, case[1], on)
    exact, heuristic = Solution(), Solution()
    assert Search(layout, 1, Effort(100_000), exact, exact=True).run()
    assert 1 / exact.fullest == pytest.approx(best)
    assert not any(map(any, layout.counts))
    Search(layout, 2, Effort(100_000), heuristic, exact=False).run()
    assert heuristic.counts is not None
    assert 1 / heuristic.fullest == pytest.approx(sustained(flow, heuristic.counts))
    assert 1 / heuristic.fullest <= best * (1 + 1e-9)


def test_the_papers_heuristics_come_near_the_best() -> None:
    """They never claim more than there is, and are seldom far below it: there is no bound."""
    of_best = []

    @given(graphs(most=3), machines(), st.data())
    @settings(max_examples=150, derandomize=True)
    def compare(case: Case, on: On, data: st.DataObject) -> None:
        sizes = {operator.name: data.draw(st.integers(1, 3)) for operator in case[0].operators}
        topology = with_parallelism(case[0], sizes)
        flow = flow_of(topology, case[1], *on)
        found = Solution()
        layout = Layout(flow, [len(part.instances) for part in flow.parts])
        Search(layout, 1, Effort(100_000), found, exact=False).run()
        assert found.counts is not None
        rate = sustained(flow, found.counts)
        best = best_placement(topology, case[1], on)
        assert rate <= best * (1 + 1e-9)
        of_best.append(rate / best)

    compare()
    assert len(of_best) >= 150
    assert mean(of_best) > 0.95


@pytest.mark.parametrize("app", APPS)
def test_branch_and_bound_alone_branches_and_is_not_below_first_fit(app: str) -> None:
    topology, times = APPS[app]()
    machine = server_a()
    places = machine.sockets()
    scaled = apply(rlas(topology, times, machine, places, layouts=4_000), topology)
    flow = flow_of(scaled, times, machine, places)
    sizes = [len(part.instances) for part in flow.parts]
    greedy, found = Solution(), Solution()
    Search(Layout(flow, sizes), 5, Effort(0), greedy, exact=False).run()
    search = Search(Layout(flow, sizes), 5, Effort(PLACEMENT_LAYOUTS), found, exact=False)
    search.run()
    assert search.most_children > 1
    assert found.fullest <= greedy.fullest
    first = layout_of_plan(flow, first_fit(scaled, times, machine, places)).fullest()
    assert found.fullest <= first * (1 + 1e-9)


def test_a_pair_goes_every_way_that_differs_while_its_producers_are_not_all_placed() -> None:
    machine = server_a()
    line = graph([("a", "b", Rule.SHUFFLE)], {"a": 15, "b": 15})
    flow = flow_of(line, profile({"a": 100, "b": 100}), machine, machine.sockets())
    search = Search(Layout(flow, [15, 15]), 5, Effort(1_000), Solution(), exact=False)
    search.run()
    # Later blocks of a beside, near and far from the first; b each time in every such place.
    assert search.most_children >= 9


def test_a_search_without_effort_still_gives_a_placement() -> None:
    topology, times = word_count()
    machine = server_a()
    flow = flow_of(topology, times, machine, machine.sockets())
    found = Solution()
    assert not Search(Layout(flow, [3, 3, 9, 20, 5]), 1, Effort(0), found, exact=False).run()
    assert found.counts is not None
    assert [sum(row) for row in found.counts] == [3, 3, 9, 20, 5]


def test_a_thousand_instances_are_placed_in_larger_blocks() -> None:
    line = graph([("a", "b", Rule.SHUFFLE)])
    machine = cluster(1, cores=4)
    flow = flow_of(line, profile({"a": 100, "b": 100}), machine, machine.workers())
    found = Solution()
    Search(Layout(flow, [500, 1500]), 1, Effort(0), found, exact=False).run()
    assert found.counts is not None
    assert [sum(row) for row in found.counts] == [500, 1500]


def test_a_topology_that_costs_nothing_cannot_be_planned() -> None:
    line = graph([("a", "b", Rule.SHUFFLE)])
    machine = cluster(1, cores=4)
    with pytest.raises(ValueError, match="'small' costs nothing by this profile"):
        rlas(line, profile({"a": 0, "b": 0}), machine, machine.workers())


def test_the_same_arguments_give_the_same_plan() -> None:
    topology, times = fraud_detection()
    machine = server_a(sockets=2)
    plans = [
        rlas(topology, times, machine, machine.sockets(), layouts=3_000, seed=7) for _ in range(2)
    ]
    assert plans[0] == plans[1]


def test_a_time_budget_gives_the_best_so_far() -> None:
    topology, times = word_count()
    machine = server_a()
    plan = rlas(topology, times, machine, machine.sockets(), budget_s=0.0)
    check(plan, topology, machine.sockets())
    assert "stopped by its time budget" in plan.reason


@pytest.mark.parametrize("app", [word_count, fraud_detection])
def test_random_plans_and_wrong_costs_do_worse_on_server_a(app: Callable[[], Case]) -> None:
    topology, times = app()
    machine = server_a(sockets=4)
    places = machine.sockets()

    def throughput(plan: Plan) -> float:
        return predict(topology, plan, times, machine).throughput

    best = throughput(rlas(topology, times, machine, places, layouts=10_000))
    for seed in range(20):
        assert throughput(random_plan(topology, times, machine, places, seed=seed)) < best
    for fixed in (rlas_fix_l, rlas_fix_u):
        assert throughput(fixed(topology, times, machine, places)) < best


def test_it_is_never_worse_than_its_start() -> None:
    topology, times = fraud_detection()
    machine = server_a(sockets=2)
    places = machine.sockets()
    start = rlas(topology, times, machine, places)
    again = rlas(topology, times, machine, places, start=start, layouts=1)
    rates = [predict(topology, plan, times, machine).throughput for plan in (start, again)]
    assert rates[1] >= rates[0]


def test_what_is_kept_stays_and_chains_stay_fused() -> None:
    topology = graph(
        [("a", "b", Rule.FORWARD), ("b", "c", Rule.KEY), ("c", "d", Rule.GLOBAL)], {"d": 2}
    )
    times = profile({"a": 50, "b": 100, "c": 900, "d": 10})
    machine = cluster(1, cores=8)
    plan = rlas(topology, times, machine, machine.workers(), keep=["b"])
    assert plan.chains == (("a", "b"), ("c",), ("d",))
    assert plan.parallelism["a"] == plan.parallelism["b"] == 1
    assert plan.parallelism["c"] > 1
    assert plan.parallelism["d"] == 2
    check(plan, topology, machine.workers())


def test_unrelated_pipelines_grow_each_by_its_own_needs() -> None:
    """One of ten million a second, one of a hundred thousand: the first needs no more cores."""
    two = graph([("a", "b", Rule.SHUFFLE), ("c", "d", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100, "c": 100, "d": 10_000})
    machine = cluster(1, cores=8)
    plan = rlas(two, times, machine, machine.workers())
    found = predict(two, plan, times, machine).source_rates
    assert found["a"] >= 2e7
    assert found["c"] >= 2e5


def test_what_talks_much_runs_together() -> None:
    topology = graph([("a", "b", Rule.SHUFFLE)])
    machine = cluster(2, cores=1, other_node=Crossing(receiver=Cost(record_ns=1e4)))
    plan = rlas(topology, profile({"a": 10, "b": 10}), machine, machine.workers())
    assert plan.place_of[0] == plan.place_of[1]
    apart = rlas(topology, profile({"a": 1e6, "b": 1e6}), machine, machine.workers())
    assert apart.place_of[0] != apart.place_of[1]


def test_more_nodes_are_never_worse_than_fewer() -> None:
    """Word count in small: the way to another node costs more than its cores give."""
    topology, times = word_count()
    rates = []
    for nodes in (1, 2, 4, 8):
        machine = cluster(nodes, cores=2, other_node=Crossing(Cost(5_000), Cost(5_000)))
        plan = rlas(topology, times, machine, machine.workers(), max_instances=10)
        rates.append(predict(topology, plan, times, machine).throughput)
    assert rates == pytest.approx(sorted(rates))


def test_what_is_broadcast_or_forwarded_unfused_stays_as_many() -> None:
    """More receivers of a broadcast only make more copies; forwarding goes by instance."""
    machine = cluster(1, cores=8)
    topology = graph(
        [
            ("a", "b", Rule.ALL),
            ("a", "c", Rule.SHUFFLE),
            ("c", "d", Rule.FORWARD),
            ("a", "d", Rule.SHUFFLE),
        ]
    )
    times = profile({"a": 10, "b": 500, "c": 500, "d": 500})
    plan = rlas(topology, times, machine, machine.workers())
    assert [plan.parallelism[name] for name in "bcd"] == [1, 1, 1]


def test_a_plan_says_how_far_the_search_went() -> None:
    line = graph([("a", "b", Rule.SHUFFLE)])
    machine = cluster(1, cores=2)
    plan = rlas(line, profile({"a": 100, "b": 100}), machine, machine.workers())
    assert plan.reason.endswith("searched to its end, so none is better")
    topology, times = word_count()
    machine = server_a(sockets=2)
    plan = rlas(topology, times, machine, machine.sockets(), layouts=100)
    assert plan.reason.endswith("there may be better ones that the search did not come to")


def test_a_plan_says_why() -> None:
    topology = graph([("a", "b", Rule.SHUFFLE)])
    machine = cluster(1, cores=2)
    plan = rlas(topology, profile({"a": 100, "b": 100}), machine, machine.workers())
    assert plan.reason.startswith("10,000,000 records/s at the sinks with 2 of at most 4 instances")
    assert apply(plan, topology).operator("a").parallelism == 1


def test_placing_by_hand_is_not_better() -> None:
    """One case in full: a shared worker is no loss when the way to another costs more."""
    topology = graph([("a", "b", Rule.SHUFFLE), ("b", "c", Rule.SHUFFLE)])
    times = profile({"a": 100, "b": 100, "c": 100})
    machine = cluster(1, cores=2, same_socket=Crossing(receiver=Cost(record_ns=40)))
    places = machine.workers()
    plan = rlas(topology, times, machine, places, max_instances=3)
    assert predict(topology, plan, times, machine).throughput == pytest.approx(1 / 200e-9)
    worse = predict(topology, placed(topology, places, 0, 1, 0), times, machine)
    assert worse.throughput == pytest.approx(1 / 240e-9)
