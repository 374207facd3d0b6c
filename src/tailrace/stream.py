"""What a stream offers: operators that read it, and groupings that say who gets which record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from typing import Any

from tailrace import arguments
from tailrace.draft import Draft, End
from tailrace.graph.model import MAIN, Grouping, KeyFunction, Record, Rule
from tailrace.graph.model import Operator as Node
from tailrace.graph.validate import TopologyError, check_ships
from tailrace.runtime import operators
from tailrace.runtime.arrow import ArrowMap
from tailrace.runtime.async_map import AsyncMap
from tailrace.runtime.event_time import LATE, EventTime, TimeFunction, check_seconds, unread
from tailrace.runtime.join import Join, pair
from tailrace.runtime.source import Sink, SinkLogic
from tailrace.runtime.windows import Window
from tailrace.windowed import WindowedStream


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
        draft: Draft,
        ends: list[End],
        grouping: Grouping | None = None,
        time: TimeFunction | None = None,
    ) -> None:
        self._draft = draft
        self._ends = ends
        self._grouping = grouping
        self._time = time

    # ---- operators ----

    def map(self, function: Callable[[Record], Record], **options: Any) -> Stream:
        """One result for each record."""
        return self._then("map", operators.Map(function), function, options)

    def flat_map(self, function: Callable[[Record], Iterable[Record]], **options: Any) -> Stream:
        """Any number of results for each record."""
        return self._then("flat_map", operators.FlatMap(function), function, options)

    def filter(self, function: Callable[[Record], object], **options: Any) -> Stream:
        """The records for which the function says yes."""
        logic = operators.Filter(function)
        return self._then("filter", logic, function, options, time=self._time)

    def process(self, operator: operators.Operator, **options: Any) -> Stream:
        """An operator object of your own."""
        logic = operators.Process(operator, self._key, self._keyed)
        return self._then("process", logic, operator, options)

    def split(
        self, function: Callable[[Record], str], names: Iterable[str], **options: Any
    ) -> dict[str, Stream]:
        """Side streams: each record goes into the one that the function names."""
        outputs = tuple(names)
        stream = self._then(
            "split", operators.Split(function, outputs), function, options, outputs=outputs
        )
        operator = stream._ends[0][0]
        return {name: Stream(self._draft, [(operator, name)], time=self._time) for name in outputs}

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
        arguments.check_async_map(function, concurrency, timeout_s)
        logic = AsyncMap(function, concurrency, ordered, timeout_s)
        return self._then("async_map", logic, function, options)

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
        arguments.check_schema(schema)
        return self._then("map_arrow", ArrowMap(function, schema), function, options)

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
        arguments.check_options(self, "event_time", options)
        if max_delay_s is None:
            if self._time is None:
                raise TopologyError(
                    "event_time needs max_delay_s: by how many seconds may a record be behind a"
                    " later one? 0: they come in order"
                )
            given = [*options, *(["idle_s"] if idle_s is not None else [])]
            if given:
                raise TopologyError(
                    f"event_time got {given[0]} without max_delay_s: it then makes no operator, it"
                    " only says how to read the time that was declared before"
                )
            check_ships("the function of event_time", time)
            stream = copy(self)
            stream._time = time
            return stream
        check_seconds("max_delay_s of event_time", max_delay_s, zero=True)
        if idle_s is not None:
            check_seconds("idle_s of event_time", idle_s)
        logic = EventTime(time, max_delay_s, idle_s)
        return self._then("event_time", logic, time, options, time=time)

    def side(self, name: str) -> Stream:
        """Another output of the operator before: what it emits with `stream=name`."""
        operator, _ = self._one_end("side")
        self._draft.add_output(operator, name)
        return Stream(self._draft, [(operator, name)])

    def dead_letters(self) -> Stream:
        """The records the operator before could not process, as (record, error) pairs."""
        operator, _ = self._one_end("dead_letters")
        return Stream(self._draft, [self._draft.dead_letters(operator)])

    def late(self) -> Stream:
        """The records that came too late for the window or join before."""
        operator, _ = self._one_end("late")
        if LATE not in self._draft.operators[operator].outputs:
            raise TopologyError(f"{operator!r} has no late records; only windows and joins do")
        return self.side(LATE)

    def merge(self, *others: Stream) -> Stream:
        """This stream and others as one."""
        if any(other._draft is not self._draft for other in others):
            raise TopologyError("a merge got streams of different topologies")
        ends = sum((other._ends for other in others), self._ends)
        time = self._time if all(other._time == self._time for other in others) else None
        return Stream(self._draft, ends, time=time or _unread_of([self, *others]))

    def sink(self, sink: Sink | Callable[[Record], object], **options: Any) -> None:
        """Where the records go: a sink, or a function that is called with each."""
        if not isinstance(sink, Sink):
            from tailrace.connectors.memory import Call

            sink = Call(sink)
        self._then("sink", SinkLogic(sink), sink, options, outputs=())

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

    def partial_key_by(self, key: KeyFunction | None = None) -> KeyedStream:
        """By key, but each key has two instances, and the less busy one gets the record.

        For hot keys, before an associative fold: the two partial results have to be merged by a
        second step.
        """
        return KeyedStream(self._draft, self._ends, Grouping(Rule.PARTIAL_KEY, key), self._time)

    def key_by(self, key: KeyFunction | None = None) -> KeyedStream:
        """By key: records of equal keys go to the same instance, in order. Default: the record."""
        return KeyedStream(self._draft, self._ends, Grouping(Rule.KEY, key), self._time)

    # ---- how ----

    _keyed = False

    @property
    def _key(self) -> KeyFunction | None:
        return self._grouping.function if self._keyed and self._grouping else None

    def _grouped(self, rule: Rule, function: Any = None) -> Stream:
        return Stream(self._draft, self._ends, Grouping(rule, function), self._time)

    def _one_end(self, method: str) -> End:
        if len(self._ends) > 1:
            raise TopologyError(f".{method}() is for one operator's stream; this one is merged")
        return self._ends[0]

    def _then(
        self,
        kind: str,
        logic: Any,
        shipped: Any,
        options: dict[str, Any],
        *,
        outputs: tuple[str, ...] = (MAIN,),
        time: TimeFunction | None = None,
        right: Stream | None = None,
    ) -> Stream:
        arguments.check_options(self, kind, options)
        draft = self._draft
        inputs = [self] if right is None else [self, right]
        name = options.get("name") or draft.free_name(kind)
        policy = arguments.error_policy(name, options.get("on_error", "fail"))
        check_ships(f"the function of {name!r}", shipped)
        if (parallelism := options.get("parallelism")) is None:
            before = [operator for stream in inputs for operator, _ in stream._ends]
            parallelism = max(draft.operators[operator].parallelism for operator in before)
        node = Node(name, logic, parallelism, ports=len(inputs), outputs=outputs, on_error=policy)
        draft.add(node, [(stream._ends, stream._grouping) for stream in inputs])
        return Stream(draft, [(name, MAIN)], time=time or _unread_of(inputs))


class KeyedStream(Stream):
    """A stream grouped by key: its operators have a state per key."""

    _keyed = True

    def scan(
        self, function: Callable[[Any, Record], Any], *, initial: Any = None, **options: Any
    ) -> Stream:
        """`state = function(state, record)` per key; (key, state) for each record."""
        return self._then("scan", operators.Scan(self._key, function, initial), function, options)

    def fold(
        self, function: Callable[[Any, Record], Any], *, initial: Any = None, **options: Any
    ) -> Stream:
        """Like `scan`, but (key, state) only once per key, when the input ends."""
        return self._then("fold", operators.Fold(self._key, function, initial), function, options)

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

        >>> from tailrace import Topology, tumbling
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
        arguments.check_window(window, lateness_s, time)
        time_of = arguments.time_function("a window", time, self._time)
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
        kind = arguments.join_kind(how)
        for side, stream in (("left", self), ("right", right)):
            grouping = stream._grouping if isinstance(stream, KeyedStream) else None
            if grouping is None or grouping.rule is not Rule.KEY:
                raise TopologyError(f"the {side} side of a join must come from .key_by(...)")
        if right._draft is not self._draft:
            raise TopologyError("a join got two streams of different topologies")
        times_of = (
            arguments.time_function("a join (left side)", time, self._time),
            arguments.time_function("a join (right side)", time, right._time),
        )
        logic = Join((self._key, right._key), times_of, within_s, function, kind)
        return self._then("join", logic, function, options, outputs=(MAIN, LATE), right=right)


def _unread_of(inputs: list[Stream]) -> TimeFunction | None:
    """What is known of time after the inputs, when their records have changed."""
    return None if any(stream._time is None for stream in inputs) else unread
