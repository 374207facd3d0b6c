"""Keys as JSON, and back: the same key, with the same hash."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

_PLAIN = (str, int, bool, type(None))
_MICROSECOND = timedelta(microseconds=1)

_TO: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda key: b64encode(key).decode()),
    float: ("float", float.hex),
    tuple: ("tuple", lambda key: [key_to_json(part) for part in key]),
    frozenset: ("set", lambda key: [key_to_json(part) for part in key]),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("us", lambda key: key // _MICROSECOND),
    UUID: ("uuid", str),
}
_FROM: dict[str, Callable[[Any], Hashable]] = {
    "bytes": b64decode,
    "float": float.fromhex,
    "tuple": lambda parts: tuple(key_from_json(part) for part in parts),
    "set": lambda parts: frozenset(key_from_json(part) for part in parts),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "us": lambda count: timedelta(microseconds=count),
    "uuid": UUID,
}


def key_to_json(key: Hashable) -> Any:
    """A key as plain JSON values. Raises TypeError if it has another type than these.

    >>> key_to_json("a"), key_to_json(("a", 2.5))
    ('a', {'tuple': ['a', {'float': '0x1.4000000000000p+1'}]})
    """
    if type(key) in _PLAIN:
        return key
    known = _TO.get(type(key))
    if known is None:
        raise TypeError(
            f"a key of type {type(key).__name__} has no JSON; tables are saved with keys of str,"
            f" bytes, numbers, dates, UUIDs, None, and tuples and frozensets of them (got {key!r})"
        )
    name, convert = known
    return {name: convert(key)}


def key_from_json(saved: Any) -> Hashable:
    """The key that `key_to_json` made it of."""
    if isinstance(saved, dict):
        if len(saved) == 1:
            ((name, value),) = saved.items()
            if name in _FROM:
                return _FROM[name](value)
    elif isinstance(saved, _PLAIN):
        return saved
    raise ValueError(f"{saved!r} is no key as it is saved")
