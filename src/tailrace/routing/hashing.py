"""A hash of keys that is the same in every process, on every machine, in every run."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum, Flag
from numbers import Number
from typing import Any
from uuid import UUID
from zlib import crc32

_MICROSECOND = timedelta(microseconds=1)


def stable_hash(key: Hashable) -> int:
    """A number from 0 to 2**32 - 1 for a key.

    Keys that are equal have the same hash, as in a dict: ``1``, ``1.0`` and ``True`` are one key.
    Keys may be str, bytes, numbers, None, dates, times and timedeltas, UUIDs, members of enums,
    scalars of numpy, and tuples, frozensets and frozen dataclasses (or msgspec structs) of those;
    others raise a TypeError, because Python gives them no hash that would be the same elsewhere.

    >>> stable_hash("a"), stable_hash(("a", 1)) == stable_hash(("a", 1.0))
    (3904355907, True)
    """
    kind = type(key)
    if kind is str:
        return crc32(key.encode("utf-8", "surrogatepass"))  # type: ignore[attr-defined]
    if isinstance(key, bytes):
        return crc32(key, 1)
    if isinstance(key, Number):
        if key != key:
            return 0x6E616E  # Python hashes each nan by its address
        # Python's hash of numbers is the same everywhere; spread it, for keys are often 0, 1, 2.
        return (hash(key) * 0x9E3779B97F4A7C15 >> 32) & 0xFFFFFFFF
    if key is None:
        return 0x6E6F6E65
    if isinstance(key, tuple):
        combined = len(key)
        for part in key:
            combined = crc32(stable_hash(part).to_bytes(4, "little"), combined)
        return combined
    if isinstance(key, str):
        return crc32(str.encode(key, "utf-8", "surrogatepass"))  # whatever its own str() says
    if isinstance(key, datetime) and key.utcoffset() is not None:
        key = key.astimezone(UTC)
    if isinstance(key, date) or (isinstance(key, time) and key.utcoffset() is None):
        return crc32(key.isoformat().encode(), 2)
    return _hash_of_others(key)


def _hash_of_others(key: Any) -> int:
    kind: Any = type(key)
    if isinstance(key, UUID):
        return crc32(key.bytes, 3)
    if isinstance(key, timedelta):
        return _combined("timedelta", [key // _MICROSECOND])
    if isinstance(key, time):  # equal ones of other zones are equal keys
        since = timedelta(
            hours=key.hour, minutes=key.minute, seconds=key.second, microseconds=key.microsecond
        )
        return _combined("time", [(since - (key.utcoffset() or timedelta())) // _MICROSECOND])
    if isinstance(key, Enum) and kind.__eq__ is object.__eq__:
        return _combined(kind.__qualname__, [key.value if isinstance(key, Flag) else key.name])
    if isinstance(key, frozenset):
        parts = sorted(stable_hash(part) for part in key)
        return _combined("frozenset", parts)
    fields_of = _fields_of(key)
    if fields_of is not None:
        if kind.__eq__ is object.__eq__:
            raise TypeError(
                f"a key of type {kind.__name__} is equal to itself only, and arrives as another"
                f" object elsewhere; have its `__eq__` compare fields (got {key!r})"
            )
        return _combined(kind.__qualname__, [getattr(key, name) for name in fields_of])
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(key, numpy.bool_):
        return stable_hash(bool(key))
    if numpy is not None and isinstance(key, numpy.datetime64 | numpy.timedelta64):
        return _combined(key.dtype.kind, [int(key.astype(f"{key.dtype.kind}8[ns]").astype("i8"))])
    raise TypeError(
        f"a key of type {kind.__name__} has no hash that is the same in every process; use str,"
        " bytes, numbers, dates, UUIDs, enums, None, or tuples, frozensets or frozen dataclasses of"
        f" them (got {key!r})"
    )


def _fields_of(key: Any) -> list[str] | None:
    """What a frozen dataclass or struct is compared by."""
    kind: Any = type(key)
    if is_dataclass(key) and kind.__dataclass_params__.frozen:
        return [field.name for field in fields(key) if field.compare]
    if getattr(getattr(kind, "__struct_config__", None), "frozen", False):
        return list(kind.__struct_fields__)
    return None


def _combined(name: str, parts: list[Any]) -> int:
    return stable_hash((name, *parts))


def key_error(key: Hashable, error: Exception) -> Exception:
    """The error of who looked for a key, or what is wrong with the key if that may be why.

    Whoever looks for a key that Python cannot hash hears only that, and not what to do.
    """
    if isinstance(error, TypeError):
        try:
            stable_hash(key)
        except Exception as told:
            return told
    return error
