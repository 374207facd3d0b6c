"""How many tasks a Spark runs at a time, and how many workers a job therefore gets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.graph.validate import whole_number

if TYPE_CHECKING:
    from tailrace.graph.wiring import Wiring
    from tailrace.spark.cluster import Cluster

DYNAMIC = "spark.dynamicAllocation.enabled"
KEYS = (
    DYNAMIC,
    "spark.dynamicAllocation.maxExecutors",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.cores.max",
    "spark.task.cpus",
)
"""The settings that the functions here look at."""

_ONE_CORE = ("yarn", "k8s")
"""Where an executor has one core, and a Spark that does not scale two executors, unless set."""


def scales(settings: Mapping[str, str]) -> bool:
    """Whether executors come and go with the tasks that wait.

    >>> scales({"spark.dynamicAllocation.enabled": "true"})
    True
    """
    return settings.get(DYNAMIC, "false").lower() == "true"


def most_slots(master: str, settings: Mapping[str, str]) -> int | None:
    """How many tasks it can ever run at a time; None if that is not said anywhere.

    >>> most_slots("local-cluster[2,4,1024]", {})
    8
    >>> most_slots("k8s://x", {"spark.executor.instances": "3", "spark.task.cpus": "1"})
    3
    >>> most_slots("spark://x:7077", {"spark.cores.max": "6"})
    6
    """
    cpus = int(settings.get("spark.task.cpus", 1))
    bounds = []
    if made := re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,", master):
        bounds.append(int(made[1]) * (int(made[2]) // cpus))
    managed = master.startswith(_ONE_CORE)
    cores = settings.get("spark.executor.cores", "1" if managed else None)
    executors = settings.get("spark.dynamicAllocation.maxExecutors")
    if not scales(settings):
        # A standalone master gives each application all it has, whatever this is set to.
        executors = settings.get("spark.executor.instances", "2") if managed else None
    if cores is not None and executors is not None and int(executors) < 2**31 - 1:
        bounds.append(int(executors) * (int(cores) // cpus))
    if not managed and "spark.cores.max" in settings:
        bounds.append(int(settings["spark.cores.max"]) // cpus)
    return min(bounds, default=None)


def count_workers(
    cluster: Cluster, wiring: Wiring, wanted: int | None, fed: Sequence[str] = ()
) -> int:
    """How many workers there will be: as many as wanted, or as are of use. Raises if it cannot be.

    They keep their task slots. The DataFrames of the sources `fed` need one to be read at all.
    """
    if wanted is not None and whole_number(wanted) is None:
        raise TypeError(f"workers is {wanted!r}; it must be a whole number")
    if wanted is not None and wanted < 1:
        raise ValueError(f"workers is {wanted}; it must be at least 1")
    most = cluster.most()
    if wanted is not None and most is not None and wanted + bool(fed) > most:
        slots = most  # there is nothing to wait for
    else:
        slots = cluster.slots((wanted or wiring.instances) + bool(fed))
    workers = max(1, min(slots - bool(fed), wiring.instances)) if wanted is None else wanted
    if workers + bool(fed) > slots:
        needs = (
            f", and the DataFrame of {fed[0]!r} needs one of them to be read"
            if fed and workers <= slots
            else ""
        )
        raise ValueError(
            f"{workers} workers were asked for; this Spark has {slots} task slots{needs}. Ask for"
            f" fewer workers, or {more_slots(cluster, workers + bool(fed))}"
        )
    return workers


def more_slots(cluster: Cluster, wanted: int) -> str:
    """How this Spark gets so many task slots."""
    if cluster.is_local:
        return f"start Spark with more slots: local[{wanted}]"
    if cluster.scales:
        return "raise spark.dynamicAllocation.maxExecutors or spark.executor.cores"
    return "give it more: spark.executor.instances, spark.executor.cores or spark.cores.max"
