"""Parcels for many gates in one encoding, and back again."""

import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.runtime.markers import End, Watermark
from tailrace.transport import jumbo
from tailrace.transport.codec import CodecError
from tailrace.transport.peer import JumboCodec, Parcel

ascii_text = st.text(st.characters(codec="ascii"), max_size=40)
anything = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.tuples(st.booleans()))
records = st.lists(ascii_text) | st.lists(st.binary(max_size=40)) | st.lists(anything)
numbers = st.integers(-(2**63), 2**63 - 1)


@st.composite
def keyed(draw: st.DrawFn) -> tuple[int, int, list[Any], list[Any]]:
    """Records, and as many keys; often these are parts of them."""
    some = draw(records)
    kinds = [ascii_text, st.binary(max_size=9), anything]
    keys = [draw(st.lists(kind, min_size=len(some), max_size=len(some))) for kind in kinds]
    return draw(numbers), draw(numbers), some, draw(st.sampled_from([some.copy(), *keys]))


items = st.one_of(
    st.tuples(numbers, numbers, records),
    keyed(),
    st.tuples(numbers, numbers, st.lists(st.tuples(anything, anything)), st.just(True)),
    st.builds(Watermark, numbers, numbers),
    st.builds(End, st.none() | numbers),
)
parcels = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.lists(items, max_size=5)), max_size=4)


def codec() -> JumboCodec:
    return JumboCodec(lambda: 5)


def types_in(thing: Any) -> Any:
    return [types_in(one) for one in thing] if isinstance(thing, list | tuple) else type(thing)


@given(parcels)
@example([(7, [(1, 2, ["a", ""]), (3, 4, []), (5, 6, [b"", b"x"])])])
def test_what_is_encoded_comes_back_equal_and_of_the_same_types(sent: list[Parcel]) -> None:
    stamp, again = codec().decode(b"".join(codec().encode(sent)))
    assert stamp == 5
    assert again == sent
    assert types_in(again) == types_in(sent)


def test_texts_bytes_and_watermarks_need_no_pickle() -> None:
    sent: list[Parcel] = [(1, [(0, 0, ["a", "b"]), Watermark(5, 6)]), (2, [(0, 9, [b"c"])])]
    assert jumbo.encode(sent, 0)[1] == []


def test_nor_do_their_keys_if_they_are_of_these_kinds() -> None:
    sent: list[Parcel] = [(1, [(0, 0, ["ab", "cd"], ["a", "c"]), (0, 0, [b"xy"], ["x"])])]
    assert jumbo.encode(sent, 0)[1] == []


def test_a_key_that_its_record_holds_is_encoded_once() -> None:
    some = [(f"customer {number:040}", number) for number in range(100)]
    alone = sum(map(len, codec().encode([(1, [(0, 0, some)])])))
    with_keys = sum(map(len, codec().encode([(1, [(0, 0, some, [one[0] for one in some])])])))
    assert with_keys < alone + 6 * len(some)


@pytest.mark.parametrize("keys", [["a"], ["a", "b", "c"], [1], [1, 2, 3]])
@pytest.mark.parametrize("some", [["x", "y"], [1, 2]])
def test_keys_that_are_not_as_many_as_the_records_are_refused(
    some: list[Any], keys: list[Any]
) -> None:
    payload = b"".join(codec().encode([(1, [(0, 0, some, keys)])]))
    with pytest.raises(CodecError, match=f"2 records has {len(keys)} keys"):
        codec().decode(payload)


@given(st.data())
def test_keyed_runs_that_have_been_changed_are_refused_or_well_formed(data: st.DataObject) -> None:
    """All but what is pickled: that comes from authenticated workers, and may take any memory."""
    sent: list[Parcel] = [
        (5, [(1, 2, ["some", "words"], ["s", "w"]), (3, 4, [b"x"], [7]), (5, 6, [8, 9], [0, 1])])
    ]
    flat, objects = jumbo.encode(sent, 0)
    changed = bytearray(flat)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(8, len(flat) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, again = jumbo.decode(bytes(changed) + b".", lambda rest: objects)
    except ValueError:
        return
    for _, parcel in again:
        for item in parcel:
            if type(item) is tuple and len(item) == 4:
                assert len(item[2]) == len(item[3])


class Word(str):
    """A str that is more than a str."""


@pytest.mark.parametrize(
    "run",
    [["umlaut \u00e4"], ["a", b"a"], [b"a", "a"], [1], [None], [bytearray(b"a")], [Word("a")]],
)
def test_everything_else_is_left_to_pickle(run: list[object]) -> None:
    assert jumbo.encode([(1, [(0, 0, run)])], 0)[1] == [run]


def test_all_that_is_pickled_is_pickled_once() -> None:
    shared = ("the", "same", "tuple")
    sent: list[Parcel] = [(gate, [(0, 0, [shared])]) for gate in range(50)]
    _, pickled = codec().encode(sent)
    assert len(pickled) < 50 * len(pickle.dumps(shared, 5)) / 5
    assert codec().decode(b"".join(codec().encode(sent)))[1] == sent


def test_large_buffers_travel_out_of_band_and_are_aligned() -> None:
    import numpy as np

    array = np.arange(100_000)
    payload = b"".join(codec().encode([(3, [(0, 0, ["text"]), (0, 0, [array])])]))
    _, [(_, [_, (_, _, [again])])] = codec().decode(payload)
    assert (again == array).all()
    start = np.frombuffer(payload, dtype=np.uint8).__array_interface__["data"][0]
    assert (again.__array_interface__["data"][0] - start) % 64 == 0


@given(st.binary(max_size=200))
@example(b"J")
@example(b"J\x00\x00\x00\x01\x00\x00\x00" + bytes(8))
def test_other_bytes_are_refused_and_nothing_worse(payload: bytes) -> None:
    try:
        jumbo.decode(payload, lambda rest: [])
    except ValueError:
        return
    assert payload[:1] == b"J"


@given(st.data())
def test_a_payload_cut_short_or_made_longer_is_refused(data: st.DataObject) -> None:
    payload = b"".join(codec().encode([(5, [(1, 2, ["some", "words"]), (3, 4, [b"bytes"])])]))
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(CodecError):
        codec().decode(payload[:cut])
    with pytest.raises(CodecError):
        codec().decode(payload + b"x")


def test_records_that_cannot_be_pickled_are_refused() -> None:
    with pytest.raises(CodecError, match="lambda"):
        codec().encode([(1, [(0, 0, [lambda: None])])])
