"""A hash of keys that is the same in every process, on every machine, in every run."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, date, datetime, time
from numbers import Number
from zlib import crc32


def stable_hash(key: Hashable) -> int:
    """A number from 0 to 2**32 - 1 for a key.

    Keys that are equal have the same hash, as in a dict: ``1``, ``1.0`` and ``True`` are one key.
    Keys may be str, bytes, numbers, None, dates and times (by `isoformat`, in UTC if they have a
    time zone), and tuples of those; others raise a TypeError, because Python gives them no hash
    that would be the same elsewhere.

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
    raise TypeError(
        f"a key of type {kind.__name__} has no stable hash; use str, bytes, numbers, dates, None or"
        f" tuples of them (got {key!r})"
    )
