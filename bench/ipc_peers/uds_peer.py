"""A Unix stream socket with four-byte length framing.

One sendmsg per message. The receiver reads whatever has arrived into one large buffer and cuts the
messages out of it, so that many small messages cost one system call.
"""

import socket
import struct
import tempfile
from pathlib import Path

from ipc_peers.peer import TIMEOUT_S, Inbox, Outbox, Payload, main

LENGTH = struct.Struct("<I")
SOCKET_BYTES = 4 << 20
READ_BYTES = 1 << 20


class UnixInbox(Inbox):
    """Accepts one connection and cuts it into messages."""

    def __init__(self, mode: str, ring_bytes: int, folder: str) -> None:
        self._path = Path(tempfile.mkdtemp(dir=folder)) / "socket"
        self.address = str(self._path)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.settimeout(TIMEOUT_S)
        self._server.bind(self.address)
        self._server.listen(1)
        self._socket: socket.socket | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._start = self._end = 0

    def prepare(self, size_bytes: int) -> None:
        if self._socket is None:
            self._socket, _ = self._server.accept()
            self._socket.settimeout(None)  # a timeout would add a poll to every call

    def receive(self) -> Payload:
        start = self._start
        if self._end - start < LENGTH.size:
            start = self._fill(LENGTH.size)
        frame_bytes = LENGTH.size + LENGTH.unpack_from(self._buffer, start)[0]
        if self._end - start < frame_bytes:
            start = self._fill(frame_bytes)
        self._start = start + frame_bytes
        return bytes(self._buffer[start + LENGTH.size : self._start])

    def _fill(self, needed_bytes: int) -> int:
        """Read until that many bytes follow the returned position."""
        assert self._socket is not None, "prepare() has not been called"
        rest = self._end - self._start
        if rest == 0 or READ_BYTES - self._start < needed_bytes:
            self._buffer[:rest] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, rest
        while self._end - self._start < needed_bytes:
            got = self._socket.recv_into(self._buffer[self._end :])
            if not got:
                raise EOFError("the sender has closed the socket")
            self._end += got
        return self._start

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._server.close()
        self._path.unlink()


class UnixOutbox(Outbox):
    """Connects and sends length and payload by one call."""

    def __init__(self, mode: str, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self._socket.connect(address)
        sendmsg, sendall, pack = self._socket.sendmsg, self._socket.sendall, LENGTH.pack

        def send(payload: Payload) -> None:
            length = pack(len(payload))
            sent = sendmsg((length, payload))
            if sent < LENGTH.size + len(payload):
                sendall(memoryview(length + payload)[sent:])

        self.send = send

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    main(UnixInbox, UnixOutbox)
