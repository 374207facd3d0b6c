"""Hosts that go silent, over real sockets: their kernel drops whatever comes."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import threading
from collections.abc import Callable

from tailrace.control.coordinator import Coordinator
from tailrace.control.protocol import COORDINATOR_ID, KIND, Hello, Message, Ready, Settings, pack
from tailrace.control.worker import Worker
from tailrace.transport.identity import Identity, new_secret, pin_in
from tailrace.transport.listener import TcpListener
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

PATIENCE_S = 60.0


def cut(connection: TcpConnection) -> None:
    """Have the kernel drop every packet to a connection, as if its host were unplugged."""
    return_nothing = struct.pack("HBBI", 0x06, 0, 0, 0)
    program = ctypes.create_string_buffer(return_nothing)
    attach_filter = 26
    with socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.setsockopt(
            socket.SOL_SOCKET, attach_filter, struct.pack("HP", 1, ctypes.addressof(program))
        )


def drive(connection: TcpConnection, until: Callable[[], bool]) -> None:
    with select.epoll() as epoll:
        epoll.register(connection.fileno(), connection.events)
        while not until():
            assert not connection.closed, connection.close_reason
            for _, events in epoll.poll(0.05):
                connection.on_ready(events)
            epoll.modify(connection.fileno(), connection.events)


def join(coordinator: Coordinator, rank: int, *messages: Message) -> TcpConnection:
    """A worker that has said all that and then says no more."""
    config = TcpConfig(worker_id=rank, secret=coordinator.secret)
    pin = pin_in(coordinator.secret)
    connection = TcpConnection.connect(
        config, coordinator.address, COORDINATOR_ID, Refusals(), pin=pin
    )
    for message in messages:
        connection.send(0, KIND, [pack(message)])
    drive(connection, lambda: connection.authenticated and not connection.pending_bytes)
    return connection


def test_a_host_that_goes_silent_is_told_from_a_worker_that_is_busy() -> None:
    over = threading.Event()
    coordinator = Coordinator(2, "127.0.0.1", over.set)
    workers = [
        join(coordinator, rank, Hello(rank, 7, "h", "e", "", ("h", 1)), Ready(rank, {}))
        for rank in range(2)
    ]
    drive(workers[0], lambda: coordinator.roster.phase == "running")
    cut(workers[1])  # and the other one, though it never reads or says a thing, is alive
    while not coordinator.roster.over:
        over.wait(0.05)
    assert coordinator.roster.reason == (
        "worker 1 (pid 7 on h) is silent: its host or the network to it is down"
    )
    for worker in workers:
        worker.close()
    assert over.wait(PATIENCE_S)


def test_a_worker_ends_when_the_coordinator_goes_silent() -> None:
    identity = Identity.make()
    secret = new_secret(identity)
    config = TcpConfig(worker_id=COORDINATOR_ID, secret=secret)
    listener = TcpListener(config, ("127.0.0.1", 0), Refusals(), identity=identity)
    settings = Settings(workers=1, coordinator=listener.address, secret=secret, job=b"")
    thread = threading.Thread(target=lambda: Worker(settings, 0, "executor").run())
    thread.start()
    accepted: list[TcpConnection] = []
    while not accepted:
        select.select([listener.fileno()], [], [], 1)
        accepted += listener.on_ready()
    (coordinator,) = accepted
    drive(coordinator, lambda: coordinator.authenticated and not coordinator.pending_bytes)
    cut(coordinator)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    coordinator.close()
    listener.close()
