"""Where records go: `stream.sink(sinks.console())`.

A function is a sink too: `stream.sink(print)`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from tailrace.connectors.console import Console
from tailrace.connectors.framing import Json, Text
from tailrace.connectors.memory import Call
from tailrace.connectors.parts import LineFiles
from tailrace.connectors.sockets import Send
from tailrace.graph.model import Record

if TYPE_CHECKING:
    from tailrace.connectors.parquet import Parquet

__all__ = ["call", "console", "ndjson", "parquet", "socket", "text"]


def call(function: Callable[[Record], object]) -> Call:
    """Call a function with every record."""
    return Call(function)


def console(per_s: int = 20, format: Callable[[Record], str] = str) -> Console:
    """Print records, at most `per_s` in a second, and how many were left out.

    >>> import tailrace as tr
    >>> from tailrace.testing import run
    >>> topology = tr.Topology()
    >>> topology.source("abcd").map(str.upper).sink(console(per_s=2))
    >>> report = run(topology)
    A
    B
    ... and 2 more that were not printed
    """
    return Console(per_s, format)


def text(
    path: str | PathLike[str], *, every_s: float | None = 1.0, overwrite: bool = False
) -> LineFiles:
    """`str(record)` as lines, into one file per instance in the directory `path`.

    Lines can be seen after `every_s` at the latest, and stay also if the job fails. With
    `every_s=None` the files appear, whole, when the input has ended; an instance that fails leaves
    none. `overwrite` replaces files of the same names.
    """
    return LineFiles(fspath(path), Text(), overwrite, every_s)


def ndjson(
    path: str | PathLike[str], *, every_s: float | None = 1.0, overwrite: bool = False
) -> LineFiles:
    """Like `text`, each line a JSON value; what has names (a NamedTuple, too) is an object."""
    return LineFiles(fspath(path), Json(), overwrite, every_s)


def parquet(
    path: str | PathLike[str],
    schema: Any = None,
    *,
    every_s: float | None = None,
    every_rows: int | None = None,
    overwrite: bool = False,
    compression: str = "snappy",
    group_rows: int = 32_768,
    group_bytes: int = 32 << 20,
) -> Parquet:
    """Rows into one Parquet file per instance in the directory `path`.

    A row is a dict, dataclass, NamedTuple, msgspec struct or Spark's Row, or a tuple in the order
    of the columns. The files appear, whole, when the input has ended; an instance that fails leaves
    none. See `tailrace.connectors.parquet.Parquet`.

    Parameters
    ----------
    schema : a pyarrow schema, or a dict of names and pyarrow types; without, the first rows give
        one, and with `every_s` they may be few
    every_s, every_rows : many files, each of which appears after so many seconds or with so many
        rows: for jobs that never end
    overwrite : replace files of the same names
    group_rows, group_bytes : a row group is written when it has so many rows, or takes so much
        memory, and is held in memory until then
    """
    from tailrace.connectors.parquet import Parquet  # pyarrow takes a while to import

    return Parquet(
        fspath(path),
        schema,
        group_rows=group_rows,
        group_bytes=group_bytes,
        compression=compression,
        overwrite=overwrite,
        every_s=every_s,
        every_rows=every_rows,
    )


def socket(host: str, port: int, *, json: bool = False, timeout_s: float = 10.0) -> Send:
    """Lines (or JSON values) to a server, over one connection per instance."""
    return Send(host, port, Json() if json else Text(), timeout_s)
