"""A worker's ways to the others: a ring each where memory is shared, TCP where it is not."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.runtime.outlet import Item, Marker
from tailrace.transport import flat
from tailrace.transport.channel import RingChannel, TcpChannel
from tailrace.transport.codec import CodecError, PickleCodec
from tailrace.transport.frame import Buffer
from tailrace.transport.ring import Writer
from tailrace.transport.tcp import TcpConnection

KIND_CREDIT = 15
_CREDIT = struct.Struct("<IQ")


class OversizedError(ValueError):
    """One record is more than a message can hold."""

    def __init__(self, link: int, error: ValueError) -> None:
        super().__init__(str(error))
        self.link = link


class JumboCodec(PickleCodec):
    """Items with the time they were sent in front: text and bytes flat, all else by pickle."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        super().__init__()
        self._clock_ns = clock_ns

    def encode(self, records: list[Any]) -> list[Buffer]:
        """Stamp and lay out."""
        sent_ns = self._clock_ns()
        flattened = flat.encode([(sent_ns, []), *records])
        return super().encode([sent_ns, records]) if flattened is None else [flattened]

    def decode(self, payload: bytes | memoryview) -> list[Any]:
        """Return the time and the items."""
        if payload[0] != flat.TAG:
            return super().decode(payload)
        try:
            (sent_ns, _), *items = flat.decode(bytes(payload))
        except ValueError as error:
            raise CodecError(str(error)) from error
        return [sent_ns, items]


def halves(items: list[Item]) -> list[list[Item]]:
    """The same items as two messages of half the records each; one, if there is one record."""
    records = sum(len(item[1]) for item in items if not isinstance(item, Marker))
    if records < 2:
        return [items]
    first: list[Item] = []
    left = records // 2
    for position, item in enumerate(items):
        if isinstance(item, Marker):
            first.append(item)
        elif len(item[1]) < left:
            first.append(item)
            left -= len(item[1])
        else:
            emitted_ns, both = item
            first.append((emitted_ns, both[:left]))
            rest: list[Item] = [(emitted_ns, both[left:])] if len(both) > left else []
            return [first, rest + items[position + 1 :]]
    raise AssertionError("the middle record was not found")


class Peer:
    """One other worker."""

    def __init__(self, way: RingChannel | TcpChannel, raw: Writer | TcpConnection) -> None:
        self._channel = way
        self._raw = raw
        self._pieces: dict[int, deque[list[Item]]] = {}  # of jumbos too large for one message
        self._credits: dict[int, int] = {}

    @classmethod
    def by_ring(cls, writer: Writer, codec: JumboCodec) -> Peer:
        """A worker on this node."""
        return cls(RingChannel(writer, codec), writer)

    @classmethod
    def by_tcp(cls, connection: TcpConnection, codec: JumboCodec) -> Peer:
        """A worker elsewhere."""
        return cls(TcpChannel(connection, codec), connection)

    def send(self, link: int, items: list[Item]) -> int:
        """Send a jumbo and return its size; 0 when there is no room.

        One that is too large goes in pieces. Raises OversizedError for a record that is.
        """
        if self._pieces and not self._send_pieces(link):
            return 0
        try:
            return self._channel.encoded_bytes if self._channel.send(link, items) else 0
        except CodecError:
            raise  # no piece of it would be better
        except ValueError:
            size_bytes = self._channel.encoded_bytes
        self._pieces[link] = deque([items])
        self._send_pieces(link)
        return size_bytes

    def _send_pieces(self, link: int) -> bool:
        """Send what is left of a jumbo, in the largest pieces that fit; whether all is sent."""
        pieces = self._pieces.get(link)
        while pieces:
            try:
                if not self._channel.send(link, pieces[0]):
                    return False
                pieces.popleft()
            except ValueError as error:
                both = halves(pieces[0])
                if len(both) == 1:
                    raise OversizedError(link, error) from error
                pieces[0] = both[0]
                pieces.insert(1, both[1])
        self._pieces.pop(link, None)
        return True

    def credit(self, link: int, taken: int) -> None:
        """Let that worker know, by the next flush, how many of a link's records were taken."""
        self._credits[link] = taken

    def flush(self) -> None:
        """Send pieces and credits as far as there is room, and write what is queued.

        Raises ConnectionError when the other worker cannot be reached any more.
        """
        if isinstance(self._raw, TcpConnection) and self._raw.closed:
            raise ConnectionError(f"lost a worker at {self._raw.address}: {self._raw.close_reason}")
        for link in list(self._pieces):
            self._send_pieces(link)
        if self._credits:
            payload = b"".join(_CREDIT.pack(*credit) for credit in self._credits.items())
            if isinstance(self._raw, Writer):
                sent = self._raw.send(payload, 0, KIND_CREDIT, wait=False)
            else:
                sent = self._raw.send(0, KIND_CREDIT, [payload])
            if sent:
                self._credits.clear()
        self._channel.flush()

    @property
    def connection(self) -> TcpConnection | None:
        """Its connection, if it is reached by one."""
        return self._raw if isinstance(self._raw, TcpConnection) else None

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        queued = isinstance(self._raw, TcpConnection) and self._raw.pending_bytes
        return bool(self._pieces or self._credits or queued)

    def close(self) -> None:
        """End sending."""
        self._channel.close()
        self._raw.close()


def credits_in(payload: bytes | memoryview) -> list[tuple[int, int]]:
    """The (link, taken) pairs of a credit message."""
    return list(_CREDIT.iter_unpack(payload))
