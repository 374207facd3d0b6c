"""Python values as columns of Arrow, without changing any on the way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from numbers import Integral, Number
from typing import Any

import pyarrow as pa


def column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """The values as a column of the field's type; ValueError if one does not fit.

    Stricter than pyarrow, which cuts off what is behind the point of a number and takes a datetime
    without a time zone to be in UTC.

    >>> column([1, None], pa.field("n", pa.int64())).to_pylist()
    [1, None]
    >>> column([1.5], pa.field("n", pa.int64()))
    Traceback (most recent call last):
    ValueError: column 'n' is int64; a value is a float
    """
    try:
        made = pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {field.name!r} is {field.type}: {error}") from error
    if problem := _changed(values, field.type):
        raise ValueError(f"column {field.name!r} is {field.type}; {problem}")
    return made


def _changed(values: Sequence[Any], kind: pa.DataType) -> str | None:
    """What pyarrow has changed in values that it took."""
    types = pa.types
    if types.is_integer(kind):
        for found in set(map(type, values)):
            if issubclass(found, Number) and not issubclass(found, Integral):
                return f"a value is a {found.__name__}"
    elif types.is_timestamp(kind) and kind.tz is not None:
        for value in values:
            if isinstance(value, datetime) and value.utcoffset() is None:
                return f"{value} has no time zone: give it one, or the column a type without"
    elif types.is_struct(kind):
        rows = [dict(value) for value in values if value is not None]
        for part in kind:
            if problem := _changed([row.get(part.name) for row in rows], part.type):
                return problem
    elif types.is_map(kind):
        maps = [value for value in values if value is not None]
        pairs = [pair for one in maps for pair in (one.items() if isinstance(one, dict) else one)]
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        return _changed(keys, kind.key_type) or _changed(items, kind.item_type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = [one for value in values if value is not None for one in value]
        return _changed(inner, kind.value_type)
    return None
