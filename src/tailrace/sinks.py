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


def text(path: str | PathLike[str], *, overwrite: bool = False) -> LineFiles:
    """`str(record)` as lines, into one file per instance in the directory `path`.

    The files appear, whole, when the input has ended; an instance that fails leaves none.
    """
    return LineFiles(fspath(path), Text(), overwrite)


def ndjson(path: str | PathLike[str], *, overwrite: bool = False) -> LineFiles:
    """Like `text`, each line a JSON value."""
    return LineFiles(fspath(path), Json(), overwrite)


def parquet(path: str | PathLike[str], schema: Any = None, **options: Any) -> Parquet:
    """Rows (dicts or tuples) into one Parquet file per instance in the directory `path`.

    The files appear, whole, when the input has ended; an instance that fails leaves none. With
    `every_s` or `every_rows` there are many, each of which appears when it is time: for jobs that
    never end. Without a schema, the first rows give one; with `every_s` they may be few, so give
    it. See `tailrace.connectors.parquet.Parquet`.
    """
    from tailrace.connectors.parquet import Parquet  # pyarrow takes a while to import

    return Parquet(fspath(path), schema, **options)


def socket(host: str, port: int, *, json: bool = False, timeout_s: float = 10.0) -> Send:
    """Lines (or JSON values) to a server, over one connection per instance."""
    return Send(host, port, Json() if json else Text(), timeout_s)
