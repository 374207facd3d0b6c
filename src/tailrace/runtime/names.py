"""Which records have names for what is in them, and which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass

from tailrace.graph.model import Record


def names_of(record: Record) -> list[str] | None:
    """The names of what is in a record; None if it has none.

    Dicts, dataclasses, NamedTuples, msgspec structs and Spark's Rows have names.

    >>> names_of({"a": 1}), names_of((1, 2)), names_of(3)
    (['a'], None, None)
    """
    if isinstance(record, dict):
        return list(record)
    if isinstance(record, type):
        return None
    if is_dataclass(record):
        return [field.name for field in fields(record)]
    found: Iterable[str] | None = getattr(record, "__struct_fields__", None)
    if isinstance(record, tuple):
        found = getattr(record, "_fields", None) or getattr(record, "__fields__", None)
    return None if found is None else list(found)
