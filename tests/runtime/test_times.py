"""Times: exact inside, whatever users write."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.runtime.times import shown, to_ns
from tailrace.testing import collect, run

MOMENT = datetime(2026, 11, 18, 12, 0, 1, 250_000, tzinfo=UTC)
MOMENT_NS = 1_795_003_201_250_000_000


@pytest.mark.parametrize(
    "moment",
    [
        MOMENT,
        MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30))),
        pd.Timestamp(MOMENT),
        np.datetime64("2026-11-18T12:00:01.250"),
        np.datetime64("2026-11-18T12:00:01.250000000"),
        pa.scalar(MOMENT, pa.timestamp("us", "UTC")),
        pa.scalar(MOMENT.replace(tzinfo=None), pa.timestamp("ms")),
        1_795_003_201.25,
        np.float64(1_795_003_201.25),
        Decimal("1795003201.25"),
        Fraction(7_180_012_805, 4),
        MOMENT - datetime(1970, 1, 1, tzinfo=UTC),
        pa.scalar(MOMENT - datetime(1970, 1, 1, tzinfo=UTC)),
    ],
    ids=lambda moment: f"{type(moment).__module__}.{type(moment).__name__}",
)
def test_a_moment_is_the_same_whoever_writes_it(moment: Any) -> None:
    assert to_ns(moment) == MOMENT_NS


def test_nanoseconds_of_those_who_have_them_are_kept() -> None:
    assert to_ns(pd.Timestamp(MOMENT_NS + 7, tz="UTC")) == MOMENT_NS + 7
    assert to_ns(np.datetime64(MOMENT_NS + 7, "ns")) == MOMENT_NS + 7
    assert to_ns(pa.scalar(MOMENT_NS + 7, pa.timestamp("ns"))) == MOMENT_NS + 7
    assert to_ns(np.datetime64("2026-11-18")) == to_ns(datetime(2026, 11, 18, tzinfo=UTC))
    assert to_ns(np.int64(3)) == to_ns(3) == 3_000_000_000


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (MOMENT.replace(tzinfo=None), "without a time zone"),
        (float("nan"), "must be a finite number"),
        (float("inf"), "must be a finite number"),
        (1_795_003_201_250, "in milliseconds"),
        (np.datetime64("NaT"), "NaT"),
        (pa.scalar(None, pa.timestamp("us")), "null"),
        ("12:00", "a str; it must be a number of seconds, a datetime"),
        (None, "a NoneType"),
    ],
)
def test_what_is_no_moment_is_refused_with_a_remedy(moment: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        to_ns(moment)


@example(-8_838_539_878_400_001, 1)
@given(st.integers(-(2**62), 2**62), st.integers(0, 6))
def test_seconds_written_with_up_to_six_digits_are_exact(micros: int, digits: int) -> None:
    micros = micros // 1024 // 10 ** (6 - digits) * 10 ** (6 - digits)
    seconds = float(Decimal(micros) / 10**6)
    assert to_ns(seconds) == micros * 1000
    assert to_ns(shown(micros * 1000, False)) == micros * 1000


@given(st.floats(-9e9, 9e9), st.floats(-9e9, 9e9))
def test_times_are_in_the_order_of_what_was_written(one: float, other: float) -> None:
    if one <= other:
        assert to_ns(one) <= to_ns(other)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-8))])
def test_windows_over_datetimes_have_datetimes_for_bounds(zone: Any) -> None:
    start = datetime(2026, 11, 18, 12, tzinfo=UTC)
    events = [start.astimezone(zone) + timedelta(seconds=s) for s in (1, 59, 60, 125)]
    topology = tr.Topology()
    timed = topology.source(events).event_time(lambda event: event, max_delay_s=0)
    results = collect(
        timed.key_by(lambda event: "all").window(tr.tumbling(60)).aggregate(lambda n, _: n + 1, 0)
    )
    run(topology)
    minutes = [start + timedelta(minutes=n) for n in range(4)]
    assert [(r.start, r.end, r.value) for r in results] == [
        (minutes[0], minutes[1], 2),
        (minutes[1], minutes[2], 1),
        (minutes[2], minutes[3], 1),
    ]


def test_windows_of_windows_go_by_the_exact_end_of_the_first() -> None:
    topology = tr.Topology()
    base = 1_700_000_000
    timed = topology.source([base + n / 10 for n in range(20)]).event_time(float, max_delay_s=0)
    tenths = timed.key_by(lambda _: 0).window(tr.tumbling(0.1)).aggregate(lambda n, _: n + 1, 0)
    whole = tenths.key_by(lambda _: 0).window(tr.tumbling(1)).aggregate(lambda n, r: n + r.value, 0)
    results = collect(whole)
    report = run(topology)
    assert not any(report.late.values())
    assert [(r.start - base, r.value) for r in results] == [(0, 9), (1, 10), (2, 1)]


def test_a_time_that_is_none_goes_by_the_policy_of_its_operator() -> None:
    topology = tr.Topology()
    timed = topology.source([1, "soon", 2]).event_time(
        lambda event: event, max_delay_s=0, on_error="skip", name="timed"
    )
    results = collect(timed)
    report = run(topology)
    assert results == [1, 2]
    assert report.skipped["timed"] == 1
