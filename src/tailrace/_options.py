"""What `Topology.start` and `transform` may be told, with types, so that editors can complete it.

The defaults are in `spark/starting.py` and `spark/transform.py`; what each is, in `Topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from tailrace.adapt.elastic import ElasticPolicy
    from tailrace.graph.model import Record
    from tailrace.plan.model.machine import Machine
    from tailrace.plan.model.profile import Profile
    from tailrace.plan.plan import Plan
    from tailrace.routing.tables import Tables
    from tailrace.runtime.core import Limits
    from tailrace.runtime.sink import Guarantee
    from tailrace.tail.chooser import Chooser


class StartOptions(TypedDict, total=False):
    """See `Topology.start`."""

    workers: int | None
    placement: tuple[int, ...] | None
    scheduler: str | None
    plan: Plan | Path | str | None
    profile: Profile | Path | str | None
    machine: Machine | Path | str | None
    keep: Collection[str]
    rate: float | Mapping[str, float] | None
    limits: Limits
    node: str
    ring_bytes: int
    ship: Sequence[str | ModuleType] | None
    progress_s: float
    tls: bool | None
    ports: tuple[int, int] | None
    waiting: str
    checkpoint: Path | str | None
    checkpoint_s: float
    retain: int
    restore: Path | str | None
    drop_state: Collection[str]
    restarts: int
    guarantee: Guarantee
    tables: Tables | Path | str | None
    count_pairs: bool
    adapt: float | str | None
    elastic: tuple[int, int] | ElasticPolicy | None
    locality: bool
    tail: str | Chooser


class TransformOptions(TypedDict, total=False):
    """See `Topology.transform`."""

    workers: int | None
    source: str | None
    sink: str | None
    record: Callable[[dict[str, Any]], Record] | None
    partition_by: str | Sequence[str]
    order_by: str | Sequence[str] | None
    limits: Limits
