"""Lines over TCP.

Nothing is confirmed and nothing can be read twice: lines on their way when a worker or a
connection fails are lost.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.connectors.framing import MOST_LINE_BYTES, TEXT, Format, LineBuffer, LineError
from tailrace.graph.model import Record
from tailrace.runtime.sink import Sink
from tailrace.runtime.source import Reader, Source, Split, shares

_LOG = logging.getLogger(__name__)
_BLOCK_BYTES = 1 << 16
_LOOPBACK = "127.0.0.1"
_BACKLOG = 16


def backoff_ns(failures: int) -> int:
    """How long to wait after so many failures in a row: 0.1 s, twice that ..., at most 10 s.

    >>> [backoff_ns(failures) / 1e9 for failures in (1, 2, 3, 4, 50)]
    [0.1, 0.2, 0.4, 0.8, 10.0]
    """
    return int(min(0.1 * 2 ** min(failures - 1, 10), 10.0) * 1e9)


class _Connection:
    """A connected socket that gives records. Raises LineError for a line that is none."""

    def __init__(
        self, connected: socket.socket, peer: object, format: Format, most_line_bytes: int
    ) -> None:
        self.socket = connected
        self.peer = peer
        self._buffer = LineBuffer(most_line_bytes)
        self._parse = format.parser()

    def read(self, into: list[Record]) -> bool:
        """Add the records of what has come. False: the other side has closed."""
        try:
            block = self.socket.recv(_BLOCK_BYTES)
        except BlockingIOError:
            return True
        lines = self._buffer.feed(block) if block else self._buffer.rest()
        before = len(into)
        try:
            into.extend(map(self._parse, lines))
        except ValueError as error:
            bad = lines[len(into) - before]
            raise LineError(f"{error}; the line is {bad[:200]!r}") from error
        return bool(block)


class _SocketReader(Reader):
    """Waits on one epoll descriptor, which stays the same while connections come and go."""

    def __init__(self, pending: Sequence[Record] | None) -> None:
        self._epoll = select.epoll()
        self._pending: list[Record] = list(pending or ())

    def poll(self, most: int) -> list[Record] | None:
        if not self._pending and not self._receive():
            return None
        if len(self._pending) <= most:
            records, self._pending = self._pending, []
            return records
        records = self._pending[:most]
        del self._pending[:most]
        return records

    def _receive(self) -> bool:
        """Fill `_pending` with what has come. False: that was the end."""
        raise NotImplementedError

    def due_ns(self) -> int | None:
        return 0 if self._pending else None

    def fileno(self) -> int:
        return self._epoll.fileno()

    def position(self) -> list[Record]:
        """What has come and was not polled. The rest can be had nowhere but here."""
        return list(self._pending)

    def close(self) -> None:
        self._epoll.close()


@dataclass(frozen=True)
class Connect(Source):
    """Lines from a server.

    With `reconnect` the source has no end: when the connection ends or cannot be made, it tries
    again, after 0.1 s at first and at most 10 s. Without, it ends with the connection. The last
    line counts without a newline if the server closed in order. A line longer than
    `most_line_bytes` fails the job. The name of the host is looked up once.
    """

    host: str
    port: int
    format: Format = TEXT
    reconnect: bool = True
    most_line_bytes: int = MOST_LINE_BYTES

    def splits(self, parallelism: int) -> Sequence[Split]:
        """One: the connection."""
        if parallelism != 1:
            raise ValueError(
                f"parallelism of a connection to {self.host}:{self.port} is {parallelism}; "
                "it must be 1, because every connection would get all lines"
            )
        return shares(1)

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """Begin to connect. A position has the lines that had come; those under way are lost."""
        return _ConnectReader(self, clock_ns, position)


class _ConnectReader(_SocketReader):
    def __init__(self, source: Connect, clock_ns: Callable[[], int], pending: Any) -> None:
        super().__init__(pending)
        self._source = source
        self._clock_ns = clock_ns
        self._address = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)[0]
        self._connection: _Connection | None = None
        self._failures = 0
        self._retry_at_ns = 0
        self._ended = False

    def due_ns(self) -> int | None:
        if self._pending or self._ended:
            return 0
        return self._retry_at_ns if self._connection is None else None

    def _receive(self) -> bool:
        if self._connection is None:
            if self._ended:
                return False
            if self._clock_ns() < self._retry_at_ns:
                return True
        try:
            self._connection = self._connection or self._connect()
            is_open = self._connection.read(self._pending)
        except LineError as error:
            raise LineError(f"{self._source.host}:{self._source.port}: {error}") from error
        except OSError as error:
            self._lose(error)
        else:
            if self._pending:
                self._failures = 0
            if not is_open:
                self._lose(None)
        return bool(self._pending) or not self._ended

    def _connect(self) -> _Connection:
        family, kind, protocol, _, address = self._address
        connecting = socket.socket(family, kind, protocol)
        connecting.setblocking(False)
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        # What fails later is heard from the first read: a socket that failed is readable.
        failure = connecting.connect_ex(address)
        if failure not in (0, errno.EINPROGRESS):
            connecting.close()
            raise OSError(failure, os.strerror(failure))
        self._epoll.register(connecting, select.EPOLLIN)
        return _Connection(connecting, address, self._source.format, self._source.most_line_bytes)

    def _lose(self, error: OSError | None) -> None:
        if self._connection is not None:
            self._connection.socket.close()  # which also takes it out of the epoll
            self._connection = None
        if self._source.reconnect:
            self._failures += 1
            self._retry_at_ns = self._clock_ns() + backoff_ns(self._failures)
            return
        self._ended = True
        if error is not None:
            raise ConnectionError(
                f"the connection to {self._source.host}:{self._source.port} failed: {error}"
            ) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
        super().close()


@dataclass(frozen=True)
class Listen(Source):
    """Lines from whoever connects. Has no end.

    Share i, of as many as there are instances at the start, listens on `port + i` (or each on any
    free one, if `port` is 0), by default for this host alone. Connections above `most_connections`
    wait until others have closed. A client that sends what is no line (longer than
    `most_line_bytes`, not UTF-8, not JSON) is disconnected, with a warning in the log, and the
    others go on. It holds at most a block of 64 KiB and a line per connection that is not read.
    """

    port: int
    host: str = _LOOPBACK
    format: Format = TEXT
    most_connections: int = 64
    most_line_bytes: int = MOST_LINE_BYTES

    def open(self, split: Split, clock_ns: Callable[[], int], position: Any = None) -> Reader:
        """Begin to listen. A position has the lines that had come; connections do not move."""
        return ListenReader(self, self.port + split.index if self.port else 0, position)


class ListenReader(_SocketReader):
    """The connections of one listening instance."""

    def __init__(self, source: Listen, port: int, pending: Any = None) -> None:
        super().__init__(pending)
        self._source = source
        self._connections: dict[int, _Connection] = {}
        family = socket.getaddrinfo(source.host, port, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((source.host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._epoll.register(self._listener, select.EPOLLIN)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def _receive(self) -> bool:
        for descriptor, _ in self._epoll.poll(0):
            if descriptor == self._listener.fileno():
                self._accept()
            else:
                self._read(descriptor)
        return True

    def _accept(self) -> None:
        try:
            connected, peer = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # gone before it was accepted
            return
        connected.setblocking(False)
        self._connections[connected.fileno()] = _Connection(
            connected, peer, self._source.format, self._source.most_line_bytes
        )
        self._epoll.register(connected, select.EPOLLIN)
        if len(self._connections) == self._source.most_connections:
            self._epoll.unregister(self._listener)

    def _read(self, descriptor: int) -> None:
        connection = self._connections[descriptor]
        try:
            if connection.read(self._pending):
                return
        except LineError as error:
            _LOG.warning("disconnected %s: %s", connection.peer, error)
        except OSError as error:
            _LOG.info("lost the connection from %s: %s", connection.peer, error)
        connection.socket.close()
        del self._connections[descriptor]
        if len(self._connections) == self._source.most_connections - 1:
            self._epoll.register(self._listener, select.EPOLLIN)

    def close(self) -> None:
        """Disconnect everybody."""
        for connection in self._connections.values():
            connection.socket.close()
        self._listener.close()
        super().close()


@dataclass
class Send(Sink):
    """Lines to a server, over one connection per instance.

    A server that takes nothing holds up the worker, for at most `timeout_s`; then the write fails.
    """

    host: str
    port: int
    format: Format = TEXT
    timeout_s: float = 10.0
    _socket: socket.socket | None = field(default=None, init=False, repr=False)
    _encode: Callable[[Record], bytes] = field(init=False, repr=False)
    _lines: list[bytes] = field(init=False, repr=False)

    def open(self, index: int, parallelism: int) -> None:
        """Connect."""
        self._encode = self.format.encoder()
        self._lines = []
        try:
            self._socket = socket.create_connection((self.host, self.port), self.timeout_s)
        except OSError as error:
            raise ConnectionError(f"no connection to {self.host}:{self.port}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, records: Iterator[Record]) -> None:
        """Send a line for each."""
        assert self._socket is not None, "not open"
        # Lines before a record that raises stay in the list, for the next call.
        self._lines.extend(map(self._encode, records))
        if not self._lines:
            return
        self._lines.append(b"")
        block = b"\n".join(self._lines)
        self._lines.clear()
        try:
            self._socket.sendall(block)
        except OSError as error:
            raise ConnectionError(
                f"sending {len(block)} bytes to {self.host}:{self.port} failed: {error!r}"
            ) from error

    def finish(self) -> None:
        """Tell the server that this is all."""
        assert self._socket is not None, "not open"
        self.write(iter(()))
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._socket.close()
