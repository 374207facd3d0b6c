"""All schedulers by name."""

from __future__ import annotations

from tailrace.plan.schedulers.auto import auto
from tailrace.plan.schedulers.consolidate import consolidate
from tailrace.plan.schedulers.first_fit import first_fit
from tailrace.plan.schedulers.os_placement import os_placement
from tailrace.plan.schedulers.random_plan import random_plan
from tailrace.plan.schedulers.resource_aware import resource_aware
from tailrace.plan.schedulers.rlas import rlas, rlas_fix_l, rlas_fix_u
from tailrace.plan.schedulers.round_robin import round_robin
from tailrace.plan.schedulers.scheduler import Scheduler
from tailrace.plan.schedulers.spread import spread
from tailrace.plan.schedulers.traffic_aware import traffic_aware

SCHEDULERS: dict[str, Scheduler] = {
    "spread": spread,
    "round robin": round_robin,
    "first fit": first_fit,
    "random": random_plan,
    "os": os_placement,
    "traffic aware": traffic_aware,
    "resource aware": resource_aware,
    "consolidate": consolidate,
    "rlas": rlas,
    "rlas fix l": rlas_fix_l,
    "rlas fix u": rlas_fix_u,
    "auto": auto,
}

REPLICATING = ("rlas", "rlas fix l", "rlas fix u", "auto")
"""Those that choose how many instances there are, but for the operators to `keep`."""


def scheduler(name: str) -> Scheduler:
    """The scheduler of that name."""
    if name not in SCHEDULERS:
        raise ValueError(f"no scheduler {name!r}; there are {sorted(SCHEDULERS)}")
    return SCHEDULERS[name]
