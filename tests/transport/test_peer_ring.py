"""Jumbos through a real ring: large ones are decoded where they lie, and nothing stays of it."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.transport.codec import CodecError, UnreadableError
from tailrace.transport.peer import KIND_JUMBO, Arrivals, JumboCodec, Parcel, RingPeer
from tailrace.transport.ring import Reader, Ring, Writer

RING_BYTES = 1 << 20


class Blob:
    """An object whose memory travels out of band."""

    def __init__(self, memory: Any) -> None:
        self.memory = memoryview(memory)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Blob, (pickle.PickleBuffer(self.memory),)


class Broken:
    """Fails when it is unpickled."""

    def __init__(self, size: int) -> None:
        self.payload = "x" * size

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("cannot be made again")


class Ends:
    """Two workers, as far as they are a peer and its arrivals."""

    def __init__(self, ring: Ring, reader: Reader, writer: Writer) -> None:
        codec = JumboCodec(lambda: 5)
        self.ring, self.reader, self.writer = ring, reader, writer
        self.peer = RingPeer(ring, writer, 3, codec)
        self.parcels: list[Parcel] = []
        self._arrivals = Arrivals(codec, self._deliver, lambda *credit: None)

    def _deliver(self, sender: int, parcels: list[Parcel], sent_ns: int, size: int) -> None:
        assert (sender, sent_ns) == (3, 5)
        self.parcels += parcels

    def take(self) -> list[Parcel]:
        self.reader.drain(self._arrivals.accept)
        parcels, self.parcels = self.parcels, []
        return parcels

    def overwrite(self) -> None:
        """Go round the ring."""
        for _ in range(40):
            assert self.writer.send(b"\xff" * (RING_BYTES // 8), wait=False)
            self.reader.drain(lambda *message: None)


@pytest.fixture
def ends() -> Iterator[Ends]:
    with Ring.create(RING_BYTES) as ring, ring.reader() as reader, ring.writer() as writer:
        yield Ends(ring, reader, writer)


@pytest.mark.parametrize("count", [1, 100, 1_000, 5_000, 50_000])
def test_records_outlive_the_memory_that_they_came_in(ends: Ends, count: int) -> None:
    sent: list[Parcel] = [
        (1, [(7, 0, [f"{i:050}" for i in range(count)])]),
        (2, [(7, 0, [b"%050d" % i for i in range(count)])]),
        (3, [(7, 0, [(i, f"{i}", b"%d" % i, bytearray(3)) for i in range(count)])]),
    ]
    assert ends.peer.send(sent)
    found = ends.take()
    while ends.peer.pending:  # in pieces, when it is large
        ends.peer.flush()
        found += ends.take()
    ends.overwrite()
    assert found == sent


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_arrays_are_copied_out_of_the_ring_before_they_are_views(ends: Ends, size: int) -> None:
    sent: list[Parcel] = [(1, [(7, 0, ["text"] * 2), (8, 0, [Blob(b"a" * size), Blob(b"b" * 9)])])]
    assert ends.peer.send(sent)
    ((_, (_, (_, _, blobs))),) = ends.take()
    assert ends.ring.counters()["fill"] == 0.0
    ends.overwrite()
    assert [bytes(blob.memory) for blob in blobs] == [b"a" * size, b"b" * 9]


def test_what_cannot_be_decoded_is_given_back_all_the_same(ends: Ends) -> None:
    codec = JumboCodec(lambda: 5)
    good = b"".join(codec.encode([(1, [(0, 0, ["x" * 50_000])])]))
    arrays = b"".join(codec.encode([(1, [(0, 0, [Blob(b"x" * 50_000)])])]))
    errors = []
    for payload in (bytes(50_000), good[:-1], good + bytes(9), arrays[:-1]):
        ends.writer.send(payload, 3, KIND_JUMBO)
        with pytest.raises(CodecError) as error:
            ends.take()
        errors.append(error)  # with all frames that it has been through
        assert ends.reader.read() is None
        assert ends.ring.counters()["fill"] == 0.0
    assert ends.peer.send([(1, [(0, 0, ["goes on"])])])
    assert ends.take() == [(1, [(0, 0, ["goes on"])])]


def test_what_is_left_of_records_that_cannot_be_made_is_no_view_on_the_ring(ends: Ends) -> None:
    blob = Blob(b"a" * 50_000)
    assert ends.peer.send([(1, [(0, 0, [Broken(50_000), blob])])])
    ((_, ((_, _, ((_, error), (kept, nothing)), _),)),) = ends.take()
    assert type(error) is UnreadableError
    assert nothing is None
    assert ends.reader.read() is None
    assert ends.ring.counters()["fill"] == 0.0
    ends.overwrite()
    assert bytes(kept.memory) == b"a" * 50_000
