"""Pickles in which some objects cannot be made: what can be had of the others."""

from __future__ import annotations

import pickle
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.transport import salvage
from tailrace.transport.codec import CodecError, UnreadableError
from tailrace.transport.peer import JumboCodec


class TwoArgumentsError(Exception):
    """Pickle gives `__init__` the one that `Exception` got."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


class Calls:
    """Is made again by a call that fails."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class FailsNew:
    def __new__(cls, *arguments: Any) -> FailsNew:
        if arguments:
            raise ValueError("cannot be made")
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[int]:
        return (1,)


class FailsNewByName(FailsNew):
    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, int]]:
        return (1,), {}


class FailsState:
    def __init__(self) -> None:
        self.n = 1

    def __setstate__(self, state: Any) -> None:
        raise ValueError("cannot be set")


class FailsItems(list[int]):
    def extend(self, items: Any) -> None:
        raise ValueError("cannot be extended")

    def append(self, item: Any) -> None:
        raise ValueError("cannot be appended to")


class FailsHash:
    def __hash__(self) -> int:
        return hash(self.n)  # which is not there when a dictionary is made

    def __init__(self) -> None:
        self.n = 1
        self.held: dict[Any, int] = {self: 1}


@dataclass
class Holder:
    held: Any


BROKEN = {
    "exception": TwoArgumentsError(1, 2),
    "call": Calls(),
    "new": FailsNew(),
    "new by name": FailsNewByName(),
    "state": FailsState(),
    "one item": FailsItems([1]),
    "items": FailsItems([1, 2]),
    "hash": FailsHash(),
}
WRAPS: list[Callable[[Any], Any]] = [
    lambda one: one,
    lambda one: (1, [one, 2]),
    lambda one: {"a": one, "b": [one]},
    lambda one: Holder({"a": one}),
    lambda one: deque([one]),
]


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_records_with_an_object_that_cannot_be_made_are_told_from_others(
    broken: Any, wrap: Callable[[Any], Any]
) -> None:
    records = [{1: "a"}, wrap(broken), Holder([1, 2.5]), wrap(broken), {"last"}]
    pickled = pickle.dumps(records, 5)
    with pytest.raises(Exception, match=r".*"):
        pickle.loads(pickled)
    found = salvage.loads(pickled)
    assert [salvage.unreadable_in(one) is None for one in found] == [True, False, True, False, True]
    assert found[::2] == records[::2]


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(allow_nan=False) | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.integers(), inner)
            | st.tuples(inner)
            | st.builds(Holder, inner)
        ),
    )
)
def test_what_is_whole_comes_out_as_from_pickle(record: Any) -> None:
    found = salvage.loads(pickle.dumps([record, record], 5))
    assert found == [record, record]
    assert salvage.unreadable_in(found) is None


def test_a_class_that_is_not_here_is_named() -> None:
    module = ModuleType("gone")
    exec("class Gone:\n    pass", module.__dict__)
    sys.modules["gone"] = module
    try:
        pickled = pickle.dumps([1, module.Gone()], 5)
    finally:
        del sys.modules["gone"]
    one, gone = salvage.loads(pickled)
    assert one == 1
    assert repr(gone).startswith("<gone.Gone that could not be unpickled: ModuleNotFoundError(")


def test_a_jumbo_has_errors_for_such_records_and_all_else_as_it_was_sent() -> None:
    codec = JumboCodec(lambda: 5)
    array = np.arange(1000)
    runs = [(1, 2, ["text"]), (3, 4, [7, Calls(), array]), (5, 6, [[8]])]
    rejected = (7, 8, [([9], KeyError("k")), (Calls(), KeyError("k"))], True)
    payload = b"".join(codec.encode([(1, list(runs)), (2, [rejected])]))
    sent_ns, ((one, items), (two, others)) = codec.decode(payload)
    assert (sent_ns, one, two, items[0], items[2]) == (5, 1, 2, runs[0], runs[2])
    emitted_ns, origin, pairs, apart = items[1]
    assert (emitted_ns, origin, apart) == (3, 4, True)
    assert pairs[0] == (7, None)
    assert pairs[2][1] is None
    np.testing.assert_array_equal(pairs[2][0], array)
    assert type(pairs[1][1]) is UnreadableError
    assert repr(pairs[1][0]).startswith("<int that could not be unpickled: ValueError(")
    ((_, _, kept, _),) = others
    assert (kept[0][0], type(kept[0][1])) == ([9], KeyError)
    assert type(kept[1][1]) is UnreadableError


def test_what_is_no_pickle_is_refused_as_before() -> None:
    codec = JumboCodec(lambda: 0)
    payload = b"".join(codec.encode([(1, [(1, 2, [[1]])])]))
    with pytest.raises(CodecError, match="no pickle in"):
        codec.decode(payload[:-3])
