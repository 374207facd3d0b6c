"""What a worker's one epoll watches: its doorbell, its listener, its connections, its sources."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from tailrace.transport.frame import Frame
from tailrace.transport.listener import TcpListener
from tailrace.transport.ring import Doorbell, wait_on
from tailrace.transport.tcp import TcpConnection

LOOK_AROUND_NS = 5_000_000
"""Who is busy looks at its sockets this often,"""
LOOK_AT_OTHERS_NS = 100_000
"""and this often if others than the coordinator are connected."""
OnFrame = Callable[[TcpConnection, Frame], None]


class Sockets:
    """Serves all sockets of a worker; what comes for it goes to `on_frame`, in the order it came.

    Connections stay watched until they are closed. The descriptors of sources belong to their
    readers, who may close or change them at any time: they are watched during a sleep only.
    """

    def __init__(self, doorbell: Doorbell, on_frame: OnFrame) -> None:
        self._doorbell = doorbell
        self._on_frame = on_frame
        self._epoll = select.epoll()
        self._epoll.register(doorbell.fileno(), select.EPOLLIN)
        self._connections: dict[int, TcpConnection] = {}
        self._events: dict[int, int] = {}  # what the epoll watches each connection for
        self._listener: TcpListener | None = None
        self._looked_ns = 0

    def watch(self, connection: TcpConnection) -> None:
        """Serve a connection until it is closed."""
        if not connection.closed:
            fd = connection.fileno()
            self._connections[fd] = connection
            self._events[fd] = connection.events
            self._epoll.register(fd, connection.events)

    def listen(self, listener: TcpListener) -> None:
        """Accept and serve who connects."""
        self._listener = listener
        self._epoll.register(listener.fileno(), listener.events)

    def expect(self, connections: int, strangers: int) -> None:
        """See `TcpListener.expect`."""
        if self._listener is not None:
            self._listener.expect(connections, strangers)

    def await_room(self, connection: TcpConnection) -> None:
        """Have the epoll watch for what a connection waits for now."""
        if not connection.closed:
            fd, events = connection.fileno(), connection.events
            if self._events[fd] != events:
                self._epoll.modify(fd, events)
                self._events[fd] = events

    def fileno(self) -> int:
        """What is readable when one of them wants something, or the bell was rung."""
        return self._epoll.fileno()

    @property
    def due_ns(self) -> int:
        """When to look again, busy or not, by the host's own clock."""
        return self._looked_ns + (
            LOOK_AT_OTHERS_NS if len(self._connections) > 1 else LOOK_AROUND_NS
        )

    def sleep(self, most_s: float, sources: Iterable[int] = ()) -> bool:
        """Until the bell rings, something can be served, a source has something, or so long.

        False: the time is over.
        """
        if not sources:
            return wait_on(self._epoll.fileno(), most_s)
        watched = []
        for fd in sources:
            with suppress(OSError):  # a file, say, which is always readable
                self._epoll.register(fd, select.EPOLLIN)
                watched.append(fd)
        try:
            return wait_on(self._epoll.fileno(), most_s)
        finally:
            for fd in watched:
                with suppress(OSError):  # another thread has closed it meanwhile
                    self._epoll.unregister(fd)

    def look(self) -> bool:
        """Do what the sockets ask for now; whether something came: no bell rings for that again."""
        self._looked_ns = time.monotonic_ns()
        listener, came = self._listener, False
        for fd, events in self._epoll.poll(0):
            if fd == self._doorbell.fileno():
                self._doorbell.clear()
            elif listener is not None and fd == listener.fileno():
                for connection in listener.on_ready():
                    self.watch(connection)
            elif fd in self._connections:
                came |= self._serve(fd, events)
        if listener is not None and listener.tend(self._epoll):
            self._forget_closed()
        return came

    def _serve(self, fd: int, events: int) -> bool:
        connection = self._connections[fd]
        frames = connection.on_ready(events)
        for frame in frames:
            self._on_frame(connection, frame)
        if connection.closed:
            del self._connections[fd]
            del self._events[fd]
        else:
            self.await_room(connection)
        return bool(frames)

    def _forget_closed(self) -> None:
        """Those that were closed by others than the epoll; their descriptors may be used again."""
        for fd, connection in list(self._connections.items()):
            if connection.closed:
                del self._connections[fd]
                del self._events[fd]

    def forget(self, connection: TcpConnection) -> None:
        """Leave a connection to its owner: neither serve nor close it."""
        for fd, known in list(self._connections.items()):
            if known is connection:
                del self._connections[fd]
                del self._events[fd]
                if not connection.closed:
                    self._epoll.unregister(fd)

    def close(self) -> None:
        """Close the listener and all connections."""
        for connection in self._connections.values():
            connection.close()
        if self._listener is not None:
            self._listener.close()
        self._epoll.close()
