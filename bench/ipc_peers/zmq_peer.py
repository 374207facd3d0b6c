"""ZeroMQ over ipc://, PUSH to PULL, through pyzmq.

From pyzmq's own threshold on, messages are received without the copy into bytes.
"""

import tempfile
from itertools import repeat
from pathlib import Path

import zmq

from ipc_peers.peer import TIMEOUT_S, Inbox, Outbox, Payload, main


class ZmqInbox(Inbox):
    """A bound PULL socket."""

    def __init__(self, mode: str, ring_bytes: int, folder: str) -> None:
        self._path = Path(tempfile.mkdtemp(dir=folder)) / "socket"
        self.address = f"ipc://{self._path}"
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        self._socket.set(zmq.RCVTIMEO, int(TIMEOUT_S * 1000))
        self._socket.bind(self.address)
        self._in_place = False

    def prepare(self, size_bytes: int) -> None:
        self._in_place = size_bytes >= zmq.COPY_THRESHOLD

    def receive(self) -> Payload:
        if self._in_place:
            return self._socket.recv(copy=False).buffer
        return self._socket.recv()

    def receive_count(self, count: int) -> None:
        receive = self._socket.recv
        for _ in repeat(None, count):
            receive()

    def close(self) -> None:
        self._socket.close(linger=0)
        self._path.unlink(missing_ok=True)


class ZmqOutbox(Outbox):
    """A connected PUSH socket."""

    def __init__(self, mode: str, address: str) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.set(zmq.SNDTIMEO, int(TIMEOUT_S * 1000))
        self._socket.connect(address)
        self.send = self._socket.send

    def close(self) -> None:
        self._socket.close(linger=1000)


if __name__ == "__main__":
    main(ZmqInbox, ZmqOutbox)
