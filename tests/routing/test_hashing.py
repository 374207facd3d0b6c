"""Keys hash the same in every process, and equal keys hash equal."""

import enum
import importlib
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.routing.hashing import stable_hash

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

# Tables of running jobs depend on these; they never change.
PINNED = {
    "a": 3904355907,
    "": 0,
    "tailrace": 3907757887,
    "ü": 1675192789,
    b"a": 2679148245,
    0: 0,
    1: 2654435769,
    -1: 3281063053,
    2**70: 1861448446,
    0.5: 1342177280,
    None: 1852796517,
    (): 0,
    ("a", 1): 1407109772,
    date(2024, 5, 1): 1567079002,
    NOON: 2226022644,
}

WORDS = st.text() | st.binary() | st.integers() | st.floats() | st.none() | st.booleans()
KEYS = st.recursive(WORDS, lambda keys: st.tuples(keys) | st.tuples(keys, keys))


class Point(NamedTuple):
    x: int
    y: int


class Colour(str, enum.Enum):  # noqa: UP042 (its str() is not the string)
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Code(bytes):
    pass


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Place:
    town: str
    street: tuple[str, int]
    note: str = field(default="", compare=False)


@dataclass
class Loose:
    n: int


class Struct(msgspec.Struct, frozen=True):
    n: int


USUAL = [
    UUID(int=7),
    Kind.ONE,
    Kind.TWO,
    Rights.READ | Rights.WRITE,
    Place("a", ("b", 1)),
    Struct(5),
    Decimal("1.5"),
    NOON,
    NOON.date(),
    NOON.time(),
    time(12, tzinfo=UTC),
    timedelta(days=1, microseconds=3),
    b"bytes",
    ("a", ("b", (2, None))),
    frozenset(["a", "b", 3]),
    np.int64(9),
    np.float32(0.25),
    np.str_("text"),
    np.datetime64("2024-05-01T12:00"),
]


def kind(key: Any) -> str:
    """Names a case; the same in every process, as the order of a set is not."""
    return type(key).__name__


@pytest.mark.parametrize("key", PINNED, ids=kind)
def test_known_values_stay(key: Any) -> None:
    assert stable_hash(key) == PINNED[key]


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_another_process_with_another_seed_agrees(seed: str) -> None:
    keys = (
        "['a', b'b', 7, -1.5, None, ('a', ('b', 2)), 2**80, 1j, datetime.date(2024, 5, 1),"
        " frozenset(['a', 'b', 'c', 7]), datetime.timedelta(1), re.NOFLAG, uuid.UUID(int=5),"
        " inspect.Parameter.POSITIONAL_ONLY, socket.AddressFamily.AF_INET, uuid.SafeUUID.safe]"
    )
    modules = ("datetime", "inspect", "re", "socket", "uuid")
    program = (
        f"import {', '.join(modules)}\nfrom tailrace.routing.hashing import stable_hash\n"
        f"print([stable_hash(key) for key in {keys}])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    here = [
        stable_hash(key)
        for key in eval(keys, {one: importlib.import_module(one) for one in modules})
    ]
    assert done.stdout.strip() == str(here)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (2, Decimal(2)),
        (0.5, Fraction(1, 2)),
        (3, Level.HIGH),
        ((1, "a"), (1.0, "a")),
        ((1, 2), Point(1, 2)),
        ("red", Colour.RED),
        (b"x", Code(b"x")),
        (NOON, NOON.astimezone(timezone(timedelta(hours=5)))),
        (time(12, tzinfo=UTC), time(14, tzinfo=timezone(timedelta(hours=2)))),
        (frozenset([1, "a"]), frozenset(["a", 1.0])),
        (Place("a", ("b", 1), "x"), Place("a", ("b", 1.0), "y")),  # type: ignore[arg-type]
        (UUID(int=3), UUID(int=3)),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.datetime64("2024-05-01"), np.datetime64("2024-05-01T00:00")),
        (timedelta(hours=24), timedelta(days=1)),
    ],
    ids=kind,
)
def test_equal_keys_have_equal_hashes(one: Any, other: Any) -> None:
    assert one == other
    assert stable_hash(one) == stable_hash(other)


def test_all_nans_are_one_key() -> None:
    assert stable_hash(float("nan")) == stable_hash(float("inf") - float("inf"))


@pytest.mark.parametrize("key", USUAL, ids=kind)
def test_the_usual_kinds_of_keys_have_hashes_that_survive_shipping(key: Any) -> None:
    assert stable_hash(key) == stable_hash(pickle.loads(pickle.dumps(key)))


def test_the_usual_kinds_of_keys_are_told_apart() -> None:
    assert len({stable_hash(key) for key in USUAL}) == len(USUAL)


@given(KEYS)
def test_hashes_are_32_bits_and_repeat(key: Any) -> None:
    assert 0 <= stable_hash(key) < 2**32
    assert stable_hash(key) == stable_hash(key)


@given(KEYS, KEYS)
def test_whatever_python_calls_equal_has_one_hash(one: Any, other: Any) -> None:
    if one == other:
        assert stable_hash(one) == stable_hash(other)


def test_half_a_surrogate_pair_is_a_key() -> None:
    assert stable_hash("\ud800") != stable_hash("\ud801")


@pytest.mark.parametrize(
    "key",
    [object(), {1}, [1], {}, Loose(1), ("a", object()), (1, [2]), frozenset([object()])],
    ids=kind,
)
def test_keys_without_a_stable_hash_are_refused_with_their_type(key: Any) -> None:
    with pytest.raises(TypeError, match=r"a key of type \w+ has no hash .*; use str, bytes"):
        stable_hash(key)


@pytest.mark.parametrize("instances", [2, 3, 7, 16])
def test_small_numbers_and_words_spread_over_instances(instances: int) -> None:
    for keys in (range(4000), [f"user-{n}" for n in range(4000)], [(n, "x") for n in range(4000)]):
        load = Counter(stable_hash(key) % instances for key in keys)
        assert len(load) == instances
        assert max(load.values()) < 1.25 * 4000 / instances
