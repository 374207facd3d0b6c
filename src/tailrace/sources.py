"""Where records come from: `topology.source(sources.lines("access.log"))`.

An iterable is a source too: `topology.source([1, 2, 3])`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, overload

from tailrace.connectors.files import Files
from tailrace.connectors.framing import MOST_LINE_BYTES, Json, Text
from tailrace.connectors.generate import Bursts, Constant, Generate, Poisson
from tailrace.connectors.memory import Items
from tailrace.connectors.sockets import Connect, Listen
from tailrace.graph.model import Record
from tailrace.runtime.source import Source

__all__ = [
    "bursts",
    "dataframe",
    "items",
    "journaled",
    "lines",
    "listen",
    "ndjson",
    "parquet",
    "poisson",
    "rate",
    "socket",
    "unpaced",
]

if TYPE_CHECKING:
    from tailrace.connectors.parquet_source import ParquetFiles
    from tailrace.spark.dataframe import DataFrameSource

Make = Callable[[int], Record] | Iterable[Record] | None


def items(records: Iterable[Record]) -> Items:
    """The given records, then the end."""
    return Items(list(records))


def lines(
    path: str | PathLike[str],
    *,
    follow: bool = False,
    from_end: bool = False,
    look_ms: float = 10.0,
    scan_ms: float = 200.0,
    most_line_bytes: int = MOST_LINE_BYTES,
    most_files: int = 1024,
    split_bytes: int = 1 << 20,
) -> Files:
    """The lines of a file, of a directory's files, or of those that match a pattern.

    A file is a split: which instance reads it follows from its path, so parallelism pays with
    several files or large ones. A line that is too long fails the job and is named. See
    `tailrace.connectors.files.Files`.

    Parameters
    ----------
    follow : go on as the files grow, rotate and appear; the source then has no end
    from_end : leave out what files hold when the job starts
    look_ms, scan_ms : how often to look for more lines, and for new and rotated files
    most_line_bytes : the longest line
    most_files : that one instance may follow at the same time
    split_bytes : files of twice that and more, read once, are cut into ranges for several instances
    """
    return Files(
        fspath(path),
        Text(),
        follow,
        from_end,
        look_ms,
        scan_ms,
        most_line_bytes,
        most_files,
        split_bytes,
    )


def ndjson(
    path: str | PathLike[str],
    type: Any = Any,
    *,
    follow: bool = False,
    from_end: bool = False,
    look_ms: float = 10.0,
    scan_ms: float = 200.0,
    most_line_bytes: int = MOST_LINE_BYTES,
    most_files: int = 1024,
    split_bytes: int = 1 << 20,
) -> Files:
    """Like `lines`, each a JSON value; of a `type` if one is given (a dataclass, a struct ...).

    A line that is not JSON, or not of the type, fails the job and is named by file and line.
    """
    return Files(
        fspath(path),
        Json(type),
        follow,
        from_end,
        look_ms,
        scan_ms,
        most_line_bytes,
        most_files,
        split_bytes,
    )


def parquet(
    path: str | PathLike[str],
    record: Callable[[dict[str, Any]], Record] | None = None,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = 4096,
) -> ParquetFiles:
    """The rows of a Parquet file, of a directory's files, or of those that match a pattern.

    A row is a record: the value itself if there is one column, a dict if there are several;
    `record` makes something else of the dict. Without Spark: for a table, `sources.dataframe`.

    Parameters
    ----------
    columns : to read only these
    batch_rows : so many rows are held in memory for one instance, beside a column's page
    """
    from tailrace.connectors.parquet_source import ParquetFiles  # pyarrow takes a while to import

    return ParquetFiles(
        fspath(path), record, None if columns is None else tuple(columns), batch_rows
    )


def rate(
    per_s: float,
    make: Make = None,
    *,
    count: int | None = None,
    seconds: float | None = None,
    shares: int | None = None,
) -> Generate:
    """So many records per second, at even distances: `make(i)`, or the records of a collection.

    The latency of a record that comes late counts from when it was due. Instance i of n takes
    every n-th record; with `shares` there are so many splits, whatever the parallelism.

    >>> import tailrace as tr
    >>> from tailrace.testing import collect, run
    >>> topology = tr.Topology()
    >>> squares = collect(topology.source(rate(2, lambda i: i * i, seconds=3)))
    >>> run(topology).virtual_s
    2.5
    >>> squares
    [0, 1, 4, 9, 16, 25]
    """
    return Generate(make, Constant(per_s), count, seconds, shares)


def poisson(
    per_s: float,
    make: Make = None,
    *,
    count: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    shares: int | None = None,
) -> Generate:
    """So many per second on average, at random distances: as independent visitors come."""
    return Generate(make, Poisson(per_s, seed), count, seconds, shares)


def bursts(
    size: int,
    every_s: float,
    make: Make = None,
    *,
    count: int | None = None,
    seconds: float | None = None,
    shares: int | None = None,
) -> Generate:
    """`size` records at once, every `every_s` seconds."""
    return Generate(make, Bursts(size, every_s), count, seconds, shares)


def unpaced(
    make: Make = None,
    *,
    count: int | None = None,
    seconds: float | None = None,
    shares: int | None = None,
) -> Generate:
    """As fast as they are taken."""
    return Generate(make, None, count, seconds, shares)


@overload
def socket(
    host: str,
    port: int,
    *,
    json: bool = False,
    reconnect: bool = True,
    most_line_bytes: int = MOST_LINE_BYTES,
    journal: Literal[False] = False,
) -> Connect: ...
@overload
def socket(
    host: str,
    port: int,
    *,
    json: bool = False,
    reconnect: bool = True,
    most_line_bytes: int = MOST_LINE_BYTES,
    journal: bool,
) -> Source: ...
def socket(
    host: str,
    port: int,
    *,
    json: bool = False,
    reconnect: bool = True,
    most_line_bytes: int = MOST_LINE_BYTES,
    journal: bool = False,
) -> Source:
    """Lines (or JSON values) from a server. See `tailrace.connectors.sockets.Connect`.

    With `journal`, a job with checkpoints logs lines there before it processes them, and loses none
    that was logged: see `journaled`.
    """
    source = Connect(host, port, Json() if json else Text(), reconnect, most_line_bytes)
    return journaled(source) if journal else source


@overload
def listen(
    port: int,
    host: str = "127.0.0.1",
    *,
    json: bool = False,
    most_connections: int = 64,
    most_line_bytes: int = MOST_LINE_BYTES,
    journal: Literal[False] = False,
) -> Listen: ...
@overload
def listen(
    port: int,
    host: str = "127.0.0.1",
    *,
    json: bool = False,
    most_connections: int = 64,
    most_line_bytes: int = MOST_LINE_BYTES,
    journal: bool,
) -> Source: ...
def listen(
    port: int,
    host: str = "127.0.0.1",
    *,
    json: bool = False,
    most_connections: int = 64,
    most_line_bytes: int = MOST_LINE_BYTES,
    journal: bool = False,
) -> Source:
    """Lines (or JSON values) from whoever connects, by default on this host alone.

    With `journal`, a job with checkpoints logs lines there before it processes them, and loses none
    that was logged: see `journaled`. See `tailrace.connectors.sockets.Listen`.
    """
    source = Listen(port, host, Json() if json else Text(), most_connections, most_line_bytes)
    return journaled(source) if journal else source


def journaled(source: Source) -> Source:
    """A source that cannot be read again, with a journal: for exactly once.

    In a job with checkpoints its records are logged in their folder before they are processed, many
    at once if many come: each waits for about two writes to that storage. After a failure they are
    read from there. What had not been logged is lost. Without checkpoints it is the source itself.
    See `tailrace.connectors.journal.Journaled`.
    """
    from tailrace.connectors.journal import Journaled

    return Journaled(source)


def dataframe(
    df: Any,
    record: Callable[[dict[str, Any]], Record] | None = None,
    *,
    trigger: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    output_mode: str = "append",
) -> DataFrameSource:
    """The rows of a Spark DataFrame, bounded or streaming, for `topology.start(spark)`.

    A row is a record: the value itself if there is one column, a dict if there are several;
    `record` makes something else of the dict. Spark's tasks push the rows to the workers, and wait
    while the topology is slow. This needs a task slot that is not a worker's; several can share it.

    Partition p of the DataFrame goes to instance p modulo the parallelism, in order. A task that
    Spark runs again delivers no row twice, if it computes the same rows as before. A bounded
    DataFrame ends its source. So does a streaming query that ends; while it runs, a micro-batch
    counts as done for Spark (and its `checkpoint`) when all its rows are in the topology. So a new
    job with the same `checkpoint` may get the rows of the last micro-batch again. It misses none if
    the job before was drained; what was still under way when a job failed is lost.

    In a job with checkpoints every row counts exactly once: a micro-batch is done for Spark when an
    epoch that holds all of its rows is committed; when workers are lost, Spark computes again what
    no epoch holds, and must compute the same rows. Its own `checkpoint` is then in their folder
    unless one is given.

    Parameters
    ----------
    trigger : when to look for rows, as for `DataStreamWriter.trigger`: `{"availableNow": True}`;
        by default as soon as the last micro-batch is done
    checkpoint : where Spark notes how far a streaming query got
    output_mode : "append", or "update" for streaming aggregations
    """
    from tailrace.spark.dataframe import DataFrameSource

    return DataFrameSource(df, record, trigger, checkpoint, output_mode)
