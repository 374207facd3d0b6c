"""Codecs: equal records come out, large buffers are not copied, bad payloads are refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.transport.codec import (
    ALIGNMENT_BYTES,
    ArrowCodec,
    CodecError,
    PickleCodec,
)


@dataclass
class Reading:
    sensor: str
    celsius: float


class Pair(NamedTuple):
    left: int
    right: str


class Blob:
    """An object whose memory travels out of band."""

    def __init__(self, memory: Any) -> None:
        self.memory = memoryview(memory)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Blob, (pickle.PickleBuffer(self.memory),)


@pytest.fixture(autouse=True)
def _small_buffers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.transport.codec._LARGE_BYTES", 0)


def test_small_buffers_stay_in_the_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.transport.codec._LARGE_BYTES", 100)
    assert len(PickleCodec().encode([Blob(bytes(99))])) == 1
    assert len(PickleCodec().encode([Blob(bytes(100))])) > 1


def joined(codec: PickleCodec | ArrowCodec, records: list[Any]) -> bytes:
    return b"".join(codec.encode(records))


def address_of(memory: Any) -> int:
    return int(pa.py_buffer(memory).address)


plain = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(plain), st.booleans())
def test_python_objects_round_trip(records: list[Any], as_view: bool) -> None:
    codec = PickleCodec()
    payload = joined(codec, records)
    assert codec.decode(memoryview(payload) if as_view else payload) == records


@given(st.lists(st.binary(max_size=200), min_size=1), st.booleans())
def test_out_of_band_buffers_round_trip_aligned(contents: list[bytes], as_view: bool) -> None:
    codec = PickleCodec()
    payload = joined(codec, [*map(Blob, contents), "and a plain one"])
    *blobs, last = codec.decode(memoryview(payload) if as_view else payload)
    assert [bytes(blob.memory) for blob in blobs] == contents
    assert last == "and a plain one"
    for blob in blobs:
        if len(blob.memory):
            assert (address_of(blob.memory) - address_of(payload)) % ALIGNMENT_BYTES == 0


def test_without_out_of_band_buffers_the_payload_is_the_plain_pickle() -> None:
    assert PickleCodec().encode([1, "a"]) == [pickle.dumps([1, "a"], 5)]


def test_encoding_does_not_copy_large_buffers() -> None:
    memory = bytearray(1_000_000)
    addresses = [address_of(part) for part in PickleCodec().encode([Blob(memory)])]
    assert address_of(memory) in addresses


def test_decoded_buffers_are_read_only_views_on_the_payload() -> None:
    codec = PickleCodec()
    payload = bytearray(joined(codec, [Blob(b"before")]))
    (blob,) = codec.decode(memoryview(payload))
    payload[-6:] = b"after!"
    assert bytes(blob.memory) == b"after!"
    assert blob.memory.readonly


def test_decoded_views_keep_the_payload_from_being_resized() -> None:
    codec = PickleCodec()
    payload = bytearray(joined(codec, [Blob(b"content")]))
    view = memoryview(payload)
    (blob,) = codec.decode(view)
    view.release()
    with pytest.raises(BufferError):
        payload.clear()
    del blob
    payload.clear()


def test_numpy_arrays_come_out_in_place() -> None:
    numpy = pytest.importorskip("numpy")
    codec = PickleCodec()
    payload = memoryview(joined(codec, [numpy.arange(1000), numpy.ones((3, 4), order="F")]))
    ones_first, ones = codec.decode(payload)
    assert (ones_first == numpy.arange(1000)).all()
    assert (ones == numpy.ones((3, 4))).all()
    assert address_of(payload) <= ones_first.ctypes.data < address_of(payload) + len(payload)


def test_a_failed_encoding_leaves_nothing_behind_for_the_next() -> None:
    codec = PickleCodec()
    with pytest.raises(CodecError, match="cannot pickle 2 records"):
        codec.encode([Blob(b"out of band"), lambda: None])
    assert codec.decode(joined(codec, [1])) == [1]


@given(st.data())
def test_truncated_pickles_are_refused(data: st.DataObject) -> None:
    codec = PickleCodec()
    payload = joined(codec, data.draw(st.sampled_from([["plain", 1], [Blob(b"abc"), 1]])))
    with pytest.raises(CodecError):
        codec.decode(payload[: data.draw(st.integers(0, len(payload) - 1))])


@given(st.binary(max_size=60))
def test_a_mutilated_out_of_band_header_is_refused(tail: bytes) -> None:
    with pytest.raises(CodecError, match=f"{4 + len(tail)} bytes"):
        PickleCodec().decode(b"OOB5" + tail)


def test_a_pickle_of_something_else_than_a_list_is_refused() -> None:
    with pytest.raises(CodecError, match="holds a dict; expected a list"):
        PickleCodec().decode(pickle.dumps({}))


def batch(rows: int) -> Any:
    colors = [str(row % 3) for row in range(rows)]
    words = [None if row % 7 == 0 else f"word {row}" for row in range(rows)]
    return pa.record_batch(
        {
            "number": pa.array(range(rows), pa.int64()),
            "word": pa.array(words, pa.string()),
            "color": pa.array(colors, pa.string()).dictionary_encode(),
            "list": pa.array([[row] * (row % 4) for row in range(rows)], pa.list_(pa.int32())),
        }
    )


@given(st.lists(st.integers(0, 50), max_size=4), st.integers(0, 10))
def test_record_batches_round_trip(sizes: list[int], offset: int) -> None:
    codec = ArrowCodec()
    batches = [batch(rows).slice(offset) for rows in sizes]
    decoded = codec.decode(joined(codec, batches))
    assert [one.to_pydict() for one in decoded] == [one.to_pydict() for one in batches]


def test_columns_are_read_in_place_and_aligned() -> None:
    codec = ArrowCodec()
    payload = joined(codec, [batch(1000)])
    start = address_of(payload)
    (decoded,) = codec.decode(memoryview(payload))
    buffers = [one for column in decoded.columns for one in column.buffers() if one]
    assert buffers
    for one in buffers:
        assert start <= one.address < start + len(payload)
        assert (one.address - start) % 8 == 0


def test_columns_are_not_copied_by_encoding() -> None:
    original = batch(1000)
    addresses = {address_of(part) for part in ArrowCodec().encode([original])}
    assert {original["number"].buffers()[1].address} <= addresses


def test_batches_of_different_schemas_are_refused() -> None:
    with pytest.raises(CodecError, match="cannot encode 2 batches"):
        ArrowCodec().encode([batch(1), pa.record_batch({"other": [1]})])


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(CodecError, match="cannot encode 1 batches"):
        ArrowCodec().encode(["no batch"])


@given(st.binary(min_size=1))
def test_random_bytes_are_no_arrow_stream(payload: bytes) -> None:
    with pytest.raises(CodecError, match=f"in {len(payload)} bytes"):
        ArrowCodec().decode(payload)


@given(st.data())
def test_a_truncated_arrow_stream_is_refused(data: st.DataObject) -> None:
    codec = ArrowCodec()
    payload = joined(codec, [batch(20)])
    end_marker_bytes = 8
    cut = data.draw(st.integers(1, len(payload) - end_marker_bytes - 1))
    try:
        decoded = codec.decode(payload[:cut])
    except CodecError:
        return
    assert decoded == []  # cut between the schema and the batch: a stream of no batches
