"""Where records go: `stream.sink(sinks.console())`.

A function is a sink too: `stream.sink(print)`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, overload

from tailrace.connectors.console import Console
from tailrace.connectors.framing import Json, Text
from tailrace.connectors.memory import Call, CallWithId, RecordId
from tailrace.connectors.parts import LineFiles
from tailrace.connectors.sockets import Send
from tailrace.graph.model import Record

if TYPE_CHECKING:
    from tailrace.connectors.parquet import Parquet

__all__ = ["call", "console", "ndjson", "parquet", "socket", "text"]


@overload
def call(function: Callable[[Record], object]) -> Call: ...
@overload
def call(
    function: Callable[[Record, RecordId], object], *, with_id: Literal[True]
) -> CallWithId: ...
def call(function: Callable[..., object], *, with_id: bool = False) -> Call | CallWithId:
    """Call a function with every record, at once: at least once for each.

    After a failure a job with checkpoints goes on from its last epoch, and calls the function again
    with the records since then. `with_id` gives it what is needed to tell: `function(record, id)`,
    where `id` is a `RecordId(operator, instance, epoch, number)`.

    - `number` counts the records of an instance, from 0 when the job begins. A record that comes
      again has the same number as before if the instance has one input in one order: one instance
      of a source that rewinds before it, through operators that always give the same results (no
      clock, no timers, no async_map), each of parallelism 1 or on the way by `forward`. Then
      (operator, instance, number) can be the key of a table, and what is there already is left
      as it is.
    - With several senders, records come in another order the second time, and the number says
      nothing; nor does it when the parallelism has changed. What holds always: records of an epoch
      that was not committed come again, all of them, and none of those that were. To make use of
      that a sink must hear which epoch the job goes on from: write one with `begin` and
      `roll_back`, as examples/exactly_once_sink.py does.

    Without checkpoints `epoch` is None, and nothing comes again.

    >>> import tailrace as tr
    >>> from tailrace.testing import run
    >>> topology = tr.Topology()
    >>> topology.source("ab").sink(call(lambda record, id: print(record, id.number), with_id=True))
    >>> report = run(topology)
    a 0
    b 1
    """
    return CallWithId(function) if with_id else Call(function)


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
    none. `overwrite` replaces files of the same names. Under checkpoints there is a file for every
    epoch instead, which appears when that is committed: every line exactly once.
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
    none. Under checkpoints there are files for every epoch instead, which appear when that is
    committed: every row exactly once. See `tailrace.connectors.parquet.Parquet`.

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
