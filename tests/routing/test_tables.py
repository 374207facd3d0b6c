"""Tables of keys: values that are saved, loaded, and lead to routes."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.routing.hashing import stable_hash
from tailrace.routing.keytext import key_from_json, key_to_json
from tailrace.routing.slots import SLOTS, Routes
from tailrace.routing.tables import Table, Tables

plain_keys = st.one_of(
    st.text(),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.times(),
    st.timedeltas(),
    st.uuids(),
)
keys = st.recursive(
    plain_keys,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=5,
)
some_tables = st.dictionaries(
    st.text(max_size=5),
    st.builds(Table, st.just(3), st.dictionaries(keys, st.integers(0, 2)), st.just((1,))),
    max_size=3,
).map(Tables)


@given(keys)
def test_a_key_comes_back_as_itself(key: Any) -> None:
    back = key_from_json(json.loads(json.dumps(key_to_json(key))))
    assert back == key
    assert type(back) is type(key)
    assert stable_hash(back) == stable_hash(key)


def test_keys_of_other_types_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="a key of type object has no JSON"):
        key_to_json(object())
    with pytest.raises(ValueError, match="is no key as it is saved"):
        key_from_json({"pickle": "gASVBAAAAAAA"})
    assert math.isnan(key_from_json(key_to_json(math.nan)))  # type: ignore[arg-type]


@given(some_tables)
def test_tables_come_back_from_json_and_arrow_as_they_were(tables: Tables) -> None:
    assert Tables.from_json(json.loads(json.dumps(tables.to_json()))) == tables
    assert Tables.from_arrow(tables.to_arrow()) == tables


@given(some_tables)
@settings(max_examples=50, deadline=None)
def test_tables_come_back_from_parquet_as_they_were(tables: Tables) -> None:
    from pyarrow import BufferOutputStream, BufferReader, parquet

    out = BufferOutputStream()
    parquet.write_table(tables.to_arrow(), out)
    back = Tables.from_arrow(parquet.read_table(BufferReader(out.getvalue())))
    assert back == tables
    for name in tables:
        for key in tables[name].keys:
            assert back[name].routes().owner(key) == tables[name].routes().owner(key)


@pytest.mark.parametrize("name", ["tables.json", "tables.parquet"])
def test_tables_come_back_from_files_as_they_were(tmp_path: Path, name: str) -> None:
    many: dict[Any, int] = {f"key {i}": i % 4 for i in range(1000)}
    rare = {(date(2026, 1, 1), 1): 2, UUID(int=7): 3, time(1): 0, timedelta(1): 1, None: 0}
    moment = {datetime(2026, 1, 1, tzinfo=UTC): 1, b"raw": 2, 2.5: 0}
    tables = Tables({"tag": Table(4, many | rare | moment, (2,)), "empty": Table(2)})
    tables.save(tmp_path / name)
    assert Tables.load(tmp_path / name) == tables
    assert len(tables) == 1008
    assert 10_000 < tables.size_bytes < 40_000


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"scheduler": "rlas"}')
    with pytest.raises(ValueError, match="tables are a JSON object of version 1, not"):
        Tables.load(path)


def test_a_table_lies_above_slots() -> None:
    routes = Table(4, {"a": 3, "b": 0}).routes()
    assert (routes.owner("a"), routes.owner("b")) == (3, 0)
    assert routes.owners == Routes.even(4).owners


def test_slots_of_instances_apart_are_dealt_evenly_to_the_others() -> None:
    owners = Table(4, {"hot": 1}, (1,)).routes().owners
    counts = [owners.count(i) for i in range(4)]
    assert counts[1] == 0
    assert max(counts) - min(counts[:1] + counts[2:]) <= 2
    even = Routes.even(4).owners
    assert all(owners[slot] == even[slot] for slot in range(SLOTS) if even[slot] != 1)


def test_instances_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="sends 'a' to instance 4; it is for 4"):
        Table(4, {"a": 4})
    with pytest.raises(ValueError, match="somebody has to take them"):
        Table(2, {}, (0, 1))
