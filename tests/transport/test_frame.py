"""Framing: any chopping gives the same frames, and nothing malformed gets through."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.transport.decoder import FrameDecoder, Gathered
from tailrace.transport.frame import (
    HEADER,
    HEADER_BYTES,
    Buffer,
    Frame,
    FrameError,
    frame_header,
)

CAP_BYTES = 64

messages = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 15), st.binary(max_size=CAP_BYTES))


def encoded(frames: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(
        frame_header(len(payload), target, kind) + payload for target, kind, payload in frames
    )


def chopped(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in pairwise(edges)]


def decoded(chunks: list[bytes]) -> tuple[list[Frame], str | None]:
    decoder, frames = FrameDecoder(CAP_BYTES), list[Frame]()
    try:
        for chunk in chunks:
            decoder.feed(chunk, frames)
    except FrameError as error:
        return frames, str(error)
    return frames, None


@given(st.lists(messages), st.lists(st.integers(0, 10_000)))
def test_frames_survive_any_chopping(sent: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    assert decoded(chopped(encoded(sent), cuts)) == (sent, None)


@given(st.lists(messages, min_size=1), st.data())
def test_chopping_never_changes_the_outcome_of_a_mutated_stream(
    sent: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream = bytearray(encoded(sent))
    for position, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(stream) - 1), st.integers(0, 255)))
    ):
        stream[position] = value
    mutated = bytes(stream[: data.draw(st.integers(0, len(stream)))])
    cuts = data.draw(st.lists(st.integers(0, 10_000)))
    assert decoded(chopped(mutated, cuts)) == decoded([mutated])


@given(st.lists(st.binary()))
def test_random_bytes_give_frames_or_a_frame_error_and_nothing_else(chunks: list[bytes]) -> None:
    frames, _ = decoded(chunks)
    assert all(len(frame.payload) <= CAP_BYTES for frame in frames)


def test_an_oversized_frame_is_refused_by_its_header_alone() -> None:
    decoder = FrameDecoder(CAP_BYTES)
    with pytest.raises(FrameError, match=r"frame of 65 bytes for target 9; the cap is 64") as error:
        decoder.feed(frame_header(65, target=9, kind=2), [])
    assert error.value.reason == "oversized"


@pytest.mark.parametrize("fields", [(1, 0, 16, 0, 0), (1, 0, 2, 1, 0), (1, 0, 2, 0, 1)])
def test_unknown_kinds_and_flags_are_malformed(fields: tuple[int, ...]) -> None:
    with pytest.raises(FrameError) as error:
        FrameDecoder(CAP_BYTES).feed(HEADER.pack(*fields), [])
    assert error.value.reason == "malformed"


def test_frames_before_a_malformed_one_are_delivered() -> None:
    frames: list[Frame] = []
    with pytest.raises(FrameError):
        FrameDecoder(CAP_BYTES).feed(encoded([(1, 2, b"good")]) + b"\xff" * HEADER_BYTES, frames)
    assert frames == [(1, 2, b"good")]


def test_after_an_error_the_decoder_refuses_to_go_on() -> None:
    decoder, frames = FrameDecoder(CAP_BYTES), list[Frame]()
    with pytest.raises(FrameError):
        decoder.feed(b"\xff" * HEADER_BYTES, frames)
    with pytest.raises(FrameError, match="the cap is 64"):
        decoder.feed(encoded([(1, 2, b"good")]), frames)
    assert frames == []


@pytest.mark.parametrize("taken_bytes", [1, HEADER_BYTES, HEADER_BYTES + 3])
def test_an_unfinished_frame_shows_as_partial_bytes(taken_bytes: int) -> None:
    decoder = FrameDecoder(CAP_BYTES)
    stream = encoded([(1, 2, b"hello")])
    decoder.feed(stream[:taken_bytes], [])
    assert decoder.partial_bytes == taken_bytes
    decoder.feed(stream[taken_bytes:], [])
    assert decoder.partial_bytes == 0


def peak_bytes_of_tiny_chunks(payload_bytes: int) -> int:
    decoder, frames = FrameDecoder(payload_bytes), list[Frame]()
    chunk = bytes(100)
    tracemalloc.start()
    try:
        decoder.feed(frame_header(payload_bytes, 1, 2), frames)
        for _ in range(payload_bytes // len(chunk)):
            decoder.feed(chunk, frames)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(frames) == 1
    return peak_bytes


def test_a_frame_in_tiny_chunks_needs_no_more_memory_than_the_frame() -> None:
    """The least of three: what other threads of this process allocate meanwhile counts, too."""
    payload_bytes = 1_000_000
    peaks = [peak_bytes_of_tiny_chunks(payload_bytes) for _ in range(3)]
    assert min(peaks) < payload_bytes + 50_000


@pytest.mark.parametrize(("target", "kind"), [(-1, 2), (2**32, 2), (0, 16), (0, -1)])
def test_a_header_that_does_not_fit_is_refused_with_its_values(target: int, kind: int) -> None:
    with pytest.raises(ValueError, match=str(target if kind == 2 else kind)):
        frame_header(1, target, kind)


@given(
    st.lists(st.lists(st.binary(max_size=50), max_size=4), max_size=5),
    st.integers(0, 2**32 - 1),
    st.integers(0, 15),
    st.sampled_from([bytes, bytearray, memoryview]),
)
def test_gathered_frames_are_those_of_header_and_payload(
    frames: list[list[bytes]], target: int, kind: int, wrap: Callable[[bytes], Buffer]
) -> None:
    gathered, expected, views = Gathered(10_000, 200), b"", []
    for parts in frames:
        views.append((memoryview(gathered), expected))
        size = sum(map(len, parts))
        assert gathered.add(target, kind, [wrap(part) for part in parts]) == 12 + size
        expected += frame_header(size, target, kind) + b"".join(parts)
        assert len(gathered) == len(expected)
    assert bytes(gathered) == expected
    assert all(view == shown for view, shown in views)


@pytest.mark.parametrize(("room", "most"), [(36, 100), (1000, 8)])
def test_what_does_not_fit_is_not_gathered_not_even_in_part(room: int, most: int) -> None:
    gathered = Gathered(room, most)
    assert gathered.add(7, 2, [b"12345678"]) == 20
    before = bytes(gathered)
    assert gathered.add(7, 2, [b"1234", memoryview(b"56789")]) == 0
    assert bytes(gathered) == before
    assert gathered.add(7, 2, [b"1234"]) == 16
    assert bytes(gathered) == before + frame_header(4, 7, 2) + b"1234"


def test_without_room_for_a_header_not_even_an_empty_frame_is_gathered() -> None:
    gathered = Gathered(23, 100)
    assert gathered.add(7, 2, []) == 12
    assert gathered.add(7, 2, []) == gathered.add(7, 2, [b""]) == 0


def test_what_is_gathered_has_memory_of_its_own_though_blocks_are_used_again() -> None:
    for number in range(3):
        several = [Gathered(10_000, 100) for _ in range(40)]
        for place, one in enumerate(several):
            one.add(place, number, [bytes([place])])
        for place, one in enumerate(several):
            assert bytes(one) == frame_header(1, place, number) + bytes([place])


def test_the_collector_knows_nothing_of_frames() -> None:
    frames: list[Frame] = []
    FrameDecoder(100).feed(frame_header(2, 7, 2) + b"hi", frames)
    assert frames == [Frame(7, 2, b"hi")]
    assert type(frames[0]) is Frame
    assert not gc.is_tracked(frames[0])


@pytest.mark.parametrize(("target", "kind"), [(-1, 2), (2**32, 2), (7, -1), (7, 16)])
def test_gathering_refuses_what_no_header_can_say(target: int, kind: int) -> None:
    gathered = Gathered(1000, 100)
    with pytest.raises(ValueError, match="it must be 0 to"):
        gathered.add(target, kind, [b"h"])
    assert not gathered
