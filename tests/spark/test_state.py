"""The state of a checkpoint as a DataFrame."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tailrace.checkpoint.errors import CheckpointError
from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.manifest import Manifest, chained, data_name
from tailrace.checkpoint.sections import FORGOTTEN, EpochFile, encode_block, encode_shared
from tailrace.checkpoint.store import Store
from tailrace.spark.state import read_state


def write(store: Store, epoch: int, pairs: dict[Any, Any], last: Manifest | None) -> Manifest:
    """Each pair to one of two instances."""
    file = EpochFile(data_name(epoch, 1, 0, 0))
    for index in (0, 1):
        mine = [pair for number, pair in enumerate(pairs.items()) if number % 2 == index]
        kind = "delta" if last else "full"
        file.add("count", index, kind, [encode_block(mine)], len(mine))  # type: ignore[arg-type]
    file.add_shared("window", 0, encode_shared([epoch]))
    sections = chained(last, file.write(store.folder))
    made = Manifest(epoch, 1, 0, "4f2a", "words", 0.0, sections=sections)
    store.commit(made)
    return made


def test_state_is_a_dataframe(spark: Any, tmp_path: Path) -> None:
    store = Store(folder_at(tmp_path))
    last = write(store, 1, {f"word {number}": number for number in range(25_000)}, None)
    write(store, 2, {"word 0": FORGOTTEN, "word 1": (1, 2)}, last)
    df = read_state(spark, str(tmp_path))
    assert df.columns == [
        *("operator", "index", "kind", "key", "value", "key_pickle", "value_pickle", "epoch")
    ]
    assert df.rdd.getNumPartitions() == 3, "a task for each instance"
    df.createOrReplaceTempView("state")
    counts = spark.sql("SELECT operator, kind, count(*), max(epoch) FROM state GROUP BY ALL")
    assert {tuple(row) for row in counts.collect()} == {
        ("count", "keyed", 24_999, 2),
        ("window", "shared", 1, 2),
    }
    (one,) = df.where("key = 'word 1'").collect()
    assert (one["index"], one.value) == (1, "[1, 2]")
    assert pickle.loads(one.key_pickle) == "word 1"
    assert pickle.loads(one.value_pickle) == (1, 2)
    total = spark.sql("SELECT sum(int(value)) FROM state WHERE index = 0 AND kind = 'keyed'")
    assert total.first()[0] == sum(range(0, 25_000, 2))
    (shared,) = df.where("kind = 'shared'").collect()
    assert (shared.key, shared.value) == (None, "[2]")
    older = read_state(spark, folder_at(tmp_path), epoch=1).where("key = 'word 1'").first()
    assert (older.value, older.epoch) == ("1", 1)


def test_an_epoch_without_state_is_an_empty_dataframe(spark: Any, tmp_path: Path) -> None:
    Store(folder_at(tmp_path)).commit(Manifest(1, 1, 0, "4f2a", "words", 0.0))
    assert read_state(spark, tmp_path).count() == 0
    with pytest.raises(CheckpointError, match="there is no epoch to be read in"):
        read_state(spark, tmp_path / "nothing")


def test_a_damaged_file_is_named_by_the_task_that_reads_it(spark: Any, tmp_path: Path) -> None:
    store = Store(folder_at(tmp_path))
    write(store, 1, {"a": 1, "b": 2}, None)
    path = tmp_path / data_name(1, 1, 0, 0)
    content = bytearray(path.read_bytes())
    content[25] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=rf"'{data_name(1, 1, 0, 0)}' in '.*' is damaged"):
        read_state(spark, tmp_path).collect()
