"""Channels: the one face of everything that carries jumbos to another worker.

The code that sends does not know whether the receiver lives on the same node or on another one.
Inside a worker there is no channel: its core hands the list itself to the receiving instance.
"""

from __future__ import annotations

from operator import is_
from typing import Any, Protocol

from tailrace.transport.codec import Codec
from tailrace.transport.frame import Buffer
from tailrace.transport.tcp import TcpConnection


class Channel(Protocol):
    """Carries jumbos from one sender to the instances of one worker, in order for each target.

    A jumbo that was taken belongs to the channel: neither the list nor its records may be changed
    afterwards, whoever still holds them.
    """

    def send(self, target: int, records: list[Any]) -> bool:
        """Take a jumbo for an instance; False, and nothing taken, when there is no room.

        Never blocks. To try again later, pass the same list; it may hold other records by then.
        Raises ValueError for a jumbo that can never fit, CodecError for records that cannot be
        encoded, and ConnectionError when the channel is closed or its connection lost.
        """
        ...

    def flush(self) -> None:
        """Let go of what was taken: call it when a round's sends are done."""
        ...

    def close(self) -> None:
        """End sending. What was taken is still delivered; what lies beneath stays open."""
        ...


class RingWriter(Protocol):
    """What a channel needs of a ring's writing end."""

    def send(self, data: Buffer, target: int, kind: int, *, wait: bool) -> bool:
        """Write one message; False when the ring is full and `wait` is false."""
        ...

    def send_parts(self, parts: list[Any], target: int, kind: int, *, wait: bool) -> bool:
        """Write several buffers one after the other as one message."""
        ...


class _EncodingChannel:
    """Encodes each jumbo once, however often it has to be tried."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._closed = False
        self.encoded_bytes = 0
        """The size of the jumbo that was last tried to send."""
        # By target: the jumbo that found no room, what it held when encoded, and its encoding.
        self._waiting: dict[int, tuple[list[Any], list[Any], list[Buffer]]] = {}

    def send(self, target: int, records: list[Any]) -> bool:
        """Encode and write."""
        if self._closed:
            raise ConnectionError("channel is closed")
        waiting = self._waiting.pop(target, None) if self._waiting else None
        if (
            waiting
            and waiting[0] is records
            and len(waiting[1]) == len(records)
            and all(map(is_, waiting[1], records))
        ):
            buffers = waiting[2]
        else:
            buffers = self._codec.encode(records)
        self.encoded_bytes = sum(map(len, buffers))
        if self._write(target, buffers):
            return True
        self._waiting[target] = records, records.copy(), buffers
        return False

    def close(self) -> None:
        """End sending."""
        self._closed = True
        self._waiting.clear()

    def _write(self, target: int, buffers: list[Buffer]) -> bool:
        raise NotImplementedError


class RingChannel(_EncodingChannel):
    """Through shared memory, to a worker of the same node: one copy, into the ring."""

    def __init__(self, writer: RingWriter, codec: Codec) -> None:
        super().__init__(codec)
        self._writer = writer

    def flush(self) -> None:
        """Nothing waits here: a written message can be read."""

    def _write(self, target: int, buffers: list[Buffer]) -> bool:
        if len(buffers) == 1:
            return self._writer.send(buffers[0], target, self._codec.kind, wait=False)
        return self._writer.send_parts(buffers, target, self._codec.kind, wait=False)


class TcpChannel(_EncodingChannel):
    """Through a connection, to a worker of another node: queued, and written by `flush`."""

    def __init__(self, connection: TcpConnection, codec: Codec) -> None:
        super().__init__(codec)
        self._connection = connection

    def flush(self) -> None:
        """Write what the socket takes now; the connection's loop writes the rest."""
        self._connection.flush()

    def _write(self, target: int, buffers: list[Buffer]) -> bool:
        return self._connection.send(target, self._codec.kind, buffers)
