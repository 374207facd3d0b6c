"""Tables of keys from data that is there already: a Spark job counts exactly which keys meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.routing.deciding import tables_for
from tailrace.routing.homes import Homes, side_by_side
from tailrace.routing.keygraph import ALPHA
from tailrace.routing.pairs import PairCounts
from tailrace.routing.tables import Tables

HEAVIEST = 1_000_000
"""Pairs of two columns that are taken to the driver: those that come most often."""


def key_tables(
    df: Any,
    pairs: Sequence[tuple[str, str]],
    parts: int | Homes,
    *,
    operators: Mapping[str, str] | None = None,
    heaviest: int = HEAVIEST,
    alpha: float = ALPHA,
) -> Tables:
    """Tables that keep keys together that meet in the rows of a DataFrame.

    For a topology that first goes by the key in one column and then by the key in another; rows
    are what records are like. Spark counts; only the pairs that come most often are collected, and
    the rest is known by its sum. Use them by `topology.start(spark, tables=...)`.

    Parameters
    ----------
    pairs : columns of keys that follow one another, such as [("region", "tag")]
    parts : how many workers there are, if each has one instance of each operator, or else where
        instances run: {"region": [Home(node, worker), ...], ...}
    operators : the operators that are reached by the keys of columns; by default their names are
        those of the columns
    heaviest : so many pairs of two columns are collected, at most
    alpha : no instance gets more than so many times the average, where keys allow it
    """
    if not pairs:
        raise ValueError("no pairs of columns were given; such as [('region', 'tag')]")
    named = dict(operators or {})
    columns = dict.fromkeys(column for pair in pairs for column in pair)
    if missing := [column for column in columns if column not in df.columns]:
        raise ValueError(f"there is no column {missing[0]!r}; there are {df.columns}")
    counted = [exact_pairs(df, pair, named, heaviest) for pair in pairs]
    reached = [named.get(column, column) for column in columns]
    homes = side_by_side(reached, parts) if isinstance(parts, int) else parts
    if absent := [name for name in reached if name not in homes]:
        raise ValueError(f"it is not said where {absent[0]!r} runs; parts has {sorted(homes)}")
    return tables_for(counted, homes, alpha=alpha)


def exact_pairs(
    df: Any,
    pair: tuple[str, str],
    operators: Mapping[str, str] | None = None,
    heaviest: int = HEAVIEST,
) -> PairCounts:
    """How often the keys of two columns come together, of those that do so most often."""
    from pyspark.sql import functions as f

    source, target = pair
    named = operators or {}
    counts = df.groupBy(f.col(source).alias("i"), f.col(target).alias("o")).agg(
        f.count(f.lit(1)).alias("n")
    )
    # In this order the same rows are collected in every run.
    first = counts.orderBy(f.desc("n"), "i", "o").limit(heaviest + 1).collect()
    total = df.count() if len(first) > heaviest else sum(row["n"] for row in first)
    return PairCounts(
        named.get(source, source),
        named.get(target, target),
        {(_key(row["i"]), _key(row["o"])): row["n"] for row in first[:heaviest]},
        total,
        floor=first[heaviest]["n"] if len(first) > heaviest else 0,
    )


def _key(value: Any) -> Any:
    """A column's value as the key that a record has: bytes and tuples, not bytearrays and rows."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(_key(part) for part in value)
    return value
