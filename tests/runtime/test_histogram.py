"""Histograms stay within their promise, and merging loses nothing."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime.histogram import Histogram

DURATIONS_NS = st.lists(st.integers(0, 3_600_000_000_000), min_size=1, max_size=200)


@given(st.integers(0, 3_600_000_000_000))
def test_a_value_comes_back_within_1_6_percent(value_ns: int) -> None:
    histogram = Histogram()
    histogram.record(value_ns)
    assert histogram.percentile_ns(50) == pytest.approx(value_ns, rel=0.016)


@given(DURATIONS_NS, st.floats(1, 100))
def test_percentiles_are_those_of_the_sorted_values(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    rank = -(-len(values) * percent // 100)  # rounded up
    exact = sorted(values)[int(rank) - 1]
    assert histogram.percentile_ns(percent) == pytest.approx(exact, rel=0.016)


@given(DURATIONS_NS, DURATIONS_NS)
def test_merging_equals_recording_in_one(left: list[int], right: list[int]) -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in left:
        one.record(value)
        both.record(value)
    for value in right:
        other.record(value)
        both.record(value)
    one.merge(other)
    assert one.counts == both.counts
    assert one.total == len(left) + len(right)


def test_buckets_are_contiguous_and_bounded_up_to_an_hour() -> None:
    histogram = Histogram()
    value = 1
    while value <= 3_600_000_000_000:
        histogram.record(value)
        value = max(value + 1, value * 101 // 100)
    assert max(histogram.counts) < 1300


def test_without_records_there_is_no_percentile() -> None:
    histogram = Histogram()
    assert isnan(histogram.percentile_ns(99))
    histogram.record(5, 0)
    assert isnan(histogram.percentile_ns(99))


def test_time_that_ran_backwards_counts_as_none() -> None:
    histogram = Histogram()
    histogram.record(-5)
    assert histogram.percentile_ns(50) == 0


def test_counts_travel() -> None:
    histogram = Histogram()
    histogram.record(1000, 7)
    assert Histogram(dict(histogram.counts)).total == 7


@given(DURATIONS_NS)
def test_the_mean_is_that_of_the_values(values: list[int]) -> None:
    histogram = Histogram()
    assert isnan(histogram.mean_ns)
    for value in values:
        histogram.record(value)
    assert histogram.mean_ns == pytest.approx(sum(values) / len(values), rel=0.016)
