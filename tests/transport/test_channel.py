"""Channels: two ways to carry a jumbo, one behaviour towards the sender."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pytest

from tailrace.transport.channel import Channel, RingChannel, TcpChannel
from tailrace.transport.codec import ArrowCodec, Codec, CodecError, Decoders, PickleCodec
from tailrace.transport.frame import HEADER_BYTES, Buffer
from tailrace.transport.ring import Ring
from tests.transport.world import World

CAPACITY_BYTES = 4096
BIG = "x" * 1500  # two such records fit, three do not
HUGE = "x" * CAPACITY_BYTES  # never fits


class CountingCodec(PickleCodec):
    def __init__(self) -> None:
        super().__init__()
        self.encoded = 0

    def encode(self, records: list[Any]) -> list[Buffer]:
        self.encoded += 1
        return super().encode(records)


class Side(Protocol):
    """A channel and its receiving end."""

    @property
    def channel(self) -> Channel: ...

    def receive(self) -> list[tuple[int, list[Any]]]:
        """Return what has arrived since, and so make room."""
        ...


class RingSide:
    def __init__(self, ring: Ring, codec: Codec) -> None:
        self.reader = ring.reader()
        self.channel = RingChannel(ring.writer(), codec)
        self.decoders = Decoders([codec])

    def receive(self) -> list[tuple[int, list[Any]]]:
        return [
            (target, self.decoders.decode(kind, payload))
            for target, kind, payload in self.reader.drain()
        ]


class TcpSide:
    def __init__(self, world: World, codec: Codec) -> None:
        self.world = world
        self.dialer, self.acceptor = world.pair()
        self.channel = TcpChannel(self.dialer, codec)
        self.decoders = Decoders([codec])

    def receive(self) -> list[tuple[int, list[Any]]]:
        self.channel.flush()
        self.dialer.send(99, 15, [b"end"])
        self.dialer.flush()
        received = self.world.received[self.acceptor]
        self.world.run(lambda: bool(received) and received[-1].target == 99)
        *frames, _ = received
        received.clear()
        return [(target, self.decoders.decode(kind, payload)) for target, kind, payload in frames]


@pytest.fixture
def codec() -> CountingCodec:
    return CountingCodec()


@pytest.fixture
def world() -> Iterator[World]:
    with World(
        max_frame_bytes=CAPACITY_BYTES // 2, max_queued_bytes=CAPACITY_BYTES + 2 * HEADER_BYTES
    ) as made:
        yield made


@pytest.fixture
def ring() -> Iterator[Ring]:
    with Ring.create(CAPACITY_BYTES) as made:
        yield made


@pytest.fixture(params=["ring", "tcp"])
def side(request: pytest.FixtureRequest, codec: CountingCodec, world: World, ring: Ring) -> Side:
    return RingSide(ring, codec) if request.param == "ring" else TcpSide(world, codec)


def test_jumbos_arrive_whole_and_in_order(side: Side) -> None:
    for jumbo in ([1, "a"], [2.5, None, {"k": [1]}]):
        assert side.channel.send(7, jumbo)
    side.channel.flush()
    assert side.receive() == [(7, [1, "a"]), (7, [2.5, None, {"k": [1]}])]


def test_a_full_channel_takes_nothing_and_the_retry_succeeds(side: Side) -> None:
    assert side.channel.send(1, [BIG])
    assert side.channel.send(2, [BIG])
    waiting = [BIG]
    assert not side.channel.send(3, waiting)
    assert not side.channel.send(3, waiting)
    assert side.receive() == [(1, [BIG]), (2, [BIG])]
    assert side.channel.send(3, waiting)
    assert side.receive() == [(3, [BIG])]


def test_a_jumbo_that_grew_while_it_waited_arrives_whole(side: Side) -> None:
    assert side.channel.send(1, [BIG])
    assert side.channel.send(2, [BIG])
    waiting = [BIG]
    assert not side.channel.send(3, waiting)
    waiting.append("one more")
    side.receive()
    assert side.channel.send(3, waiting)
    assert side.receive() == [(3, [BIG, "one more"])]


def test_after_close_nothing_is_taken_and_what_was_taken_arrives(side: Side) -> None:
    assert side.channel.send(1, ["taken"])
    side.channel.close()
    with pytest.raises(ConnectionError, match="channel is closed"):
        side.channel.send(1, ["too late"])
    assert side.receive() == [(1, ["taken"])]


def test_waiting_jumbos_are_encoded_once_for_each_target(side: Side, codec: CountingCodec) -> None:
    channel = side.channel
    channel.send(1, [BIG])
    channel.send(2, [BIG])
    first, second = [BIG, 1], [BIG, 2]
    for _ in range(5):
        assert not channel.send(3, first)
        assert not channel.send(4, second)
    assert codec.encoded == 4
    side.receive()
    assert channel.send(3, first)
    assert channel.send(4, second)
    assert codec.encoded == 4
    assert side.receive() == [(3, first), (4, second)]


def test_another_jumbo_for_the_same_target_is_not_mistaken_for_the_waiting_one(
    side: Side,
) -> None:
    channel = side.channel
    channel.send(1, [BIG])
    channel.send(2, [BIG])
    assert not channel.send(3, [BIG])
    side.receive()
    assert channel.send(3, ["another"])
    assert side.receive() == [(3, ["another"])]


def test_a_jumbo_that_can_never_fit_is_refused(side: Side) -> None:
    with pytest.raises(ValueError, match=r"4\d\d\d bytes"):
        side.channel.send(1, [HUGE])
    assert side.channel.send(1, ["fits"])
    assert side.receive() == [(1, ["fits"])]


def test_records_that_cannot_be_encoded_are_refused(side: Side) -> None:
    with pytest.raises(CodecError, match="cannot pickle 1 records"):
        side.channel.send(1, [lambda: None])


def test_a_lost_connection_raises_its_reason(world: World) -> None:
    side = TcpSide(world, PickleCodec())
    side.dialer.close("lost in a test")
    with pytest.raises(ConnectionError, match="lost in a test"):
        side.channel.send(1, ["record"])


def test_batches_are_read_in_place_in_the_ring(ring: Ring) -> None:
    codec = ArrowCodec()
    side = RingSide(ring, codec)
    assert side.channel.send(1, [pa.record_batch({"n": [1, 2, 3]})])
    message = side.reader.read()
    assert message is not None
    (batch,) = codec.decode(memoryview(message))
    assert batch.to_pydict() == {"n": [1, 2, 3]}
    with pytest.raises(BufferError):
        message.release()
    del batch
    message.release()


def test_the_parts_of_a_jumbo_reach_the_ring_unjoined() -> None:
    written: list[Buffer] = []

    class Writer:
        def send(self, data: Buffer, target: int, kind: int, *, wait: bool) -> bool:
            raise AssertionError("joined")

        def send_parts(self, parts: list[Any], target: int, kind: int, *, wait: bool) -> bool:
            assert not wait, "the engine never blocks on a send"
            written.extend(parts)
            return True

    column = pa.array([1, 2, 3])
    RingChannel(Writer(), ArrowCodec()).send(1, [pa.record_batch({"n": column})])
    assert column.buffers()[1].address in {pa.py_buffer(part).address for part in written}


class FullOnce:
    """A ring that has no room the first time."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.full = True

    def send(self, data: Any, target: int, kind: int, *, wait: bool) -> bool:
        if self.full:
            self.full = False
            return False
        self.sent.append(bytes(data))
        return True

    def send_parts(self, parts: list[Any], target: int, kind: int, *, wait: bool) -> bool:
        return self.send(b"".join(parts), target, kind, wait=wait)


def test_a_jumbo_that_changed_while_it_waited_is_sent_as_it_is_now() -> None:
    writer, codec = FullOnce(), PickleCodec()
    channel = RingChannel(writer, codec)
    jumbo = ["record", "marker 10"]
    assert not channel.send(1, jumbo)
    jumbo[-1] = "marker 20"
    assert channel.send(1, jumbo)
    assert codec.decode(writer.sent[0]) == ["record", "marker 20"]
