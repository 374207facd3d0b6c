"""What a stream offers: operators that read it, and groupings that say who gets which record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any

from tailrace import _arguments as arguments
from tailrace._arguments import OnErrorName, Options
from tailrace._draft import Draft, End
from tailrace.graph.model import MAIN, Grouping, KeyFunction, Record, Rule
from tailrace.graph.model import Operator as Node
from tailrace.graph.validate import TopologyError
from tailrace.runtime import operators
from tailrace.runtime.arrow import ArrowMap
from tailrace.runtime.async_map import AsyncMap
from tailrace.runtime.event_time import LATE, EventTime, TimeFunction, unread
from tailrace.runtime.process import Operator, Process
from tailrace.runtime.sink import Sink, SinkLogic
from tailrace.runtime.times import check_seconds
from tailrace.spark.shippable import check_ships
from tailrace.tail.modes import OwnTail, check_own

if TYPE_CHECKING:
    from tailrace.keyed import KeyedStream


class Stream:
    """What flows out of an operator. Its methods add operators that read it.

    All take a `name`, a `parallelism` (default: that of the operator before) and `on_error`: what
    becomes of a record whose processing raises: "fail" (the job), "skip" (and count it) or "dead
    letter" (into the stream that `dead_letters()` gives).

    Between operators of the same parallelism records stay in their instance and worker; otherwise
    they are shuffled, unless a grouping (`shuffle`, `key_by`, ...) says how.
    """

    def __init__(self, draft: Draft, ends: list[End], time: TimeFunction | None = None) -> None:
        self._draft = draft
        self._ends = ends
        self._time = time

    # ---- operators ----

    def map(
        self,
        function: Callable[[Record], Record],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> Stream:
        """One result for each record."""
        return self._then(
            "map", operators.Map(function), function, Options(name, parallelism, on_error)
        )

    def flat_map(
        self,
        function: Callable[[Record], Iterable[Record]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> Stream:
        """Any number of results for each record."""
        return self._then(
            "flat_map", operators.FlatMap(function), function, Options(name, parallelism, on_error)
        )

    def filter(
        self,
        function: Callable[[Record], object],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> Stream:
        """The records for which the function says yes."""
        logic = operators.Filter(function)
        return self._then(
            "filter", logic, function, Options(name, parallelism, on_error), time=self._time
        )

    def process(
        self,
        operator: Operator,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> Stream:
        """An operator object of your own."""
        return self._then(
            "process", Process(operator), operator, Options(name, parallelism, on_error)
        )

    def split(
        self,
        function: Callable[[Record], str],
        names: Iterable[str],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> dict[str, Stream]:
        """Side streams: each record goes into the one that the function names."""
        outputs = tuple(names)
        stream = self._then(
            "split",
            operators.Split(function, outputs),
            function,
            Options(name, parallelism, on_error),
            outputs=outputs,
        )
        operator = stream._ends[0].operator
        return {one: Stream(self._draft, [End(operator, one)], self._time) for one in outputs}

    def async_map(
        self,
        function: Callable[[Record], Awaitable[Record]],
        *,
        concurrency: int = 64,
        ordered: bool = True,
        timeout_s: float | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
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
        return self._then("async_map", logic, function, Options(name, parallelism, on_error))

    def map_arrow(
        self,
        function: Callable[[Any], Any],
        *,
        schema: Any = None,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
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
        return self._then(
            "map_arrow", ArrowMap(function, schema), function, Options(name, parallelism, on_error)
        )

    def event_time(
        self,
        time: TimeFunction,
        *,
        max_delay_s: float | None = None,
        idle_s: float | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> Stream:
        """Say when the records happened: `time(record)`, exact to the nanosecond inside.

        It gives seconds (int or float) counted from anything, or a datetime with a time zone, or a
        timestamp of numpy, pandas or Arrow. `WindowResult` then has seconds or datetimes.

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
            options = Options(name, parallelism, on_error)
            given = [*options.given(), *(["idle_s"] if idle_s is not None else [])]
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
        return self._then(
            "event_time", logic, time, Options(name, parallelism, on_error), time=time
        )

    def side(self, name: str) -> Stream:
        """Another output of the operator before: what it emits with `stream=name`."""
        operator = self._one_end("side").operator
        self._draft.add_output(operator, name)
        return Stream(self._draft, [End(operator, name)])

    def dead_letters(self) -> Stream:
        """The records the operator before could not process, as (record, error) pairs."""
        operator = self._one_end("dead_letters").operator
        return Stream(self._draft, [self._draft.dead_letters(operator)])

    def late(self) -> Stream:
        """The records that came too late for the window or join before."""
        operator = self._one_end("late").operator
        if LATE not in self._draft.operators[operator].outputs:
            raise TopologyError(f"{operator!r} has no late records; only windows and joins do")
        return self.side(LATE)

    def merge(self, *others: Stream) -> Stream:
        """This stream and others as one. Each keeps the grouping it has.

        So `rules.broadcast().merge(events.shuffle())` gives each rule to all instances and each
        event to one, and streams that are all keyed are one keyed stream, each by its own key.
        """
        from tailrace.keyed import KeyedStream

        if any(other._draft is not self._draft for other in others):
            raise TopologyError("a merge got streams of different topologies")
        streams = [self, *others]
        ends = [end for stream in streams for end in stream._ends]
        same = all(other._time == self._time for other in others)
        time = (self._time if same else None) or unread_of(streams)
        keyed = [stream for stream in streams if isinstance(stream, KeyedStream)]
        rules = {end.grouping.rule for one in keyed for end in one._ends if end.grouping}
        if len(rules) > 1:
            raise TopologyError(
                "a merge got streams by key_by() and by partial_key_by(), whose keys have one"
                " instance and two; group them alike, or behind the merge"
            )
        kind = KeyedStream if len(keyed) == len(streams) else Stream
        return kind(self._draft, ends, time)

    def sink(
        self,
        sink: Sink | Callable[[Record], object],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> None:
        """Where the records go: a sink, or a function that is called with each."""
        if not isinstance(sink, Sink):
            from tailrace.connectors.memory import Call

            sink = Call(sink)
        self._then("sink", SinkLogic(sink), sink, Options(name, parallelism, on_error), outputs=())

    # ---- groupings ----

    def shuffle(self, *, tail: OwnTail | None = None) -> Stream:
        """Records spread evenly over the next operator's instances.

        `tail` says how, for short tails of latency: "off" in turn, "balance" to where each will be
        done soonest, "shared" to whoever is free first, "auto" by whichever of these is measured to
        make the p99 shorter while it runs. By default as `start(tail=...)` says.
        """
        return self._grouped(Rule.SHUFFLE, tail=tail)

    def local_or_shuffle(self, *, tail: OwnTail | None = None) -> Stream:
        """Spread over the instances in the same worker, or over all if there is none.

        With a `tail` other than "off", see `shuffle`, others help when those are overloaded.
        """
        return self._grouped(Rule.LOCAL_OR_SHUFFLE, tail=tail)

    def broadcast(self) -> Stream:
        """Every record to every instance."""
        return self._grouped(Rule.ALL)

    def gather(self) -> Stream:
        """All records to one instance: the next operator has no others."""
        return self._grouped(Rule.GLOBAL)

    def partition_by(self, function: Callable[[Record, int], int]) -> Stream:
        """To the instance that `function(record, instances)` picks."""
        return self._grouped(Rule.CUSTOM, function)

    def partial_key_by(self, key: KeyFunction | None = None) -> KeyedStream:
        """By key, but each key has two instances, and the less busy one gets the record.

        A key that is more than two can take has all of them. For hot keys, before an associative
        fold: the partial results have to be merged by a second step, which `fold(combine=...)`
        brings along.

        What reads this stream has several states of a key, each from some of its records: `fold`,
        `scan`, `process` and `window` give results of each instance, in which no state is complete,
        and which you have to put together by a `key_by` behind them. A `join`, which would miss
        pairs, is refused.
        """
        from tailrace.keyed import KeyedStream

        return KeyedStream(self._draft, self._regrouped(Rule.PARTIAL_KEY, key), self._time)

    def key_by(self, key: KeyFunction | None = None) -> KeyedStream:
        """By key: records of equal keys go to the same instance, in order. Default: the record.

        The function is called once for a record; what it gave goes with the record to where its
        state is, and so has to be something that pickle can encode, and equal to what pickle makes
        of it there.
        """
        from tailrace.keyed import KeyedStream

        return KeyedStream(self._draft, self._regrouped(Rule.KEY, key), self._time)

    # ---- how ----

    def _regrouped(self, rule: Rule, function: Any = None, tail: str | None = None) -> list[End]:
        grouping = Grouping(rule, function, tail if tail is None else check_own(tail))
        return [end._replace(grouping=grouping) for end in self._ends]

    def _grouped(self, rule: Rule, function: Any = None, tail: str | None = None) -> Stream:
        return Stream(self._draft, self._regrouped(rule, function, tail), self._time)

    def _one_end(self, method: str) -> End:
        if len(self._ends) > 1:
            raise TopologyError(f".{method}() is for one operator's stream; this one is merged")
        return self._ends[0]

    def _then(
        self,
        kind: str,
        logic: Any,
        shipped: Any,
        options: Options,
        *,
        outputs: tuple[str, ...] = (MAIN,),
        time: TimeFunction | None = None,
        ports: list[list[End]] | None = None,
    ) -> Stream:
        """An operator behind this stream, and what comes out of it.

        `ports` is what it reads at each of its ports, if that is not this stream at its only one.
        """
        draft = self._draft
        ports = [self._ends] if ports is None else ports
        name = options.name or draft.free_name(kind)
        policy = arguments.error_policy(name, options.on_error)
        check_ships(f"the function of {name!r}", shipped)
        parallelism = options.parallelism
        if parallelism is None:
            ends = [end for port in ports for end in port]
            parallelism = max(draft.operators[end.operator].parallelism for end in ends)
            if any(end.grouping and end.grouping.rule is Rule.GLOBAL for end in ends):
                parallelism = 1
        arguments.check_version(name, options.state_version, options.migrate)
        if options.migrate is not None:
            check_ships(f"the migration of {name!r}", options.migrate)
        node = Node(
            name,
            logic,
            parallelism,
            ports=len(ports),
            outputs=outputs,
            on_error=policy,
            state_version=options.state_version,
            migrate=options.migrate,
        )
        draft.add(node, ports)
        return Stream(draft, [End(name, MAIN)], time or unread_of([self]))


def unread_of(inputs: list[Stream]) -> TimeFunction | None:
    """What is known of time after the inputs, when their records have changed."""
    return None if any(stream._time is None for stream in inputs) else unread
