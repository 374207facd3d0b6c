"""The state of a checkpoint as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tailrace.checkpoint.folder import Folder, folder_at
from tailrace.checkpoint.sections import Section, chains
from tailrace.checkpoint.showing import chosen, rows
from tailrace.checkpoint.store import Store
from tailrace.spark.cluster import cluster_of

_SCHEMA = (
    "operator string, index int, kind string, key string, value string,"
    " key_pickle binary, value_pickle binary, epoch bigint"
)


def read_state(spark: Any, folder: str | Path | Folder, epoch: int | None = None) -> Any:
    """What the operators of a job remember, as a DataFrame; of the newest epoch, or of that one.

    Each key of an operator is a row: `operator`, `index` of the instance that wrote it, `kind`
    ("keyed", or "shared" for what an instance keeps beside keys, without a key), `key` and `value`
    as text, `key_pickle` and `value_pickle`, `epoch`. A text is itself, what JSON knows is JSON,
    all else is as Python shows it; objects of classes that executors cannot import are shown by
    their parts, and have no pickle.

    Executors read the folder, one task for each instance of an operator, whenever the DataFrame is
    evaluated: by then the job may have swept the epoch away, if it runs on. A damaged file fails
    the task that reads it, with its name.
    """
    opened = folder_at(folder) if isinstance(folder, (str, Path)) else folder
    manifest = chosen(Store(opened), epoch, verify=False)
    parts = [tuple(chain) for chain in chains(manifest.sections).values()]
    cluster = cluster_of(spark)
    with cluster.python():
        if not parts:
            return spark.createDataFrame([], _SCHEMA)
        numbers = spark.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(_reader(opened, manifest.epoch, parts), _SCHEMA)


def _reader(
    folder: Folder, epoch: int, parts: list[tuple[Section, ...]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A task: for each number that comes, the state in that part."""

    def read(numbers: Iterator[Any]) -> Iterator[Any]:
        from tailrace.checkpoint.table import batches

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches(rows(folder, parts[number]), epoch)

    return read
