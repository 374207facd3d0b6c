"""Costs fitted to measured times."""

import pytest

from tailrace.plan.model.machine import Cost
from tailrace.planner.fit import Point, fit_cost


def points(cost: Cost) -> list[Point]:
    return [(n, size, cost.ns(size, n)) for n in (32, 256) for size in (16, 128, 1024)]


def test_exact_times_give_the_cost_back() -> None:
    found = fit_cost(points(Cost(record_ns=30, byte_ns=0.2, message_ns=4000)))
    assert found.record_ns == pytest.approx(30)
    assert found.byte_ns == pytest.approx(0.2)
    assert found.message_ns == pytest.approx(4000)


def test_no_part_is_negative() -> None:
    falling: list[Point] = [(100, 16, 50.0), (100, 128, 40.0), (100, 1024, 30.0)]
    found = fit_cost(falling, per_message=False)
    assert found.byte_ns == 0
    assert 30 <= found.record_ns <= 50


def test_nothing_costs_nothing() -> None:
    assert fit_cost([(32, 16, 0.0), (256, 16, 0.0)]) == Cost()


def test_one_value_that_came_out_as_zero_does_not_rule() -> None:
    exact = points(Cost(record_ns=100, byte_ns=0.1))
    exact[0] = (*exact[0][:2], 0.0)
    assert fit_cost(exact, per_message=False).record_ns > 40
