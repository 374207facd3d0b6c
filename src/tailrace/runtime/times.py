"""Moments as users write them, and as the engine keeps them: whole nanoseconds.

Inside, a time is an int, so that sums and differences are exact and every comparison is made one
way. Only here numbers become nanoseconds, and nanoseconds what users get to see.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Integral, Real
from typing import Any

from tailrace.graph.validate import TopologyError
from tailrace.runtime.hot import seconds_to_ns
from tailrace.runtime.markers import BEGINNING, IDLE

Moment = Any
"""What a time function may give: see `to_ns`."""

SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS_NS = {"s": SECOND_NS, "ms": 1_000_000, "us": 1000, "ns": 1}


def to_ns(moment: Moment) -> int:
    """A moment in nanoseconds, from whatever the user counts from.

    Numbers are seconds. Floats are taken to the nearest nanosecond, and beyond two million
    seconds (as since 1970) to the nearest microsecond, which is what they hold; so what is written
    with a few digits behind the point is exact. Datetimes, and timestamps of numpy, pandas and
    Arrow, count from 1970 in UTC, timedeltas from zero. A datetime without a time zone is refused,
    since it is not known which moment it means; numpy's, and Arrow's without one, are in UTC.

    >>> to_ns(1.3) - to_ns(0.3), to_ns(1_700_000_000.1)
    (1000000000, 1700000000100000000)
    >>> to_ns(datetime(1970, 1, 1, 0, 0, 1))
    Traceback (most recent call last):
    ValueError: the event time is 1970-01-01 00:00:01, without a time zone: add .replace(tzinfo=...)
    """
    found = seconds_to_ns(moment)
    if found is not None:
        return found
    if isinstance(moment, float) and not isfinite(moment):
        raise ValueError(f"the event time is {moment!r}; it must be a finite number")
    found = None if type(moment) in (int, float) else _convert(moment)
    if found is None or not BEGINNING < found < IDLE:
        raise ValueError(
            f"the event time is {moment!r}, 292 years or more from zero; it must be in seconds:"
            " divide it if it is in milliseconds, or the like"
        )
    return found


def _convert(moment: Moment) -> int:
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(
                f"the event time is {moment}, without a time zone: add .replace(tzinfo=...)"
            )
        micros = (moment - _EPOCH) // _MICROSECOND
        return micros * 1000 + getattr(moment, "nanosecond", 0)  # pandas has those
    if isinstance(moment, timedelta):
        return moment // _MICROSECOND * 1000 + getattr(moment, "nanoseconds", 0)
    numpy = sys.modules.get("numpy")  # not imported: then it is none of theirs
    if numpy is not None and isinstance(moment, numpy.datetime64 | numpy.timedelta64):
        if numpy.isnat(moment):
            raise ValueError("the event time is NaT; it must be a moment")
        unit, step = numpy.datetime_data(moment.dtype)
        known = unit in _UNITS_NS  # else days and the like, which ns hold for 292 years
        return (
            int(moment.astype(numpy.int64)) * step * _UNITS_NS[unit]
            if known
            else int(moment.astype(f"{moment.dtype.kind}8[ns]").astype(numpy.int64))
        )
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(moment, arrow.TimestampScalar | arrow.DurationScalar):
        if moment.value is None:
            raise ValueError("the event time is null; it must be a moment")
        return int(moment.value * _UNITS_NS[moment.type.unit])
    if isinstance(moment, Integral):
        return int(moment) * SECOND_NS
    if isinstance(moment, Decimal | Fraction):
        return round(moment * SECOND_NS)
    if isinstance(moment, Real):
        return to_ns(float(moment))
    raise TypeError(
        f"the event time is {moment!r}, a {type(moment).__name__}; it must be a number of seconds,"
        " a datetime with a time zone, or a timestamp of numpy, pandas or Arrow"
    )


def is_dated(moment: Moment) -> bool:
    """Whether it says a date, so that results should, too; not so numbers and timedeltas."""
    if isinstance(moment, datetime):
        return True
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    return (numpy is not None and isinstance(moment, numpy.datetime64)) or (
        arrow is not None and isinstance(moment, arrow.TimestampScalar)
    )


def shown(time_ns: int, dated: bool) -> int | float | datetime:
    """A time as users see it: a datetime in UTC, or seconds: an int if they are whole.

    >>> shown(5_000_000_000, False), shown(1_500_000_000, False)
    (5, 1.5)
    """
    if dated:
        return _EPOCH + timedelta(microseconds=time_ns // 1000)
    whole, rest = divmod(time_ns, SECOND_NS)
    return time_ns / SECOND_NS if rest else whole


def check_seconds(what: str, seconds: object, *, zero: bool = False) -> None:
    """Raise a TopologyError unless it is a positive (or zero) finite number of seconds."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not isfinite(seconds)
        or not (0 if zero else 1) <= seconds * 1e9 < IDLE
    ):
        least = "zero or more" if zero else "more than zero (a nanosecond at least)"
        raise TopologyError(f"{what} is {seconds!r}; it must be a number of seconds, {least}")
