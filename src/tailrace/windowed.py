"""What can be done with a stream that is cut into windows."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any

from tailrace.arguments import check_options
from tailrace.graph.model import MAIN, Record
from tailrace.graph.validate import TopologyError, check_ships
from tailrace.runtime.event_time import LATE, TimeFunction
from tailrace.runtime.windows import Session, Window, Windowed, append

if TYPE_CHECKING:
    from tailrace.stream import KeyedStream, Stream


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
        **options: Any,
    ) -> Stream:
        """`state = function(state, record)` per key and window, beginning with `initial`.

        The function must not change `initial` in place (nor, with lateness, any state). Sessions
        also need `merge(state, state)`, for when a record makes two of them one.
        """
        check_options(self, "aggregate", options)
        if merge is None and isinstance(self._window, Session):
            raise TopologyError(
                "sessions may grow together: give aggregate() also merge=, a function of two states"
            )
        if merge is not None:
            check_ships("the merge function of a window", merge)
        return self._then(function, initial, merge, None, options)

    def collect(self, **options: Any) -> Stream:
        """All records of the window as a list, in the order in which they came.

        When sessions grow together, the records of the earlier one come first.
        """
        check_options(self, "collect", options)
        return self._then(append, None, add, list, options)

    def _then(
        self, function: Any, initial: Any, merge: Any, copy: Any, options: dict[str, Any]
    ) -> Stream:
        stream = self._stream
        logic = Windowed(
            self._window,
            stream._key,
            self._time_of,
            self._lateness_s,
            function,
            initial,
            merge,
            copy,
        )
        time = None if self._time_of is None else attrgetter("end")
        return stream._then("window", logic, function, options, outputs=(MAIN, LATE), time=time)
