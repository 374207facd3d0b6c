"""A process of its own that gets all results over TCP, and notes when they were there.

    python receiver.py MOST

Prints its port. Senders first send their process id, then the numbers of the records whose results
they have; all in native 8-byte integers. When its input ends it prints what it has seen of each
connection: the sender, when it came, when its first result did, and when its first new one, which
nobody had sent before. Times are of the monotonic clock, in ns, as it read them from the socket.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from array import array
from dataclasses import asdict, dataclass


@dataclass
class Sender:
    """What one connection has brought."""

    pid: int = 0
    came_ns: int = 0
    first_ns: int = 0
    first_new_ns: int = 0
    results: int = 0
    new: int = 0


class Connection:
    """One socket, and what is not whole yet."""

    def __init__(self, receives: socket.socket) -> None:
        self.socket = receives
        self.sender = Sender(came_ns=time.monotonic_ns())
        self._rest = b""

    def read(self, seen: bytearray) -> bool:
        """Take what is there; False: it has ended."""
        try:
            chunk = self.socket.recv(1 << 16)
        except ConnectionError:
            chunk = b""
        at_ns = time.monotonic_ns()
        if not chunk:
            return False
        chunk = self._rest + chunk
        whole = len(chunk) - len(chunk) % 8
        self._rest = chunk[whole:]
        numbers = array("q")
        numbers.frombytes(chunk[:whole])
        sender = self.sender
        if not sender.pid and numbers:
            sender.pid = numbers.pop(0)
        if numbers and not sender.first_ns:
            sender.first_ns = at_ns
        for number in numbers:
            if not seen[number]:
                seen[number] = 1
                sender.first_new_ns = sender.first_new_ns or at_ns
                sender.new += 1
        sender.results += len(numbers)
        return True


def main(most: int) -> None:
    """Until the end of the input."""
    seen = bytearray(most)
    senders: list[Sender] = []
    with selectors.DefaultSelector() as selector, socket.create_server(("127.0.0.1", 0)) as server:
        selector.register(server, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        print(json.dumps({"port": server.getsockname()[1]}), flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is server:
                    connection = Connection(server.accept()[0])
                    senders.append(connection.sender)
                    selector.register(connection.socket, selectors.EVENT_READ, connection)
                elif key.data is None:
                    sys.stdin.readline()
                    print(json.dumps({"senders": [asdict(one) for one in senders]}), flush=True)
                    return
                elif not key.data.read(seen):
                    selector.unregister(key.fileobj)
                    key.data.socket.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
