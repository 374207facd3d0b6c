"""A small world of TCP connections in one epoll loop, for tests."""

from __future__ import annotations

import gc
import select
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.transport.auth import HELLO_BYTES, PROOF_BYTES, Handshake, Role
from tailrace.transport.frame import Frame
from tailrace.transport.identity import Identity
from tailrace.transport.listener import TcpListener
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

STUCK_AFTER_S = 30  # a hang becomes a failure; no test waits for it
DIALER_ID, ACCEPTOR_ID = 1, 2


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class World:
    """A listener, its connections and those who dial it, all in one epoll loop."""

    def __init__(self, **limits: Any) -> None:
        self.identity: Identity | None = limits.pop("identity", None)
        self.clock = Clock()
        self.config = TcpConfig(
            worker_id=ACCEPTOR_ID, secret=b"secret of the job", clock_ns=self.clock, **limits
        )
        self.refusals = Refusals(self.clock)
        self.listener = TcpListener(
            self.config, ("127.0.0.1", 0), self.refusals, identity=self.identity
        )
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), self.listener.events)
        self.connections: dict[int, TcpConnection] = {}
        self.accepted: list[TcpConnection] = []
        self.received: dict[TcpConnection, list[Frame]] = {}
        self.strangers: list[socket.socket] = []

    def __enter__(self) -> World:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for stranger in self.strangers:
            stranger.close()
        for connection in [*self.connections.values(), *self.accepted]:
            connection.close()
        self.listener.close()
        self.epoll.close()

    def adopt(self, connection: TcpConnection) -> TcpConnection:
        self.received[connection] = []
        if not connection.closed:
            self.connections[connection.fileno()] = connection
            self.epoll.register(connection.fileno(), connection.events)
        return connection

    def dial(self, peer_id: int = ACCEPTOR_ID, **options: Any) -> TcpConnection:
        config = replace(self.config, worker_id=DIALER_ID, **options.pop("config", {}))
        address = options.pop("address", self.listener.address)
        refusals = options.pop("refusals", Refusals(self.clock))
        return self.adopt(TcpConnection.connect(config, address, peer_id, refusals, **options))

    def stranger(self, *messages: bytes) -> socket.socket:
        """A plain blocking socket that says whatever it likes."""
        sock = socket.create_connection(self.listener.address, timeout=STUCK_AFTER_S)
        self.strangers.append(sock)
        for message in messages:
            sock.sendall(message)
        return sock

    def wait(self, time_s: float) -> None:
        """Time passes, with the listener awake."""
        for _ in range(round(time_s * 10)):
            self.clock.now_ns += 100_000_000
            self.listener.tend(self.epoll)

    def pair(self) -> tuple[TcpConnection, TcpConnection]:
        dialer = self.dial()
        self.run(lambda: dialer.authenticated and self.accepted[-1].authenticated)
        return dialer, self.accepted[-1]

    def run(self, done: Callable[[], bool]) -> None:
        """Drive the loop until something is true."""
        while not done():
            for descriptor, connection in list(self.connections.items()):
                if connection.closed:
                    del self.connections[descriptor]
                else:
                    self.epoll.modify(descriptor, connection.events)
            ready = self.epoll.poll(STUCK_AFTER_S)
            assert ready, "nothing happens any more"
            for descriptor, events in ready:
                if descriptor == self.listener.fileno():
                    for connection in self.listener.on_ready():
                        self.accepted.append(self.adopt(connection))
                elif descriptor in self.connections:
                    connection = self.connections[descriptor]
                    self.received[connection] += connection.on_ready(events)

    def run_until_received(self, connection: TcpConnection, count: int) -> list[Frame]:
        self.run(lambda: len(self.received[connection]) >= count or connection.closed)
        frames, self.received[connection] = self.received[connection], []
        return frames

    def run_until_refused(self, reason: str, count: int = 1) -> None:
        self.run(lambda: self.refusals.counts().get(reason, 0) >= count)
        assert set(self.refusals.counts()) == {reason}


def authenticated_peer(world: World) -> tuple[socket.socket, bytes]:
    """A peer whose later bytes the test chooses, and what it said to be let in."""
    handshake = Handshake(
        Role.DIALER, world.config.secret, DIALER_ID, peer_id=ACCEPTOR_ID, nonce=bytes(32)
    )
    before = len(world.accepted)
    sock = world.stranger(handshake.opening)
    world.run(lambda: len(world.accepted) > before and bool(select.select([sock], [], [], 0)[0]))
    reply, _ = handshake.feed(sock.recv(HELLO_BYTES + PROOF_BYTES, socket.MSG_WAITALL))
    sock.sendall(reply)
    world.run(lambda: world.accepted[-1].authenticated)
    return sock, handshake.opening + reply


def descriptors() -> set[str]:
    gc.collect()  # what earlier tests left in cycles is not ours to count
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}
