"""Late rows of a transform, told where somebody sees it: in the log of the driver and of the task.

Spark evaluates a DataFrame when and where it likes, so there is no result to hang a count on. With
Spark Connect only the log of the task has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from tailrace.runtime.instance import Instance

LOG = logging.getLogger("tailrace.transform")


class _Told(AccumulatorParam):  # type: ignore[misc]
    """Adds counts by operator; in the driver, says what has come."""

    def zero(self, value: dict[str, int]) -> dict[str, int]:
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:  # noqa: N802
        if value2 and TaskContext.get() is None:
            tell(value2)
        return {name: value1.get(name, 0) + value2.get(name, 0) for name in value1 | value2}


def accumulator(spark: Any) -> Any:
    """What carries the counts of tasks to the driver; None with Spark Connect."""
    try:
        return spark.sparkContext.accumulator({}, _Told())
    except Exception:  # PySparkAttributeError, whose name and place change with versions
        return None


def tell(counts: dict[str, int]) -> None:
    """Say how many records were late."""
    for name, count in sorted(counts.items()):
        LOG.warning(
            "transform: %d records came too late for operator %r and are not in its results; order"
            " rows by event time (order_by), or raise max_delay_s of event_time",
            count,
            name,
        )


def late_in(instances: Iterable[Instance]) -> dict[str, int]:
    """How many records were late in these instances, by operator; only where there are any."""
    found: dict[str, int] = {}
    for instance in instances:
        for name, counts in instance.counts.items():
            if counts.late:
                found[name] = found.get(name, 0) + counts.late
    return found
