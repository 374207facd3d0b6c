"""A topology as users write it: where it begins, and how it is planned and run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tailrace._draft import Draft, End
from tailrace.graph.model import MAIN, Graph, Operator, Record
from tailrace.graph.validate import validate
from tailrace.runtime.reading import SourceLogic
from tailrace.runtime.source import Source
from tailrace.spark.shippable import check_ships
from tailrace.stream import Stream

if TYPE_CHECKING:
    from tailrace._options import StartOptions, TransformOptions
    from tailrace.plan.model.machine import Machine
    from tailrace.plan.model.profile import Profile
    from tailrace.planner.planning import Planned
    from tailrace.spark.job import Job


class Topology:
    """A pipeline: operators joined by streams, from sources to sinks.

    Building it does nothing but check it; `start` runs it on Spark, and `tailrace.testing.run` in
    this process.

    >>> topology = Topology("word count")
    >>> words = topology.source(["to be or not to be"]).flat_map(str.split)
    >>> counts = words.key_by().scan(lambda count, word: (count or 0) + 1, name="count")
    >>> counts.sink(print)
    >>> print(topology)
    word count
      source -> flat_map (forward)
      flat_map -> count (key)
      count -> sink (forward)
    """

    def __init__(self, name: str = "topology") -> None:
        self.name = name
        self._draft = Draft()

    def source(
        self,
        source: Source | Iterable[Record],
        *,
        name: str | None = None,
        parallelism: int = 1,
    ) -> Stream:
        """Records from a source, or from an iterable (each instance takes its share of it)."""
        name = name or self._draft.free_name("source")
        if isinstance(source, Source):
            check_ships(f"the source {name!r}", source)
        else:
            from tailrace.connectors.memory import Items

            source = Items(list(source))
        self._draft.add(Operator(name, SourceLogic(source), parallelism, is_source=True), [])
        return Stream(self._draft, [End(name, MAIN)])

    def dead_letters(self, operator: str) -> Stream:
        """The records that an operator, or a sink, could not process: (record, error) pairs."""
        return Stream(self._draft, [self._draft.dead_letters(operator)])

    @property
    def graph(self) -> Graph:
        """The topology as data; raises a TopologyError if it cannot run."""
        graph = Graph(self.name, tuple(self._draft.operators.values()), tuple(self._draft.streams))
        validate(graph)
        return graph

    def start(self, spark: Any, **options: Unpack[StartOptions]) -> Job:
        """Run it on a SparkSession; returns at once. See `tailrace.Job`.

        Parameters
        ----------
        workers : how many; by default Spark's task slots, and no more than there are instances
        placement : the worker of each instance, in the order of `graph.wiring`
        scheduler : who decides how many instances run where: "auto", "rlas", "consolidate" or any
            other name in `tailrace.plan.schedulers.by_name`. Without, copies are spread in turn
        plan : a `tailrace.plan.plan.Plan`, or the file that one was saved in, instead
        profile, machine : what the scheduler goes by, or files of that; by default measured, here
            and now, by running the operators on a sample from the sources
        keep : operators that stay as many as they are, besides sources and `process` without key
        rate : records per second of each source, or by source: the plan is then for the fewest
            nodes and workers that sustain it, of "auto" unless another scheduler is given
        limits : `tailrace.Limits`, the bounds of queues and batches
        node : what counts as one node, whose workers use rings: "memory" (those that find that
            they share memory), "executor" (each is one) or "worker" (each is one: TCP only)
        ring_bytes : the size of each worker's ring
        ship : modules that executors lack, brought there with tailrace itself; see `tailrace.ship`
        progress_s : how often workers say what they have done, in seconds; more than 500 workers do
            less often, each every `workers` ms
        waiting : how workers wait when there is nothing to do: "balanced" (about as much CPU time
            as their work takes, and 5% of a core), "spin" (for cores of their own: the least
            latency, all of the core) or "sleep" (the least CPU time at low rates)
        tls : whether records are encrypted between workers; by default they are if Spark's own
            connections are (`spark.network.crypto.enabled`, `spark.ssl.enabled` and the like)
        ports : the first and the last port that coordinator and workers may listen at, for
            firewalls; by default the setting `spark.tailrace.ports` (as "40000-40100"), or any
        checkpoint : a folder or URL where state is kept. Workers that are lost are then replaced,
            and all goes on from the last checkpoint; started again, the job goes on there, too.
            One job at a time may have a folder
        checkpoint_s : how often, in seconds
        retain : so many of the last checkpoints stay
        restore : the folder of a savepoint to begin with
        drop_state : operators whose state may be left behind, because the topology has them no more
        restarts : how often workers may be lost, or their code fail, before the job does; the count
            begins anew with every checkpoint, and after a quiet minute
        guarantee : with checkpoints, what sources must be able to give: "exactly once" refuses
            those that cannot be read again and have no journal; "at least once" and "at most once"
            let them be
        tables : `tailrace.Tables` of keys, or the file of some: which instances get which keys.
            Without, and for keys that they do not have, hashes decide
        count_pairs : whether to count which keys lead to which, for `job.key_tables()`
        adapt : how often to look for a better plan by what the job has shown, in seconds or like
            "30 s", with `scheduler` or "auto"; one is applied if it pays for what moves. With
            `placement` or `plan` it starts there, and `scheduler` says only what to look for
        elastic : the least and the most workers, as in (2, 8): workers and instances follow the
            load. Or a `tailrace.adapt.elastic.ElasticPolicy`, which also has the times that it
            waits before it has more, or fewer
        locality : whether to count which keys lead to which, and bring together those that travel
            together, if that pays for what moves
        tail : how records of shuffled streams are dealt that have no `tail` of their own: "off"
            (in turn), "balance" (to where each will be done soonest), "shared" (to whoever is free
            first; they wait in one queue of the sending worker until then), or for comparisons "du"
            and "storm". Or "replay": what is late is sent again, another way. Or "auto": each of
            balance, shared and replay is tried where what is measured speaks for it, and stays on
            while it makes the p99 shorter; `job.last_progress.tails` says what, and why. Also a
            `tailrace.tail.chooser.Chooser`, which has the times of that. `job.set_tail` changes it;
            the guide says when which helps
        """
        from tailrace.spark.starting import start

        return start(self.graph, spark, **options)

    def plan(
        self,
        workers: int,
        scheduler: str = "auto",
        *,
        profile: Profile | Path | str | None = None,
        machine: Machine | Path | str | None = None,
        keep: Collection[str] = (),
        rate: float | Mapping[str, float] | None = None,
    ) -> Planned:
        """A plan for so many workers, with `explain()`, `picture()`, and `plan` to save and start.

        What operators and this machine cost is measured if it is not given, which takes seconds.

        Parameters
        ----------
        scheduler : "auto", "rlas", "consolidate" or any other name in
            `tailrace.plan.schedulers.by_name`
        profile, machine : what to go by, or files of that
        keep : operators that stay as many as they are, besides sources and `process` without key
        rate : records per second of each source, or by source. Without, the plan is for the highest
            rate; with it, for the fewest nodes, and then workers, that sustain it with room to
            spare, and for little traffic between nodes
        """
        from tailrace.planner.planning import planned

        return planned(
            self.graph,
            workers,
            scheduler,
            profile=profile,
            machine=machine,
            keep=keep,
            rate=rate,
            predicted=True,
        )

    def transform(self, df: Any, schema: Any, **options: Unpack[TransformOptions]) -> Any:
        """The same pipeline over a bounded DataFrame; gives a DataFrame, lazily, like Spark's own.

        The rows take the place of the topology's source, and the rows of the result the place of
        its sink. Other sinks are left out, with all that only feeds them; other sources run as
        they are, and must end. Parallelism stays as it is: the instances of the source share the
        rows. Each evaluation is a run of its own, in one barrier stage of the DataFrame's plan,
        and takes about a second more than the work itself. The result is in no order.

        A row is a record: a dict, or with a single column its value. A result is a row: a dict,
        dataclass, NamedTuple or msgspec struct has the columns of the schema by name, a plain
        tuple by position, and with a single column it is the value. If a record cannot be
        processed, evaluation fails, with the operator, the record and your traceback.

        Parameters
        ----------
        schema : the columns of the result, as a DDL string or a StructType
        workers : how many; by default Spark's task slots, and no more than there are instances
        source, sink : their names, if the topology has several
        record : a function from a row as a dict to what the pipeline expects
        partition_by : columns; rows in which they are equal go to one instance of the source
        order_by : columns by which each instance of the source gets its rows in order. Without it,
            rows are ordered by the column that `event_time` reads, if the topology has event time;
            if that cannot be known it is refused, for rows come in any order. `[]`: in no order.
            Late records are counted in a warning of the log `tailrace.transform`
        limits : `tailrace.Limits`, the bounds of queues and batches
        """
        from tailrace.spark.transform import transform

        return transform(self.graph, df, schema, **options)

    def explain(self, spark: Any) -> str:
        """What would run where, as text: on a SparkSession, or on a number of workers.

        Measures nothing; `plan` does, and its `explain()` has what to expect.
        """
        from tailrace.graph.wiring import wire
        from tailrace.plan.schedulers.spread import spread_out
        from tailrace.plan.show.placement import who_runs_where
        from tailrace.spark.cluster import cluster_of
        from tailrace.spark.feed import dataframes
        from tailrace.spark.slots import count_workers

        wiring = wire(self.graph)
        if not isinstance(spark, int):
            fed = [name for name, _ in dataframes(wiring.graph)]
            spark = count_workers(cluster_of(spark), wiring, None, fed)
        elif spark < 1:
            raise ValueError(f"explain got {spark} workers; there must be at least 1")
        return who_runs_where(wiring, spread_out(wiring, spark), spark)

    def __str__(self) -> str:
        streams = self._draft.streams
        lines = (f"  {stream.label} ({stream.grouping.rule.value})" for stream in streams)
        return "\n".join([self.name, *lines])
