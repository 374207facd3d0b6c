"""A worker's epoll: connections, strangers, and descriptors that belong to readers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.control.sockets import Sockets
from tailrace.transport.frame import Frame
from tailrace.transport.listener import TcpListener
from tailrace.transport.ring import Doorbell
from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

SECRET = bytes(32)
LONG_S = 30.0


class World:
    def __init__(self) -> None:
        self.doorbell = Doorbell()
        self.frames: list[bytes] = []
        self.sockets = Sockets(self.doorbell, self._on_frame)

    def _on_frame(self, connection: TcpConnection, frame: Frame) -> None:
        self.frames.append(bytes(frame.payload))

    def listen(self, **options: int) -> TcpListener:
        config = TcpConfig(worker_id=0, secret=SECRET, **options)  # type: ignore[arg-type]
        listener = TcpListener(config, ("127.0.0.1", 0), Refusals())
        self.sockets.listen(listener)
        return listener

    def drive(self, turns: int = 20) -> None:
        for _ in range(turns):
            self.sockets.sleep(0.01)
            self.sockets.look()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.sockets.close()
    made.doorbell.close()


def test_a_source_ends_a_sleep(world: World) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"x")
    assert world.sockets.sleep(LONG_S, [ours])
    os.close(ours)
    os.close(theirs)


def test_a_descriptor_that_a_reader_closed_and_another_got_is_still_served(world: World) -> None:
    """The number that a source's file had becomes that of a connection; it must stay watched."""
    listener = world.listen()
    ours, theirs = os.pipe()
    assert not world.sockets.sleep(0.001, [ours])
    os.close(ours)
    config = TcpConfig(worker_id=1, secret=SECRET)
    connection = TcpConnection.connect(config, listener.address, 0, Refusals())
    assert connection.fileno() == ours
    world.sockets.watch(connection)
    assert connection.send(0, 2, [b"hello"])
    # The reader no longer has it, has another, or has not noticed yet that it is closed.
    for sources in ([], [theirs], [ours]):
        world.sockets.sleep(0.001, sources)
    world.drive()
    assert world.frames == [b"hello"]
    os.close(theirs)


def test_a_reader_may_change_its_descriptor(world: World) -> None:
    first, second = os.pipe(), os.pipe()
    assert not world.sockets.sleep(0.001, [first[0]])
    os.write(first[1], b"x")
    os.write(second[1], b"x")
    assert not world.sockets.sleep(0.001)  # neither is ours to watch now
    assert world.sockets.sleep(LONG_S, [second[0]])
    for fd in (*first, *second):
        os.close(fd)


def test_files_and_closed_descriptors_do_no_harm(world: World) -> None:
    with Path(__file__).open("rb") as file:
        assert not world.sockets.sleep(0.001, [file.fileno(), 1_000_000])


def test_a_silent_stranger_is_dropped_when_its_time_is_over(world: World) -> None:
    listener = world.listen(handshake_ms=1)
    with socket.create_connection(listener.address) as stranger:
        stranger.settimeout(LONG_S)
        world.drive(150)  # deadlines are looked at once a second
        while stranger.recv(1024):  # the challenge, and then the end
            pass


def test_who_is_busy_looks_far_more_often_when_other_workers_are_connected(world: World) -> None:
    """What comes by TCP is not to wait much longer than what comes by a ring."""
    listener = world.listen()
    config = TcpConfig(worker_id=1, secret=SECRET)
    dialers = []
    for expected_ns in (5_000_000, 5_000_000, 100_000):  # alone, with the coordinator, with another
        before_ns = time.monotonic_ns()
        world.sockets.look()
        assert (
            0 <= world.sockets.due_ns - expected_ns - before_ns <= time.monotonic_ns() - before_ns
        )
        dialers.append(TcpConnection.connect(config, listener.address, 0, Refusals()))
        world.drive()
    for dialer in dialers:
        dialer.close()
