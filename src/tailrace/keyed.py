"""What a stream that is grouped by key offers besides: state, windows, joins."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tailrace import _arguments as arguments
from tailrace._arguments import Migrate, OnErrorName, Options
from tailrace._draft import End
from tailrace.graph.model import MAIN, Grouping, KeyFunction, Record, Rule
from tailrace.graph.validate import TopologyError
from tailrace.runtime import operators
from tailrace.runtime.event_time import LATE
from tailrace.runtime.join import Join, MigratingRecords, pair
from tailrace.runtime.process import Operator, Process
from tailrace.runtime.times import check_seconds
from tailrace.runtime.ttl import By
from tailrace.runtime.windows import Window
from tailrace.spark.shippable import check_ships
from tailrace.stream import Stream, unread_of
from tailrace.windowed import WindowedStream


class KeyedStream(Stream):
    """A stream grouped by key: its operators have a state per key."""

    def process(
        self,
        operator: Operator,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
        ttl_s: float | None = None,
        ttl_by: By = "clock",
        state_version: int = 0,
        migrate: Migrate | None = None,
    ) -> Stream:
        """An operator object of your own, with a state per key.

        Do not emit a state that you change in place: emit a copy of it.

        `ttl_s`, `ttl_by`, `state_version` and `migrate` are as for `scan`. Keys with timers live
        on, and what `migrate` gets and gives is a pair of the state and the timers.
        """
        ttl = arguments.time_to_live(ttl_s, ttl_by, self._time)
        key, *more = self._keys
        logic = Process(operator, key, keyed=True, more_keys=tuple(more), ttl=ttl)
        options = Options(name, parallelism, on_error, state_version, migrate)
        return self._then("process", logic, operator, options, ports=self._by_key())

    def scan(
        self,
        function: Callable[[Any, Record], Any],
        *,
        initial: Any = None,
        ttl_s: float | None = None,
        ttl_by: By = "clock",
        state_version: int = 0,
        migrate: Migrate | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
    ) -> Stream:
        """`state = function(state, record)` per key; (key, state) for each record.

        A new key begins with a copy of `initial`. A state of None is forgotten, and so is one that
        no record has touched for `ttl_s` seconds: by the clock, or (`ttl_by="event"`) by event
        time.

        Every state is handed on, so do not change one in place: give a new one (`[*state, record]`
        for lists). Otherwise who reads it sees what came later, or not, by what came together.

        When what is kept is not of the same kind any more, raise `state_version`: state of an
        earlier version in a checkpoint then goes through `migrate(key, state, version)`.
        """
        ttl = arguments.time_to_live(ttl_s, ttl_by, self._time)
        key, *more = self._keys
        logic = operators.Scan(key, function, initial, tuple(more), ttl)
        options = Options(name, parallelism, on_error, state_version, migrate)
        return self._then("scan", logic, function, options, ports=self._by_key())

    def fold(
        self,
        function: Callable[[Any, Record], Any],
        *,
        initial: Any = None,
        ttl_s: float | None = None,
        ttl_by: By = "clock",
        state_version: int = 0,
        migrate: Migrate | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
        combine: Callable[[Any, Any], Any] | None = None,
    ) -> Stream:
        """Like `scan`, but (key, state) only once per key, when the input ends.

        What was forgotten by then is not among them.

        With `combine(state, state)`, for what is associative and in which the order of records
        does not matter, a key may have several instances, and a hot one all of them (see
        `partial_key_by`); a second operator puts their states together. Each begins with a copy
        of `initial`, which must be neutral: 0 for sums.

        >>> from tailrace import Topology
        >>> from tailrace.testing import collect, run
        >>> topology = Topology()
        >>> words = topology.source(["to", "be", "or", "not", "to", "be"]).key_by()
        >>> counts = words.fold(lambda n, _: n + 1, initial=0, combine=int.__add__, parallelism=3)
        >>> found = collect(counts.gather())
        >>> report = run(topology)
        >>> sorted(found)
        [('be', 2), ('not', 1), ('or', 1), ('to', 2)]
        """
        if combine is not None:
            if ttl_s is not None:
                raise TopologyError(
                    f"fold() got combine= and ttl_s={ttl_s}; states of one key in several"
                    " instances are not forgotten together"
                )
            options = Options(name, parallelism, on_error, state_version, migrate)
            return self._folded_in_parts(function, initial, combine, options)
        ttl = arguments.time_to_live(ttl_s, ttl_by, self._time)
        key, *more = self._keys
        logic = operators.Fold(key, function, initial, tuple(more), ttl)
        options = Options(name, parallelism, on_error, state_version, migrate)
        return self._then("fold", logic, function, options, ports=self._by_key())

    def _folded_in_parts(
        self,
        function: Callable[[Any, Record], Any],
        initial: Any,
        combine: Callable[[Any, Any], Any],
        options: Options,
    ) -> Stream:
        """By partial keys, and behind that by keys what came of each part."""
        check_ships("the combine function of fold", combine)
        name = options.name or self._draft.free_name("fold")
        named = {
            "on_error": options.on_error,
            "state_version": options.state_version,
            "migrate": options.migrate,
        }
        ends = [
            end._replace(grouping=Grouping(Rule.PARTIAL_KEY, end.grouping.function))
            for end in self._ends
            if end.grouping is not None
        ]
        parts = KeyedStream(self._draft, ends, self._time).fold(
            function,
            initial=initial,
            name=f"{name}, in parts",
            parallelism=options.parallelism,
            **named,  # type: ignore[arg-type]
        )
        return parts.key_by(itemgetter(0)).fold(
            operators.Combining(combine),
            name=name,
            **named,  # type: ignore[arg-type]
        )

    @property
    def _keys(self) -> list[KeyFunction | None]:
        """How to read keys: one function, or several if keyed streams were merged."""
        functions: list[KeyFunction | None] = []
        for end in self._ends:
            assert end.grouping is not None
            if end.grouping.function not in functions:
                functions.append(end.grouping.function)
        return functions

    def _by_key(self) -> list[list[End]]:
        """A port for each of these functions."""
        return [
            [end for end in self._ends if end.grouping and end.grouping.function == function]
            for function in self._keys
        ]

    def window(
        self, window: Window, *, time: str = "event", lateness_s: float = 0.0
    ) -> WindowedStream:
        """Cut each key's records into windows: `tumbling`, `sliding` or `session`.

        In event time a window is over when a watermark reaches its end; `event_time` says how
        records carry it. In processing time (`time="processing"`) records are as old as the wall
        clock says when they arrive, and the same clock ends windows: in seconds since 1970.

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
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
        state_version: int = 0,
        migrate: Migrate | None = None,
    ) -> Stream:
        """`function(left, right)` for all pairs of equal keys at most `within_s` apart in time.

        A pair comes out as soon as both are there. With `how="left"`, a left record without any
        match comes out as `function(left, None)` when none can come any more; with "outer", those
        of the right do too.

        In event time both streams need `event_time`, and all pairs of records that are not late
        are found; a late one still meets what is kept, and if nothing can be kept any more it is
        counted and goes to `late()`. In processing time, what counts is when they arrive.

        `state_version` and `migrate(key, record, version)` are as for `scan`, of each record that
        is kept, of either side.
        """
        check_seconds("within_s of a join", within_s, zero=True)
        kind = arguments.join_kind(how)
        for side, stream in (("left", self), ("right", right)):
            ends = stream._ends if isinstance(stream, KeyedStream) else []
            if not any(end.grouping and end.grouping.rule is Rule.KEY for end in ends):
                raise TopologyError(f"the {side} side of a join must come from .key_by(...)")
            if len(stream._keys) > 1:
                raise TopologyError(
                    f"the {side} side of a join is merged of streams with different keys; call"
                    " .key_by(...) behind the merge"
                )
        if right._draft is not self._draft:
            raise TopologyError("a join got two streams of different topologies")
        times_of = (
            arguments.time_function("a join (left side)", time, self._time),
            arguments.time_function("a join (right side)", time, right._time),
        )
        logic = Join((self._keys[0], right._keys[0]), times_of, within_s, function, kind)
        migration = MigratingRecords(migrate) if callable(migrate) else migrate
        options = Options(name, parallelism, on_error, state_version, migration)
        ports = [self._ends, right._ends]
        joined = self._then("join", logic, function, options, outputs=(MAIN, LATE), ports=ports)
        joined._time = unread_of([self, right])
        return joined
