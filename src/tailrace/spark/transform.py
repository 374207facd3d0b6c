"""A topology over a bounded DataFrame, as a DataFrame: a barrier stage inside Spark's own plan.

Each task of the stage is a worker, and the task of rank 0 is the coordinator as well. The driver
keeps nothing, so the result may be evaluated again, by many at a time, and long after.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle

from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import Settings
from tailrace.control.worker import Worker
from tailrace.graph.history import cut, ends, with_logic
from tailrace.graph.model import Graph, Record
from tailrace.graph.validate import validate
from tailrace.graph.wiring import wire
from tailrace.plan.schedulers.spread import spread_out
from tailrace.runtime.core import DEFAULT_LIMITS, Limits
from tailrace.runtime.reading import SourceLogic
from tailrace.spark.cluster import check_barrier, cluster_of
from tailrace.spark.late import accumulator, late_in, tell
from tailrace.spark.launch import check_sinks
from tailrace.spark.ordering import time_columns
from tailrace.spark.shippable import check_ships
from tailrace.spark.slots import count_workers
from tailrace.spark.wire import Wire, wire_of


@dataclass(frozen=True)
class _Shipped:
    """What every task needs."""

    workers: int
    graph: bytes
    placement: tuple[int, ...]
    limits: Limits
    source: str
    sink: str
    schema: Any
    record: Callable[[dict[str, Any]], Record] | None
    wire: Wire
    late: Any
    """An accumulator, or None."""


def transform(
    graph: Graph,
    df: Any,
    schema: Any,
    *,
    workers: int | None = None,
    source: str | None = None,
    sink: str | None = None,
    record: Callable[[dict[str, Any]], Record] | None = None,
    partition_by: str | Sequence[str] = (),
    order_by: str | Sequence[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Any:
    """Put a graph into a DataFrame's plan; see `Topology.transform`."""
    from pyspark.sql import functions as sql

    from tailrace.spark.partition import INSTANCE

    check_sinks(graph)
    source, sink = ends(graph, source, sink)
    graph = cut(graph, source, sink)
    validate(graph)
    check_ships("the record function", record)
    wiring = wire(graph)
    spark = df.sparkSession
    cluster = cluster_of(spark)
    check_barrier(cluster, "transform")
    workers = count_workers(cluster, wiring, workers)
    if order_by is None:
        order_by = [f"`{name}`" for name in time_columns(graph, source, df.columns, record)]
    placement = spread_out(wiring, workers)
    with cluster.python():  # even for no row at all Spark starts one
        columns = spark.createDataFrame([], schema).toArrow().schema
    shipped = _Shipped(
        workers,
        cloudpickle.dumps(graph),
        placement,
        limits,
        source,
        sink,
        columns,
        record,
        wire_of(cluster),
        accumulator(spark),
    )
    copies = graph.operator(source).parallelism
    home = next(chain for chain in wiring.chains if source in chain.operators)
    homes = sql.array(*(sql.lit(placement[instance]) for instance in home.instances))
    keys, order = ([one] if isinstance(one, str) else [*one] for one in (partition_by, order_by))
    if copies == 1:
        instance = sql.lit(0)
    elif keys:
        instance = sql.pmod(sql.hash(*keys), sql.lit(copies))
    else:
        # Ids begin at a multiple of 2**33 in every partition; alone they would send the first row
        # of each to the same instance.
        instance = (sql.monotonically_increasing_id() + sql.spark_partition_id()) % copies
    fed = df.withColumn(INSTANCE, instance.cast("int"))
    fed = fed.repartitionById(workers, homes[sql.col(INSTANCE)])
    if order:
        fed = fed.sortWithinPartitions(*order)
    with cluster.python():
        result = fed.mapInArrow(lambda batches: _work(shipped, batches), schema, barrier=True)
    # A barrier stage runs whole or not at all. Behind a shuffle Spark may take what it likes of
    # the result: a limit, a few rows to show, one partition after the other.
    return result.repartition(workers)


def _work(shipped: _Shipped, batches: Iterator[Any]) -> Iterator[Any]:
    """One task: its rows in, the results of the sinks that run here out."""
    from pyspark import BarrierTaskContext

    from tailrace.spark.partition import Partition, Results

    task = BarrierTaskContext.get()
    infos = task.getTaskInfos()
    rank: int = task.partitionId()
    if len(infos) != shipped.workers:
        raise RuntimeError(f"Spark runs {len(infos)} tasks; {shipped.workers} were asked for")
    coordinator = None
    if rank == 0:
        host = socket.gethostbyname(infos[0].address.rpartition(":")[0])
        tls, ports = shipped.wire.tls, shipped.wire.ports
        coordinator = Coordinator(shipped.workers, host, lambda: None, tls=tls, ports=ports)
    try:
        invitation = ""
        if coordinator is not None:
            invitation = json.dumps([*coordinator.address, coordinator.secret.hex()])
        host, port, secret = json.loads(task.allGather(invitation)[0])
        graph = cloudpickle.loads(shipped.graph)
        chain = next(chain for chain in wire(graph).chains if shipped.source in chain.operators)
        here = [i for i, one in enumerate(chain.instances) if shipped.placement[one] == rank]
        partition = Partition(batches, here, shipped.record)
        partition.prepare()
        results = Results(shipped.schema)
        logics = {shipped.source: SourceLogic(partition), shipped.sink: results}
        job = (with_logic(graph, logics), shipped.placement, shipped.limits)
        settings = Settings(
            shipped.workers, (host, port), bytes.fromhex(secret), b"", ports=shipped.wire.ports
        )
        worker = Worker(settings, rank, infos[rank].address, job)
        with closing(worker.turns()) as turns:
            for _ in turns:
                if results.plenty:
                    yield from results.take()
        late = late_in(worker.core.instances) if worker.core is not None else {}
        if late and not worker.error:
            tell(late)
            if shipped.late is not None:
                shipped.late.add(late)
        if worker.error:
            # Also where nothing went wrong: the stage is over when all of its tasks have raised.
            raise RuntimeError(worker.error)
        yield from results.take()
    finally:
        if coordinator is not None:
            coordinator.fail("the task of rank 0 ended before the others")
            coordinator.join()
