"""Values as columns: what does not fit is refused, and never changed."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.runtime.columns import column

NAIVE = datetime(2026, 1, 1)
PAIR = pa.struct([("n", pa.int32()), ("s", pa.string())])
COUNTS = pa.map_(pa.string(), pa.int32())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.7, pa.int64()),
        (Decimal("1.7"), pa.int64()),
        (np.float32(1.7), pa.uint8()),
        ([1, 1.7], pa.list_(pa.int64())),
        ([1.7], pa.list_(pa.int64(), 1)),
        ({"n": 1.7, "s": "x"}, PAIR),
        ({"a": 1.7}, COUNTS),
        ([("a", 1.7)], COUNTS),
        ({1.7: "a"}, pa.map_(pa.int32(), pa.string())),
        ([{"n": [1.7]}], pa.list_(pa.struct([("n", pa.list_(pa.int32()))]))),
    ],
)
def test_a_number_with_a_point_is_no_integer(value: Any, kind: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'c' is .*; a value is a (float|Decimal)"):
        column([None, value], pa.field("c", kind))


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")])
def test_a_time_without_a_zone_is_no_time_in_utc(kind: Any) -> None:
    with pytest.raises(ValueError, match="2026-01-01 00:00:00 has no time zone: give it one"):
        column([None, NAIVE], pa.field("at", kind))
    aware = NAIVE.replace(tzinfo=UTC)
    assert column([None, aware], pa.field("at", kind)).to_pylist() == [None, aware]
    assert column([NAIVE], pa.field("at", pa.timestamp("us"))).to_pylist() == [NAIVE]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.int64(2), pa.int32()),
        (1.5, pa.float64()),
        ([1, None], pa.list_(pa.int64())),
        ({"n": 1, "s": None}, PAIR),
        ([("a", 1), ("b", None)], COUNTS),
    ],
)
def test_what_fits_stays_as_it_is(value: Any, kind: Any) -> None:
    assert column([value, None], pa.field("c", kind)).to_pylist() == [value, None]


def test_what_arrow_refuses_is_told_with_the_column() -> None:
    for value in ("x", 1 << 70, [1]):
        with pytest.raises(ValueError, match="column 'n' is int64: "):
            column([value], pa.field("n", pa.int64()))
