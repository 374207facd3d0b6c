"""Which Spark a command runs on, and the benchmark that anybody can run there."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cli.bench import WORKLOADS, measure, table
from tailrace.spark.session import find_spark, local_spark


def test_a_session_that_is_there_is_used(spark: Any) -> None:
    assert find_spark() is spark
    assert find_spark(slots=9) is spark
    assert local_spark(9) is spark


def test_a_master_that_is_not_that_of_the_session_is_refused(spark: Any) -> None:
    assert find_spark(master="local[4]") is spark
    with pytest.raises(ValueError, match=r"--master is local\[9\], but Spark runs at local\[4\]"):
        find_spark(master="local[9]")


def test_the_benchmark_measures_rates_and_latencies_and_counts_every_record(spark: Any) -> None:
    results = measure(spark, seconds=0.5, rate_per_s=2000, workers=2)
    assert results["workers"] == 2
    for name in WORKLOADS:
        found = results[name]
        assert found["exact"]
        assert found["most_per_s"] > 0
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p99.9_ms"]
    shown = table(results).splitlines()
    assert shown[1].endswith("at 2,000 records/s")
    assert [line.endswith("nothing lost, nothing twice") for line in shown[2:]] == [True, True]
