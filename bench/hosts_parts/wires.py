"""The handmade pipelines' ways between two hosts: a TCP socket by hand, and pyzmq's tcp."""

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from engine_peers.handmade import Receive, Send, polling

_PATIENCE_S = 10.0
_BUFFER_BYTES = 4 << 20
_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 18


Wire = tuple[Send, Receive, Callable[[], Any]]
"""How to send, how to receive, how to close."""


def tcp(rank: int, addresses: tuple[str, str], port: int) -> Wire:
    """One connection: messages with their length in front, no delay, large buffers."""
    connection = _connected(rank, addresses, port)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    received = bytearray()
    start = 0

    def send(payload: bytes) -> None:
        connection.sendall(_LENGTH.pack(len(payload)) + payload)

    def receive(timeout_s: float | None) -> bytes | None:
        nonlocal start
        while True:
            if len(received) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(received, start)
                end = start + _LENGTH.size + length
                if len(received) >= end:
                    payload = bytes(received[start + _LENGTH.size : end])
                    start = end
                    if start > _CHUNK:
                        del received[:start]
                        start = 0
                    return payload
            if timeout_s is not None and not select.select([connection], [], [], timeout_s)[0]:
                return None
            chunk = connection.recv(_CHUNK)
            if not chunk:
                raise ConnectionError("the other host has closed the connection")
            received.extend(chunk)

    return send, receive, connection.close


def _connected(rank: int, addresses: tuple[str, str], port: int) -> socket.socket:
    if rank == 1:
        with socket.create_server((addresses[1], port)) as listener:
            listener.settimeout(_PATIENCE_S)
            accepted = listener.accept()[0]
            accepted.settimeout(None)
            return accepted
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection = socket.create_connection((addresses[1], port), timeout=_PATIENCE_S)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
        else:
            connection.settimeout(None)
            return connection


def zmq_tcp(rank: int, addresses: tuple[str, str], port: int) -> Wire:
    """A PUSH and a PULL socket each."""
    import zmq

    context: Any = zmq.Context.instance()
    inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    inbox.bind(f"tcp://{addresses[rank]}:{port + rank}")
    outbox.connect(f"tcp://{addresses[1 - rank]}:{port + 1 - rank}")
    outbox.linger = 1000

    def close() -> None:
        outbox.close()
        inbox.close()

    return outbox.send, polling(inbox), close


WIRES = {"tcp": tcp, "zmq tcp": zmq_tcp}
