"""Where the other nodes' workers connect to."""

from __future__ import annotations

import errno
import random
import select
import socket
from dataclasses import replace
from ipaddress import ip_address

from tailrace.transport.auth import NONCE_BYTES, Handshake, Role
from tailrace.transport.identity import Identity
from tailrace.transport.stream import PlainStream, TlsStream
from tailrace.transport.tcp import Address, Refusals, TcpConfig, TcpConnection

Ports = tuple[int, int]
"""The first and the last port of a range."""

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_TEND_NS = 100_000_000
_AWAKE_NS = 1_000_000_000
"""What counts at most of the time between two looks: who did not look cannot blame others."""


class TcpListener:
    """Accepts connections at one address; driven from the same epoll loop as they are.

    At most `max_connections` live at a time, of which at most `max_unauthenticated` have not
    proven who they are. When there is no room, a newcomer takes the place of the connection that
    has been a stranger for longest, and is refused when there is none: idle strangers can keep
    nobody out, and no authenticated connection ever gives way. Who has not proven itself after
    `handshake_ms` is refused; a time in which the loop did something else does not count.
    """

    def __init__(
        self,
        config: TcpConfig,
        address: Address,
        refusals: Refusals,
        *,
        identity: Identity | None = None,
        ports: Ports | None = None,
    ) -> None:
        """Listen at a numeric host and port, never at every interface.

        Port 0 is any free one, of the range `ports` if there is one. With an `identity` all
        connections go by TLS.
        """
        host = ip_address(address[0])
        if host.is_unspecified:
            raise ValueError(f"host is {address[0]}; listen at one address, not at all of them")
        self._config = config
        self._refusals = refusals
        self._tls = identity.context() if identity else None
        self._connections: list[TcpConnection] = []
        self._exhausted = False
        self._watched = select.EPOLLIN
        self._looked_ns = config.clock_ns()
        self._awake_ns = 0
        self._sock = self._listen(address, ports)
        self.address: Address = self._sock.getsockname()[:2]

    def _listen(self, address: Address, ports: Ports | None) -> socket.socket:
        host, port = address
        if port or ports is None:
            return self._listen_at(address)
        candidates = range(ports[0], ports[1] + 1)
        first = random.randrange(len(candidates))  # workers of a host start at the same time
        for candidate in [*candidates[first:], *candidates[:first]]:
            try:
                return self._listen_at((host, candidate))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(
            errno.EADDRINUSE,
            f"none of the {len(candidates)} ports from {ports[0]} to {ports[1]} is free at {host};"
            " each worker of a host and the coordinator need one: give a larger range",
        )

    def _listen_at(self, address: Address) -> socket.socket:
        family = socket.AF_INET6 if ip_address(address[0]).version == 6 else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(self._config.max_unauthenticated)
        except BaseException:
            sock.close()
            raise
        return sock

    @property
    def events(self) -> int:
        """The epoll mask to register: none while the process is out of descriptors."""
        return 0 if self._exhausted else select.EPOLLIN

    def fileno(self) -> int:
        """The descriptor to register with epoll; -1 once closed."""
        return self._sock.fileno()

    def expect(self, connections: int, strangers: int) -> None:
        """Let in so many from now on, of whom so many may not have proven yet who they are."""
        self._config = replace(
            self._config, max_connections=connections, max_unauthenticated=strangers
        )

    def on_ready(self) -> list[TcpConnection]:
        """Return new connections, for the loop to register; none is authenticated yet."""
        accepted = []
        for _ in range(self._config.max_unauthenticated):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    # It stays readable: without a pause the loop would spin on it.
                    self._exhausted = True
                    self._refusals.note("exhausted", str(error))
                    break
                continue  # this one was gone before it was accepted
            sock.setblocking(False)
            connection = self._adopt(sock, address[:2])
            if self._make_room():
                self._connections.append(connection)
                accepted.append(connection)
            else:
                connection.refuse(
                    "too_many", f"{len(self._connections)} connections are authenticated already"
                )
        return [connection for connection in accepted if not connection.closed]

    def tend(self, epoll: select.epoll | None = None) -> bool:
        """Refuse strangers whose time is over; call it after every look at the sockets.

        Costs next to nothing if it was called just now. An `epoll` that the listener is registered
        with stops watching it while the process is out of descriptors. Returns whether
        connections were closed.
        """
        now_ns = self._config.clock_ns()
        closed = False
        if now_ns - self._looked_ns >= _TEND_NS:
            self._awake_ns += min(now_ns - self._looked_ns, _AWAKE_NS)
            self._looked_ns = now_ns
            self._exhausted = False
            before = len(self._connections)
            for connection in self._connections:
                connection.check_deadline()
            self._forget_closed()
            closed = len(self._connections) < before
        if epoll is not None and self._watched != self.events:
            self._watched = self.events
            epoll.modify(self._sock.fileno(), self._watched)
        return closed

    def close(self) -> None:
        """Stop listening. Connections stay; they belong to the loop."""
        self._sock.close()

    def _adopt(self, sock: socket.socket, address: Address) -> TcpConnection:
        config = self._config
        handshake = Handshake(
            Role.ACCEPTOR,
            config.secret,
            config.worker_id,
            nonce=config.random_bytes(NONCE_BYTES),
            guest=config.guest,
        )
        return TcpConnection(
            config,
            sock,
            TlsStream(sock, self._tls) if self._tls else PlainStream(sock),
            handshake,
            address,
            self._refusals,
            connecting=False,
            clock_ns=lambda: self._awake_ns,
        )

    def _make_room(self) -> bool:
        """Return whether there is room for one more, at the cost of the oldest stranger."""
        self._forget_closed()
        strangers = [c for c in self._connections if not c.authenticated]
        if (
            len(self._connections) < self._config.max_connections
            and len(strangers) < self._config.max_unauthenticated
        ):
            return True
        if not strangers:
            return False
        strangers[0].refuse("displaced", f"one of {len(strangers)} that are not authenticated")
        self._forget_closed()
        return True

    def _forget_closed(self) -> None:
        self._connections = [c for c in self._connections if not c.closed]


def check_ports(ports: Ports | None) -> Ports | None:
    """The range as it was given; raises if it is none.

    >>> check_ports((40000, 40100))
    (40000, 40100)
    """
    if ports is None:
        return None
    whole = isinstance(ports, tuple | list) and [type(port) for port in ports] == [int, int]
    if not whole or not 1 <= ports[0] <= ports[1] <= 65535:
        raise ValueError(
            f"ports is {ports!r}; it must be the first and the last of a range, as (40000, 40100)"
        )
    return ports[0], ports[1]
