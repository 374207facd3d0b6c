"""How a topology starts on Spark: what was asked for is checked, then planned, then submitted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from tailrace.adapt.elastic import ElasticPolicy
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.restoring import check_fits
from tailrace.control.budget import STANDARD, Budget
from tailrace.control.protocol import Settings
from tailrace.control.waiting import policy_of
from tailrace.graph.model import Graph
from tailrace.graph.wiring import wire
from tailrace.plan.model.loads import ExternalRate
from tailrace.plan.model.machine import Machine, Place
from tailrace.plan.model.profile import Profile
from tailrace.plan.plan import Plan, apply
from tailrace.plan.schedulers.by_name import scheduler as scheduler_named
from tailrace.plan.schedulers.for_rate import check_rate
from tailrace.plan.schedulers.spread import spread_out
from tailrace.planner.planning import BLIND, Planned, machine_of, plan_of, planned
from tailrace.routing.tables import Tables
from tailrace.runtime.core import DEFAULT_LIMITS, Limits
from tailrace.runtime.deployment import deploy
from tailrace.runtime.guarantees import bound, check_guarantee
from tailrace.runtime.sink import Guarantee, with_job
from tailrace.runtime.tabled import routes_by
from tailrace.runtime.times import check_seconds
from tailrace.spark.adapting import Adaptive, elastic_of, seconds_in
from tailrace.spark.checkpoints import Checkpoints, check_notes, savepoint_at
from tailrace.spark.cluster import Cluster, check_barrier, cluster_of
from tailrace.spark.feed import dataframes
from tailrace.spark.job import Job
from tailrace.spark.launch import check_sinks
from tailrace.spark.ship import ship as bring
from tailrace.spark.slots import count_workers
from tailrace.spark.survey import survey
from tailrace.spark.wire import wire_of
from tailrace.tail.chooser import Chooser
from tailrace.tail.modes import AUTO, chosen, parted, with_tail
from tailrace.transport.listener import Ports

_NODES = ("memory", "executor", "worker")


def start(
    graph: Graph,
    spark: Any,
    *,
    workers: int | None = None,
    placement: tuple[int, ...] | None = None,
    scheduler: str | None = None,
    plan: Plan | Path | str | None = None,
    profile: Profile | Path | str | None = None,
    machine: Machine | Path | str | None = None,
    keep: Collection[str] = (),
    rate: ExternalRate = None,
    limits: Limits = DEFAULT_LIMITS,
    node: str = "memory",
    ring_bytes: int = 8 << 20,
    ship: Sequence[str | ModuleType] | None = None,
    progress_s: float = Settings.progress_s,
    waiting: str = Settings.waiting,
    tls: bool | None = None,
    ports: Ports | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_s: float = 1.0,
    retain: int = 3,
    restore: Path | str | None = None,
    drop_state: Collection[str] = (),
    restarts: int = STANDARD.restarts,
    guarantee: Guarantee = "exactly once",
    tables: Tables | Path | str | None = None,
    count_pairs: bool = False,
    adapt: float | str | None = None,
    elastic: tuple[int, int] | ElasticPolicy | None = None,
    locality: bool = False,
    tail: str | Chooser = "off",
) -> Job:
    """Start a graph on Spark; see `Topology.start`."""
    chooser = tail if isinstance(tail, Chooser) else None
    tail = AUTO if isinstance(tail, Chooser) else tail
    mode, replay = parted(tail)
    if checkpoint is not None:
        check_guarantee(graph, guarantee)
    check_seconds("checkpoint_s", checkpoint_s)
    budget = Budget(restarts)
    if elastic is not None and not isinstance(elastic, ElasticPolicy):
        elastic = elastic_of(elastic)
    adaptive = Adaptive(
        None if adapt is None else seconds_in(adapt), scheduler or "auto", elastic, locality
    )
    if adapt is not None and (placement is not None or plan is not None):
        scheduler_named(adaptive.scheduler)
        scheduler = None  # it says where to go from there
    policy_of(waiting)
    if node not in _NODES:
        raise ValueError(f"node is {node!r}; it must be one of {_NODES}")
    given = {"placement": placement, "scheduler": scheduler, "plan": plan}
    ways = [name for name, value in given.items() if value is not None]
    if len(ways) > 1:
        raise ValueError(f"{' and '.join(ways)} were given; one says who runs where")
    if rate is not None and (placement is not None or plan is not None):
        raise ValueError(
            f"rate and {'placement' if placement is not None else 'plan'} were given; a rate says"
            " what a scheduler should plan for"
        )
    if rate is not None:
        check_rate(rate)
        scheduler = scheduler or "auto"
    check_sinks(graph)
    if checkpoint is not None:
        graph = bound(graph, folder_at(checkpoint).url)
    cluster = cluster_of(spark)
    if ship is not None:
        bring(spark, ship)
    secured = wire_of(cluster, tls, ports)
    fed = [name for name, _ in dataframes(graph)]
    made: Planned | None = None
    hardware = None
    if scheduler is not None:
        made = _planned(cluster, graph, scheduler, workers, fed, profile, machine, keep, node, rate)
        plan, workers = made.plan, None  # with a rate there may be fewer
    elif adapt is not None:  # measured now, if it must be, and not beside the job
        hardware = machine_of(machine)
    if plan is not None:
        plan = plan_of(plan, graph, workers)
        graph = apply(plan, graph)
        placement, workers = plan.place_of, len(plan.places)
    graph = with_tail(graph, AUTO if tail == AUTO else mode)
    wiring = wire(graph)
    if placement is not None:
        workers = max(placement) + 1 if workers is None else workers
        if len(placement) != wiring.instances:
            raise ValueError(
                f"the placement has {len(placement)} instances; the topology has {wiring.instances}"
            )
    workers = count_workers(cluster, wiring, workers, fed)
    if placement is None:
        placement = spread_out(wiring, workers)
    if max(placement) >= workers:
        raise ValueError(f"the placement names worker {max(placement)}; there are {workers}")
    if tables is not None:
        tables = tables if isinstance(tables, Tables) else Tables.load(tables)
        routes_by(tables, deploy(graph, placement))
    checkpoints = kept = None
    if checkpoint is not None:
        checkpoints = Checkpoints(graph, checkpoint, restore, drop_state, retain)
    elif restore is not None:
        kept = savepoint_at(restore)
        check_notes(graph, None, restore)
        check_fits(kept[1], graph, drop=drop_state)
    try:
        job = Job(
            wiring,
            placement,
            workers,
            cluster.host(),
            node,
            plan,
            made,
            secured,
            replaced=cluster.scales,
            budget=budget,
            checkpoints=checkpoints,
            tables=tables,
            tail=tail,
            chooser=chooser,
            report_s=progress_s,
        )
    except BaseException:
        if checkpoints is not None:
            checkpoints.close()
        raise
    if checkpoints is not None:
        checkpoints.begin(job._coordinator, workers, checkpoint_s)
    elif kept is not None:
        job._coordinator.go_on(kept[1], kept[0])
    shipped = cloudpickle.dumps((with_job(graph, job.id), placement, limits))
    coordinator = job._coordinator
    settings = Settings(
        workers=workers,
        coordinator=coordinator.address,
        secret=coordinator.secret,
        job=shipped,
        ring_bytes=ring_bytes,
        node=node,
        progress_s=progress_s,
        waiting=waiting,
        cores=plan.core_of if plan else (),
        ports=secured.ports,
        recover=checkpoints is not None,
        checkpoint=checkpoints.url if checkpoints is not None else "",
        generation=checkpoints.generation if checkpoints is not None else 0,
        count_pairs=count_pairs or locality,
        replay=replay,
    )
    try:
        job._submit(cluster, settings)
    except BaseException:  # nobody would say that it is over
        coordinator.stop(False)
        job._end()
        raise
    for feed in job._feeds:
        feed.start()
    if tail == AUTO or chosen(graph):
        job._choosing.take(chosen(graph), replay=tail == AUTO)
    if adaptive or job._choosing:
        job._adapt(replace(adaptive, machine=hardware))
    return job


def _planned(
    cluster: Cluster,
    graph: Graph,
    scheduler: str,
    workers: int | None,
    fed: Sequence[str],
    profile: Profile | Path | str | None,
    machine: Machine | Path | str | None,
    keep: Collection[str],
    node: str,
    rate: ExternalRate,
) -> Planned:
    """The scheduler's plan for this cluster: for all slots that have a core, unless told."""
    costs = rate is not None or scheduler not in BLIND
    if fed and profile is None and costs:
        raise ValueError(
            f"the DataFrame of {fed[0]!r} cannot be read beforehand to measure what operators cost;"
            " give profile=, a tailrace.plan.model.profile.Profile or its file"
        )
    scheduler_named(scheduler)
    if workers is not None:  # what cannot be is refused before anything is measured
        count_workers(cluster, wire(graph), workers, fed)
    hardware = machine_of(machine, costs=costs)
    where: int | tuple[Place, ...]
    if machine is None and not cluster.is_local:
        check_barrier(cluster, f"scheduler={scheduler!r} without machine=")
        slots = workers or max(1, cluster.slots(1) - bool(fed))
        hardware, where = survey(cluster, slots, node, hardware)
    elif workers is None:
        most = cluster.slots(hardware.cores + bool(fed)) - bool(fed)
        where = max(1, min(most, hardware.cores))
    else:
        where = workers
    return planned(graph, where, scheduler, profile=profile, machine=hardware, keep=keep, rate=rate)
