"""Topologies as users write them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.graph.model import (
    DEAD_LETTERS,
    MAIN,
    Graph,
    Grouping,
    OnError,
    Record,
    Rule,
)
from tailrace.graph.model import Operator as Node
from tailrace.graph.model import Stream as Edge
from tailrace.graph.validate import TopologyError, check_ships, validate
from tailrace.runtime import operators
from tailrace.runtime.arrow import ArrowMap
from tailrace.runtime.async_map import AsyncMap
from tailrace.runtime.event_time import (
    LATE,
    EventTime,
    TimeFunction,
    check_seconds,
    unread,
)
from tailrace.runtime.join import Join, JoinKind, pair
from tailrace.runtime.source import Sink, SinkLogic, Source, SourceLogic
from tailrace.runtime.windows import Session, Sliding, Window
from tailrace.windowed import WindowedStream

if TYPE_CHECKING:
    from tailrace.planning import Planned
    from tailrace.spark.job import Job

_ON_ERROR = {"fail": OnError.FAIL, "skip": OnError.SKIP, "dead letter": OnError.DEAD_LETTER}


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
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []

    def source(
        self,
        source: Source | Iterable[Record],
        *,
        name: str | None = None,
        parallelism: int = 1,
    ) -> Stream:
        """Records from a source, or from an iterable (each instance takes its share of it)."""
        name = name or self._name("source")
        if isinstance(source, Source):
            check_ships(f"the source {name!r}", source)
        else:
            from tailrace.connectors.memory import Items

            source = Items(list(source))
        node = Node(name, SourceLogic(source), parallelism, is_source=True)
        return self._add(node, [])

    def dead_letters(self, operator: str) -> Stream:
        """The records that an operator, or a sink, could not process: (record, error) pairs."""
        node = self._nodes.get(operator)
        if node is None:
            raise TopologyError(f"there is no operator {operator!r}; there are {[*self._nodes]}")
        if node.on_error is not OnError.DEAD_LETTER:
            raise TopologyError(
                f"{operator!r} has no dead letters: its on_error is {node.on_error.value!r};"
                " make it 'dead letter'"
            )
        return Stream(self, [(operator, DEAD_LETTERS)])

    @property
    def graph(self) -> Graph:
        """The topology as data; raises a TopologyError if it cannot run."""
        graph = Graph(self.name, tuple(self._nodes.values()), tuple(self._edges))
        validate(graph)
        return graph

    def start(self, spark: Any, **options: Any) -> Job:
        """Run it on a SparkSession; returns at once. See `tailrace.Job`.

        Parameters
        ----------
        workers : how many; by default Spark's task slots, and no more than there are instances
        placement : the worker of each instance, in the order of `graph.wiring`
        scheduler : who decides how many instances run where: "auto", "rlas", "consolidate" or any
            other name in `tailrace.plan.schedulers`. Without, copy i of everything is on worker i
        plan : a `tailrace.plan.plan.Plan`, or the file that one was saved in, instead
        profile, machine : what the scheduler goes by, or files of that; by default measured, here
            and now, by running the operators on a sample from the sources
        keep : operators that stay as many as they are, besides sources and `process` without key
        limits : `tailrace.Limits`, the bounds of queues and batches
        node : what counts as one node, whose workers use rings: "memory" (those that find that
            they share memory), "executor" (each is one) or "worker" (each is one: TCP only)
        ring_bytes : the size of each worker's ring
        """
        from tailrace.spark.job import start

        return start(self.graph, spark, **options)

    def plan(self, workers: int, scheduler: str = "auto", **options: Any) -> Planned:
        """A plan for so many workers, with `explain()`, `picture()`, and `plan` to save and start.

        What operators and this machine cost is measured if it is not given, which takes seconds.

        Parameters
        ----------
        scheduler : "auto", "rlas", "consolidate" or any other name in `tailrace.plan.schedulers`
        profile, machine : what to go by, or files of that
        keep : operators that stay as many as they are, besides sources and `process` without key
        """
        from tailrace.planning import planned

        return planned(self.graph, workers, scheduler, predicted=True, **options)

    def transform(self, df: Any, schema: Any, **options: Any) -> Any:
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
        order_by : columns by which each instance of the source gets its rows in order; event time
            needs it, for otherwise rows come in any order
        limits : `tailrace.Limits`, the bounds of queues and batches
        """
        from tailrace.spark.transform import transform

        return transform(self.graph, df, schema, **options)

    def explain(self, spark: Any) -> str:
        """What would run where, as text: on a SparkSession, or on a number of workers.

        Measures nothing; `plan` does, and its `explain()` has what to expect.
        """
        from tailrace.graph.explain import explain
        from tailrace.graph.wiring import wire
        from tailrace.plan.spread import spread_out
        from tailrace.spark.cluster import cluster_of
        from tailrace.spark.feed import dataframes
        from tailrace.spark.job import count_workers

        wiring = wire(self.graph)
        if not isinstance(spark, int):
            fed = [name for name, _ in dataframes(wiring.graph)]
            spark = count_workers(cluster_of(spark), wiring, None, fed)
        elif spark < 1:
            raise ValueError(f"explain got {spark} workers; there must be at least 1")
        return explain(wiring, spread_out(wiring, spark), spark)

    def __str__(self) -> str:
        streams = (f"  {edge.label} ({edge.grouping.rule.value})" for edge in self._edges)
        return "\n".join([self.name, *streams])

    def _name(self, wanted: str) -> str:
        """`wanted`, or `wanted 2` and so on, for operators that were given no name."""
        name, number = wanted, 1
        while name in self._nodes:
            number += 1
            name = f"{wanted} {number}"
        return name

    def _add(self, node: Node, inputs: list[tuple[Stream, int]]) -> Stream:
        if node.name in self._nodes:
            raise TopologyError(
                f"there is an operator {node.name!r} already; give each a name of its own"
            )
        if node.parallelism < 1:
            raise TopologyError(
                f"parallelism of {node.name!r} is {node.parallelism}; it must be at least 1"
            )
        for stream, _ in inputs:
            if stream._grouping is not None and stream._grouping.function is not None:
                what = f"the grouping function before {node.name!r}"
                check_ships(what, stream._grouping.function)
        self._nodes[node.name] = node
        for stream, port in inputs:
            for source, output in stream._ends:
                grouping = stream._grouping
                if grouping is None:
                    same = self._nodes[source].parallelism == node.parallelism
                    grouping = Grouping(Rule.FORWARD if same else Rule.SHUFFLE)
                self._edges.append(Edge(source, node.name, grouping, output, port))
        return Stream(self, [(node.name, MAIN)])


class Stream:
    """What flows out of an operator. Its methods add operators that read it.

    All take a `name`, a `parallelism` (default: that of the operator before) and `on_error`: what
    becomes of a record whose processing raises: "fail" (the job), "skip" (and count it) or "dead
    letter" (into the stream that `dead_letters()` gives).

    Between operators of the same parallelism records stay in their instance and worker; otherwise
    they are shuffled, unless a grouping (`shuffle`, `key_by`, ...) says how.
    """

    def __init__(
        self,
        topology: Topology,
        ends: list[tuple[str, str]],
        grouping: Grouping | None = None,
        time: TimeFunction | None = None,
    ) -> None:
        self._topology = topology
        self._ends = ends
        self._grouping = grouping
        self._time = time

    # ---- operators ----

    def map(self, function: Callable[[Record], Record], **options: Any) -> Stream:
        """One result for each record."""
        return self._then("map", operators.Map(function), function, **options)

    def flat_map(self, function: Callable[[Record], Iterable[Record]], **options: Any) -> Stream:
        """Any number of results for each record."""
        return self._then("flat_map", operators.FlatMap(function), function, **options)

    def filter(self, function: Callable[[Record], object], **options: Any) -> Stream:
        """The records for which the function says yes."""
        logic = operators.Filter(function)
        return self._then("filter", logic, function, time=self._time, **options)

    def process(self, operator: operators.Operator, **options: Any) -> Stream:
        """An operator object of your own."""
        logic = operators.Process(operator, self._key, self._keyed)
        return self._then("process", logic, operator, **options)

    def split(
        self, function: Callable[[Record], str], names: Iterable[str], **options: Any
    ) -> dict[str, Stream]:
        """Side streams: each record goes into the one that the function names."""
        outputs = tuple(names)
        stream = self._then(
            "split", operators.Split(function, outputs), function, outputs=outputs, **options
        )
        operator = stream._ends[0][0]
        return {
            name: Stream(self._topology, [(operator, name)], time=self._time) for name in outputs
        }

    def async_map(
        self,
        function: Callable[[Record], Awaitable[Record]],
        *,
        concurrency: int = 64,
        ordered: bool = True,
        timeout_s: float | None = None,
        **options: Any,
    ) -> Stream:
        """One result for each record, from a coroutine function: for I/O that takes its time.

        Each instance has up to `concurrency` records in flight, and its worker never waits for
        them: the coroutines run in an asyncio loop in a thread beside it. Results come in the
        order of the records (and one that is ready before its turn counts as in flight), or with
        `ordered=False` as they get ready. Watermarks stay behind the records that they follow.

        A coroutine that raises, or takes longer than `timeout_s`, is an error of its record, and
        `on_error` says what follows. Records in flight when a job fails are cancelled.
        """
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise TopologyError(
                f"concurrency of async_map is {concurrency!r}; it must be a number of at least 1"
            )
        if timeout_s is not None:
            check_seconds("timeout_s of async_map", timeout_s)
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
            getattr(type(function), "__call__", None)  # noqa: B004
        ):
            raise TopologyError(
                f"async_map got {function!r}; it must be a coroutine function (async def)."
                " For an ordinary one use .map()"
            )
        logic = AsyncMap(function, concurrency, ordered, timeout_s)
        return self._then("async_map", logic, function, **options)

    def map_arrow(
        self, function: Callable[[Any], Any], *, schema: Any = None, **options: Any
    ) -> Stream:
        """A vectorised map: from `pyarrow.RecordBatch` to RecordBatch (or Table).

        The records are dicts, NamedTuples, or with a schema also plain tuples. The function gets
        those that came together, be it one or thousands, and must not depend on which these are;
        it may give fewer rows, or more. Rows come out as dicts if dicts went in; as the same
        NamedTuple if the columns are its fields; else as tuples. Without a schema the types are
        Arrow's guess from each batch by itself.

        If the function raises, it is called again for each record of the batch alone, so that only
        those at fault are treated by `on_error`.
        """
        if schema is not None:
            import pyarrow as pa

            if not isinstance(schema, pa.Schema):
                raise TopologyError(
                    f"schema of map_arrow is {schema!r}; it must be a pyarrow.Schema"
                )
        return self._then("map_arrow", ArrowMap(function, schema), function, **options)

    def event_time(
        self,
        time: TimeFunction,
        *,
        max_delay_s: float | None = None,
        idle_s: float | None = None,
        **options: Any,
    ) -> Stream:
        """Say when the records happened: `time(record)` in seconds, counted from anything.

        Records may come out of order by `max_delay_s`: event time is that much behind the newest
        record. Those still further behind are late, and what that means is up to the operator that
        waits for time (`window`, `join`). Downstream, time is that of the slowest instance: one
        that gets no records holds it back, for ever or for `idle_s` of the worker's clock, after
        which it is not waited for until it has records again. When all input has ended, all
        windows are over.

        It holds for all that follows, as long as records stay as they are (`filter`, `split`,
        `merge`, groupings). After operators that change them, call this again to say how to read
        the new ones; without `max_delay_s` the time that was declared before goes on.
        """
        if max_delay_s is None:
            if self._time is None:
                raise TopologyError(
                    "event_time needs max_delay_s: by how many seconds may a record be behind a"
                    " later one? 0: they come in order"
                )
            check_ships("the function of event_time", time)
            stream = copy(self)
            stream._time = time
            return stream
        check_seconds("max_delay_s of event_time", max_delay_s, zero=True)
        if idle_s is not None:
            check_seconds("idle_s of event_time", idle_s)
        logic = EventTime(time, max_delay_s, idle_s)
        return self._then("event_time", logic, time, time=time, **options)

    def side(self, name: str) -> Stream:
        """Another output of the operator before: what it emits with `stream=name`."""
        operator, _ = self._one_end("side")
        node = self._topology._nodes[operator]
        if name not in node.outputs:
            self._topology._nodes[operator] = replace(node, outputs=(*node.outputs, name))
        return Stream(self._topology, [(operator, name)])

    def dead_letters(self) -> Stream:
        """The records the operator before could not process, as (record, error) pairs."""
        return self._topology.dead_letters(self._one_end("dead_letters")[0])

    def late(self) -> Stream:
        """The records that came too late for the window or join before."""
        operator, _ = self._one_end("late")
        if LATE not in self._topology._nodes[operator].outputs:
            raise TopologyError(f"{operator!r} has no late records; only windows and joins do")
        return self.side(LATE)

    def merge(self, *others: Stream) -> Stream:
        """This stream and others as one."""
        if any(other._topology is not self._topology for other in others):
            raise TopologyError("a merge got streams of different topologies")
        ends = sum((other._ends for other in others), self._ends)
        time = self._time if all(other._time == self._time for other in others) else None
        return Stream(self._topology, ends, time=time or _unread_of([self, *others]))

    def sink(self, sink: Sink | Callable[[Record], object], **options: Any) -> None:
        """Where the records go: a sink, or a function that is called with each."""
        if not isinstance(sink, Sink):
            from tailrace.connectors.memory import Call

            sink = Call(sink)
        self._then("sink", SinkLogic(sink), sink, outputs=(), **options)

    # ---- groupings ----

    def shuffle(self) -> Stream:
        """Records spread evenly over the next operator's instances."""
        return self._grouped(Rule.SHUFFLE)

    def local_or_shuffle(self) -> Stream:
        """Spread over the instances in the same worker, or over all if there is none."""
        return self._grouped(Rule.LOCAL_OR_SHUFFLE)

    def broadcast(self) -> Stream:
        """Every record to every instance."""
        return self._grouped(Rule.ALL)

    def gather(self) -> Stream:
        """All records to one instance."""
        return self._grouped(Rule.GLOBAL)

    def partition_by(self, function: Callable[[Record, int], int]) -> Stream:
        """To the instance that `function(record, instances)` picks."""
        return self._grouped(Rule.CUSTOM, function)

    def partial_key_by(self, key: Callable[[Record], Hashable] | None = None) -> KeyedStream:
        """By key, but each key has two instances, and the less busy one gets the record.

        For hot keys, before an associative fold: the two partial results have to be merged by a
        second step.
        """
        grouping = Grouping(Rule.PARTIAL_KEY, key)
        return KeyedStream(self._topology, self._ends, grouping, self._time)

    def key_by(self, key: Callable[[Record], Hashable] | None = None) -> KeyedStream:
        """By key: records of equal keys go to the same instance, in order. Default: the record."""
        return KeyedStream(self._topology, self._ends, Grouping(Rule.KEY, key), self._time)

    # ---- how ----

    _key: Callable[[Record], Hashable] | None = None
    _keyed = False

    def _grouped(self, rule: Rule, function: Any = None) -> Stream:
        return Stream(self._topology, self._ends, Grouping(rule, function), self._time)

    def _one_end(self, method: str) -> tuple[str, str]:
        if len(self._ends) > 1:
            raise TopologyError(f".{method}() is for one operator's stream; this one is merged")
        return self._ends[0]

    def _then(
        self,
        kind: str,
        logic: Any,
        shipped: Any,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: str = "fail",
        outputs: tuple[str, ...] = (MAIN,),
        time: TimeFunction | None = None,
        right: Stream | None = None,
    ) -> Stream:
        topology = self._topology
        inputs = [self] if right is None else [self, right]
        name = name or topology._name(kind)
        if on_error not in _ON_ERROR:
            raise TopologyError(
                f"on_error of {name!r} is {on_error!r}; it must be one of {list(_ON_ERROR)}"
            )
        check_ships(f"the function of {name!r}", shipped)
        if parallelism is None:
            sources = [source for stream in inputs for source, _ in stream._ends]
            parallelism = max(topology._nodes[source].parallelism for source in sources)
        policy = _ON_ERROR[on_error]
        if policy is OnError.DEAD_LETTER:
            outputs = (*outputs, DEAD_LETTERS)
        node = Node(name, logic, parallelism, ports=len(inputs), outputs=outputs, on_error=policy)
        stream = topology._add(node, [(stream, port) for port, stream in enumerate(inputs)])
        stream._time = time or _unread_of(inputs)
        return stream


def _unread_of(inputs: list[Stream]) -> TimeFunction | None:
    """What is known of time after the inputs, when their records have changed."""
    return None if any(stream._time is None for stream in inputs) else unread


class KeyedStream(Stream):
    """A stream grouped by key: its operators have a state per key."""

    _keyed = True

    @property
    def _key(self) -> Callable[[Record], Hashable] | None:  # type: ignore[override]
        return None if self._grouping is None else self._grouping.function

    def scan(
        self, function: Callable[[Any, Record], Any], *, initial: Any = None, **options: Any
    ) -> Stream:
        """`state = function(state, record)` per key; (key, state) for each record."""
        return self._then("scan", operators.Scan(self._key, function, initial), function, **options)

    def fold(
        self, function: Callable[[Any, Record], Any], *, initial: Any = None, **options: Any
    ) -> Stream:
        """Like `scan`, but (key, state) only once per key, when the input ends."""
        return self._then("fold", operators.Fold(self._key, function, initial), function, **options)

    def window(
        self, window: Window, *, time: str = "event", lateness_s: float = 0.0
    ) -> WindowedStream:
        """Cut each key's records into windows: `tumbling`, `sliding` or `session`.

        In event time a window is over when a watermark reaches its end; `event_time` says how
        records carry it. In processing time (`time="processing"`) records are as old as the
        worker's clock says when they arrive, and the same clock ends windows. That clock only goes
        forward; where it counts from is up to the machine.

        A window that is over is forgotten `lateness_s` later. Until then each late record gives
        its window's result anew, with that record in it; a session's replaces those of all
        sessions that it overlaps. Records later than that are counted, and go to `late()`.

        >>> from tailrace import tumbling
        >>> topology = Topology()
        >>> clicks = topology.source([("ann", 1), ("bob", 4), ("ann", 2), ("ann", 7)])
        >>> clicks = clicks.event_time(lambda click: click[1], max_delay_s=3)
        >>> per_user = clicks.key_by(lambda click: click[0]).window(tumbling(5))
        >>> per_user.aggregate(lambda count, click: count + 1, 0).sink(print)
        >>> from tailrace.testing import run
        >>> report = run(topology)
        WindowResult(key='ann', start=0, end=5, value=2)
        WindowResult(key='bob', start=0, end=5, value=1)
        WindowResult(key='ann', start=5, end=10, value=1)
        """
        if not isinstance(window, Sliding | Session):
            raise TopologyError(
                f"window() got {window!r}; it needs tumbling(...), sliding(...) or session(...)"
            )
        check_seconds("lateness_s of a window", lateness_s, zero=True)
        time_of = self._time_by("a window", time)
        if lateness_s and time_of is None:
            raise TopologyError(
                f"lateness_s of a window is {lateness_s}, but nothing is late in processing time"
            )
        return WindowedStream(self, window, time_of, lateness_s)

    def join(
        self,
        right: KeyedStream,
        *,
        within_s: float,
        function: Callable[[Any, Any], Record] = pair,
        how: str = "inner",
        time: str = "event",
        **options: Any,
    ) -> Stream:
        """`function(left, right)` for all pairs of equal keys at most `within_s` apart in time.

        A pair comes out as soon as both are there. With `how="left"`, a left record without any
        match comes out as `function(left, None)` when none can come any more; with "outer", those
        of the right do too.

        In event time both streams need `event_time`, and all pairs of records that are not late
        are found; a late one still meets what is kept, and if nothing can be kept any more it is
        counted and goes to `late()`. In processing time, what counts is when they arrive.
        """
        check_seconds("within_s of a join", within_s, zero=True)
        kinds = {kind.value: kind for kind in JoinKind}
        if how not in kinds:
            raise TopologyError(f"how of a join is {how!r}; it must be one of {list(kinds)}")
        for side, stream in (("left", self), ("right", right)):
            if not isinstance(stream, KeyedStream) or stream._rule is not Rule.KEY:
                raise TopologyError(f"the {side} side of a join must come from .key_by(...)")
        if right._topology is not self._topology:
            raise TopologyError("a join got two streams of different topologies")
        times_of = (
            self._time_by("a join (left side)", time),
            right._time_by("a join (right side)", time),
        )
        logic = Join((self._key, right._key), times_of, within_s, function, kinds[how])
        return self._then("join", logic, function, outputs=(MAIN, LATE), right=right, **options)

    @property
    def _rule(self) -> Rule | None:
        return None if self._grouping is None else self._grouping.rule

    def _time_by(self, what: str, time: str) -> TimeFunction | None:
        if time == "processing":
            return None
        if time != "event":
            raise TopologyError(f"time of {what} is {time!r}; it must be 'event' or 'processing'")
        if self._time is None:
            raise TopologyError(
                f"{what} needs the event time of its records: call .event_time(...) on the stream"
                " before, or use time='processing'"
            )
        if self._time is unread:
            raise TopologyError(
                f"{what} cannot read the event time of its records, which have changed since it was"
                " declared: call .event_time(function) behind the last operator that changes them"
            )
        return self._time
