"""State for people: as text, and without the user's classes."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tailrace.checkpoint.folder import folder_at
from tailrace.checkpoint.manifest import data_name
from tailrace.checkpoint.sections import FORGOTTEN, Encoded, EpochFile, encode_block, encode_shared
from tailrace.checkpoint.showing import Row, as_json, as_pickle, as_text, count_keys, loads, rows


class Loud:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("ü\n", "ü\n"),
        (1, "1"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (math.inf, "inf"),
        (b"x", "b'x'"),
        ([1, ("ü",)], '[1, ["ü"]]'),
        ({"a": {"b": []}}, '{"a": {"b": []}}'),
        ({1: 2}, "{1: 2}"),
        ([math.nan], "[nan]"),
        ({1}, "{1}"),
        (Loud(), "<Loud whose repr raised RuntimeError>"),
    ],
)
def test_values_as_text(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_values_as_json() -> None:
    assert as_json({"a": [1, (2, 3)]}) == {"a": [1, (2, 3)]}
    assert as_json({1}) == "{1}"
    assert as_json("a") == "a"


@dataclass(frozen=True)
class Point:
    x: int
    y: Any


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


class Pair(NamedTuple):
    a: int
    b: int


class Color(Enum):
    RED = 1


class Numbers(list[int]):
    pass


class Table(dict[str, int]):
    pass


@pytest.fixture
def gone() -> Iterator[ModuleType]:
    """A module whose classes can be pickled, and are gone by the time they are read."""
    module = ModuleType("users_gone")
    sys.modules["users_gone"] = module
    before = {}
    for one in (Point, Slotted, Pair, Color, Numbers, Table):
        before[one] = one.__module__
        one.__module__ = "users_gone"
        setattr(module, one.__name__, one)
    yield module
    sys.modules.pop("users_gone", None)
    for one, name in before.items():
        one.__module__ = name


def lost(value: Any) -> Any:
    data = pickle.dumps(value, 5)
    del sys.modules["users_gone"]
    try:
        return loads(data)
    finally:
        sys.modules["users_gone"] = ModuleType("users_gone")


@pytest.mark.usefixtures("gone")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Point(1, "a"), "users_gone.Point(x=1, y='a')"),
        (Slotted(3), "users_gone.Slotted(x=3)"),
        (Pair(1, 2), "users_gone.Pair(1, 2)"),
        (Color.RED, "users_gone.Color(1)"),
        (Numbers([1, 2]), "users_gone.Numbers(1, 2)"),
        (Table(a=1), "users_gone.Table('a': 1)"),
    ],
)
def test_what_cannot_be_imported_is_shown_by_its_parts(value: Any, text: str) -> None:
    found = lost([value, {"deep": value}])
    assert as_text(found[0]) == text
    assert as_text(found[1]) == f"{{'deep': {text}}}"
    assert as_pickle(found) is None


def test_keys_that_cannot_be_imported_still_merge(tmp_path: Path, gone: ModuleType) -> None:
    folder = folder_at(tmp_path)
    file = EpochFile(data_name(1, 1, 0, 0))
    early = Encoded(pickle.dumps(Point(7, 7), 5))
    full = [(Point(1, 1), 1), (Point(2, 2), early), (Point(3, 3), 0)]
    file.add("count", 0, "full", [encode_block(full)], 3)
    changes = [(Point(1, 1), 2), (Point(3, 3), FORGOTTEN)]
    file.add("count", 0, "delta", [encode_block(changes)], 2)
    file.add_shared("count", 0, encode_shared("mark"))
    sections = file.write(folder)
    del sys.modules["users_gone"]
    shared, *keyed = rows(folder, sections)
    assert shared == Row("count", 0, "shared", None, "mark")
    assert {as_text(row.key): as_text(row.value) for row in keyed} == {
        "users_gone.Point(x=1, y=1)": "2",
        "users_gone.Point(x=2, y=2)": "users_gone.Point(x=7, y=7)",
    }
    assert count_keys(folder, sections) == 2, "no worker has said it"


def test_what_workers_say_is_not_counted_again(tmp_path: Path) -> None:
    file = EpochFile(data_name(1, 1, 0, 0))
    file.add("count", 0, "full", [], 5)
    file.add("count", 0, "delta", [], 3, keys=6)
    file.add("count", 1, "full", [], 10)
    file.add_shared("other", 0, b"")
    folder = folder_at(tmp_path)
    assert count_keys(folder, file.write(folder)) == 16
