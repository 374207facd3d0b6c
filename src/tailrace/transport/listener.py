"""Where the other nodes' workers connect to."""

from __future__ import annotations

import errno
import select
import socket
import ssl
from ipaddress import ip_address

from tailrace.transport.auth import NONCE_BYTES, Handshake, Role
from tailrace.transport.stream import PlainStream, TlsStream
from tailrace.transport.tcp import Address, Refusals, TcpConfig, TcpConnection

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class TcpListener:
    """Accepts connections at one address; driven from the same epoll loop as they are.

    At most `max_connections` live at a time, of which at most `max_unauthenticated` have not
    proven who they are. When there is no room, a newcomer takes the place of the connection that
    has been a stranger for longest, and is refused when there is none: idle strangers can keep
    nobody out, and no authenticated connection ever gives way.
    """

    def __init__(
        self,
        config: TcpConfig,
        address: Address,
        refusals: Refusals,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Listen at a numeric host and port (0: any free one); never at every interface."""
        host = ip_address(address[0])
        if host.is_unspecified:
            raise ValueError(f"host is {address[0]}; listen at one address, not at all of them")
        if tls is not None and tls.protocol is not ssl.PROTOCOL_TLS_SERVER:
            raise ValueError(f"the TLS context is for {tls.protocol!r}; it must be for a server")
        self._config = config
        self._refusals = refusals
        self._tls = tls
        self._connections: list[TcpConnection] = []
        self._exhausted = False
        family = socket.AF_INET6 if host.version == 6 else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind(address)
            self._sock.listen(config.max_unauthenticated)
            self.address: Address = self._sock.getsockname()[:2]
        except BaseException:
            self._sock.close()
            raise

    @property
    def events(self) -> int:
        """The epoll mask to register: none while the process is out of descriptors."""
        return 0 if self._exhausted else select.EPOLLIN

    def fileno(self) -> int:
        """The descriptor to register with epoll; -1 once closed."""
        return self._sock.fileno()

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

    def check_deadlines(self) -> None:
        """Refuse strangers whose time is over; call now and then."""
        self._exhausted = False
        for connection in self._connections:
            connection.check_deadline()
        self._forget_closed()

    def close(self) -> None:
        """Stop listening. Connections stay; they belong to the loop."""
        self._sock.close()

    def _adopt(self, sock: socket.socket, address: Address) -> TcpConnection:
        config = self._config
        nonce = config.random_bytes(NONCE_BYTES)
        handshake = Handshake(Role.ACCEPTOR, config.secret, config.worker_id, nonce=nonce)
        stream = TlsStream(sock, self._tls, server_side=True) if self._tls else PlainStream(sock)
        return TcpConnection(
            config, sock, stream, handshake, address, self._refusals, connecting=False
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
