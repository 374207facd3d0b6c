"""What can be done with a stream that is cut into windows."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any

from tailrace._arguments import Migrate, OnErrorName, Options
from tailrace.graph.model import MAIN, Record
from tailrace.graph.validate import TopologyError
from tailrace.runtime.event_time import LATE, TimeFunction
from tailrace.runtime.windows import MigratingWindows, Session, Window, Windowed, append
from tailrace.spark.shippable import check_ships

if TYPE_CHECKING:
    from tailrace.keyed import KeyedStream
    from tailrace.stream import Stream


class WindowedStream:
    """A keyed stream cut into windows. What its methods give are streams of `WindowResult`.

    For operators further on, the event time of a result is the end of its window.
    """

    def __init__(
        self,
        stream: KeyedStream,
        window: Window,
        time_of: TimeFunction | None,
        lateness_s: float,
    ) -> None:
        self._stream = stream
        self._window = window
        self._time_of = time_of
        self._lateness_s = lateness_s

    def aggregate(
        self,
        function: Callable[[Any, Record], Any],
        initial: Any = None,
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
        state_version: int = 0,
        migrate: Migrate | None = None,
    ) -> Stream:
        """`state = function(state, record)` per key and window, beginning with `initial`.

        Each key and window gets a copy of `initial` of its own; a state of None is forgotten, and
        gives no result. With lateness the function must not change states in place. Sessions also
        need `merge(state, state)`, for when a record makes two of them one.

        `state_version` and `migrate(key, state, version)` are as for `scan`, of each window.
        """
        if merge is None and isinstance(self._window, Session):
            raise TopologyError(
                "sessions may grow together: give aggregate() also merge=, a function of two states"
            )
        if merge is not None:
            check_ships("the merge function of a window", merge)
        options = Options(name, parallelism, on_error, state_version, migrate)
        return self._then(function, initial, merge, None, options)

    def collect(
        self,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        on_error: OnErrorName = "fail",
        state_version: int = 0,
        migrate: Migrate | None = None,
    ) -> Stream:
        """All records of the window as a list, in the order in which they came.

        When sessions grow together, the records of the earlier one come first. `state_version` and
        `migrate(key, records, version)` are as for `scan`.
        """
        options = Options(name, parallelism, on_error, state_version, migrate)
        return self._then(append, None, add, list, options)

    def _then(self, function: Any, initial: Any, merge: Any, copy: Any, options: Options) -> Stream:
        stream = self._stream
        key, *more_keys = stream._keys
        logic = Windowed(
            self._window,
            key,
            self._time_of,
            self._lateness_s,
            function,
            initial,
            merge,
            copy,
            tuple(more_keys),
        )
        if callable(options.migrate):
            options = options._replace(migrate=MigratingWindows(options.migrate))
        time = None if self._time_of is None else attrgetter("end")
        return stream._then(
            "window",
            logic,
            function,
            options,
            outputs=(MAIN, LATE),
            time=time,
            ports=stream._by_key(),
        )
