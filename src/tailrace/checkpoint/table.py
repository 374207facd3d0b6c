"""State as Arrow record batches. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from tailrace.checkpoint.showing import Row, as_pickle, as_text

_BATCH_ROWS = 10_000

SCHEMA = pa.schema(
    [
        pa.field("operator", pa.string(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("key_pickle", pa.binary()),
        pa.field("value_pickle", pa.binary()),
        pa.field("epoch", pa.int64(), nullable=False),
    ]
)
"""Of the batches; a shared state has no key. Pickles are null where a class is not to be had."""


def batches(rows: Iterable[Row], epoch: int) -> Iterator[Any]:
    """The rows of an epoch, 10,000 at a time."""
    left = iter(rows)
    while some := list(islice(left, _BATCH_ROWS)):
        keyed = [row.kind == "keyed" for row in some]
        pairs = list(zip(some, keyed, strict=True))
        columns = [
            [row.operator for row in some],
            [row.index for row in some],
            [row.kind for row in some],
            [as_text(row.key) if has_key else None for row, has_key in pairs],
            [as_text(row.value) for row in some],
            [as_pickle(row.key) if has_key else None for row, has_key in pairs],
            [as_pickle(row.value) for row in some],
            [epoch] * len(some),
        ]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
