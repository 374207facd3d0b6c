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


def _singly(items: list[Item]) -> deque[list[Item]]:
    """The same items, one record in each."""
    pieces: deque[list[Item]] = deque()
    for item in items:
        if isinstance(item, Marker):
            pieces.append([item])
        else:
            pieces.extend([(item[0], [record])] for record in item[1])
    return pieces


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

    def send(self, link: int, items: list[Item]) -> bool:
        """Send a jumbo; False when there is no room. One that is too large goes in pieces."""
        if self._pieces and not self._send_pieces(link):
            return False
        try:
            return self._channel.send(link, items)
        except ValueError:
            pieces = _singly(items)
            if len(pieces) == 1:
                raise
        self._pieces[link] = pieces
        self._send_pieces(link)
        return True

    def _send_pieces(self, link: int) -> bool:
        pieces = self._pieces.get(link)
        while pieces:
            if not self._channel.send(link, pieces[0]):
                return False
            pieces.popleft()
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
