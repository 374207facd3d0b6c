"""multiprocessing's pipe: Connection.send_bytes and recv_bytes, no pickling.

The peers have no parent that could call Pipe() for them, so they open a FIFO: the same kernel pipe,
under a name. It is widened to the most that an unprivileged process may ask for.
"""

import fcntl
import os
import tempfile
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path

from ipc_peers.peer import Inbox, Outbox, Payload, main

PIPE_BYTES = 1 << 20


class PipeInbox(Inbox):
    """Reads a FIFO as a multiprocessing connection."""

    def __init__(self, mode: str, ring_bytes: int, folder: str) -> None:
        self._path = Path(tempfile.mkdtemp(dir=folder)) / "fifo"
        self.address = str(self._path)
        os.mkfifo(self._path, 0o600)
        # Non-blocking only while it opens, before the sender does.
        fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(fd, True)
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._connection = Connection(fd, writable=False)

    def receive(self) -> Payload:
        return self._connection.recv_bytes()

    def receive_count(self, count: int) -> None:
        receive = self._connection.recv_bytes
        for _ in repeat(None, count):
            receive()

    def close(self) -> None:
        self._connection.close()
        self._path.unlink()


class PipeOutbox(Outbox):
    """Writes a FIFO as a multiprocessing connection."""

    def __init__(self, mode: str, address: str) -> None:
        self._connection = Connection(os.open(address, os.O_WRONLY), readable=False)
        self.send = self._connection.send_bytes

    def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    main(PipeInbox, PipeOutbox)
