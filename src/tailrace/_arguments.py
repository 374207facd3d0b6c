"""Whether what a stream's methods are given makes sense; a TopologyError says what would."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from tailrace.graph.model import OnError
from tailrace.graph.validate import TopologyError
from tailrace.runtime.event_time import TimeFunction, unread
from tailrace.runtime.join import JoinKind
from tailrace.runtime.times import check_seconds
from tailrace.runtime.ttl import By, TimeToLive
from tailrace.runtime.windows import Session, Sliding

OnErrorName = Literal["fail", "skip", "dead letter"]
"""What becomes of a record whose processing raises."""


Migrate = Callable[[Any, Any, int], Any]
"""(key, value, state_version) -> value: what an earlier version kept, as it is kept now."""


class Options(NamedTuple):
    """What all operators take."""

    name: str | None = None
    parallelism: int | None = None
    on_error: OnErrorName = "fail"
    state_version: int = 0
    migrate: Migrate | None = None

    def given(self) -> list[str]:
        """Those that differ from the default."""
        defaults = Options()
        return [one for one in self._fields if getattr(self, one) != getattr(defaults, one)]


def error_policy(name: str, on_error: str) -> OnError:
    """What `on_error` of the operator with this name means."""
    policies = {policy.value: policy for policy in OnError}
    if on_error not in policies:
        raise TopologyError(
            f"on_error of {name!r} is {on_error!r}; it must be one of {list(policies)}"
        )
    return policies[on_error]


def time_to_live(
    ttl_s: float | None, ttl_by: By, declared: TimeFunction | None
) -> TimeToLive | None:
    """How long keys live; None: for ever. `declared` is what is known of the stream's time."""
    if ttl_s is None:
        if ttl_by != "clock":
            raise TopologyError(f"ttl_by is {ttl_by!r}, but there is no ttl_s")
        return None
    try:
        ttl = TimeToLive(ttl_s, ttl_by)
    except ValueError as error:
        raise TopologyError(str(error)) from None
    if ttl_by == "event" and declared is None:
        raise TopologyError(
            "ttl_by='event' needs event time: call .event_time(...) on the stream before, or use"
            " ttl_by='clock'"
        )
    return ttl


def check_version(name: str, state_version: object, migrate: object) -> None:
    """A version is a whole number; what migrates is a function."""
    if isinstance(state_version, bool) or not isinstance(state_version, int) or state_version < 0:
        raise TopologyError(
            f"state_version of {name!r} is {state_version!r}; it must be a whole number, at least 0"
        )
    if migrate is not None and not callable(migrate):
        raise TopologyError(
            f"migrate of {name!r} is {migrate!r}; it must be a function of key, value and version"
        )


def check_async_map(function: Any, concurrency: object, timeout_s: float | None) -> None:
    """A coroutine function, a whole number, and a time or none are needed."""
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


def check_schema(schema: object) -> None:
    """None, or a schema of Arrow, which is imported only then."""
    if schema is not None:
        import pyarrow as pa

        if not isinstance(schema, pa.Schema):
            raise TopologyError(f"schema of map_arrow is {schema!r}; it must be a pyarrow.Schema")


def check_window(window: object, lateness_s: float, time: str) -> None:
    """A window, and a lateness that there can be by this time."""
    if not isinstance(window, Sliding | Session):
        raise TopologyError(
            f"window() got {window!r}; it needs tumbling(...), sliding(...) or session(...)"
        )
    check_seconds("lateness_s of a window", lateness_s, zero=True)
    if lateness_s and time == "processing":
        raise TopologyError(
            f"lateness_s of a window is {lateness_s}, but nothing is late in processing time"
        )


def join_kind(how: str) -> JoinKind:
    """What `how` of a join means."""
    kinds = {kind.value: kind for kind in JoinKind}
    if how not in kinds:
        raise TopologyError(f"how of a join is {how!r}; it must be one of {list(kinds)}")
    return kinds[how]


def time_function(what: str, time: str, declared: TimeFunction | None) -> TimeFunction | None:
    """How `what` reads the event time of its records; None for processing time.

    `declared` is what `event_time` has said of the stream.
    """
    if time == "processing":
        return None
    if time != "event":
        raise TopologyError(f"time of {what} is {time!r}; it must be 'event' or 'processing'")
    if declared is None:
        raise TopologyError(
            f"{what} needs the event time of its records: call .event_time(...) on the stream"
            " before, or use time='processing'"
        )
    if declared is unread:
        raise TopologyError(
            f"{what} cannot read the event time of its records, which have changed since it was"
            " declared: call .event_time(function) behind the last operator that changes them"
        )
    return declared
