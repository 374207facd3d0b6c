"""What a scheduler is."""

from __future__ import annotations

from typing import Protocol

from tailrace.graph.model import Graph
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan


class Scheduler(Protocol):
    """A pure function that makes a plan. What it offers beyond these has defaults."""

    def __call__(
        self, graph: Graph, profile: Profile, machine: Machine, places: tuple[Place, ...]
    ) -> Plan:
        """A plan for the graph that passes `check(plan, graph, places)`."""
        ...
