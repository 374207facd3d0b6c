from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tailrace import sinks, sources
from tailrace.connectors.framing import LineError
from tailrace.connectors.sockets import ListenReader, backoff_ns
from tailrace.runtime.source import Split
from tailrace.testing import VirtualClock
from tests.connectors.reading import wait, wait_until


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def listen(**options: Any) -> ListenReader:
    reader = sources.listen(0, **options).open(Split(""), VirtualClock())
    assert isinstance(reader, ListenReader)
    return reader


def connect(reader: ListenReader) -> socket.socket:
    return socket.create_connection(reader.address)


# ---- from a server ----


def test_lines_come_from_a_server_until_it_closes(server: socket.socket) -> None:
    source = sources.socket("127.0.0.1", port_of(server), reconnect=False)
    with closing(source.open(Split(""), VirtualClock())) as reader:
        assert reader.poll(10) == []
        connected, _ = server.accept()
        connected.sendall(b"one\ntw")
        assert wait_until(reader, bool) == ["one"]
        connected.sendall(b"o\r\nlast")
        connected.close()
        assert wait_until(reader, lambda records: len(records) == 2) == ["two", "last"]
        assert reader.due_ns() == 0
        assert reader.poll(10) is None


def test_what_a_poll_leaves_is_due_at_once(server: socket.socket) -> None:
    source = sources.socket("127.0.0.1", port_of(server))
    with closing(source.open(Split(""), VirtualClock())) as reader:
        reader.poll(1)
        connected, _ = server.accept()
        with connected:
            connected.sendall(b"1\n2\n3\n")
            wait(reader)
            assert reader.poll(2) == ["1", "2"]
            assert reader.due_ns() == 0
            assert reader.poll(2) == ["3"]
            assert reader.due_ns() is None


def test_it_connects_again_after_a_while_that_grows(server: socket.socket) -> None:
    clock = VirtualClock()
    with closing(sources.socket("127.0.0.1", port_of(server)).open(Split(""), clock)) as reader:
        descriptor = reader.fileno()
        for failures in (1, 2, 3):
            reader.poll(10)
            server.accept()[0].close()
            while reader.due_ns() is None:
                wait(reader)
                assert reader.poll(10) == []
            assert reader.due_ns() == clock.now_ns + backoff_ns(failures)
            assert reader.poll(10) == [], "too early"
            clock.now_ns += backoff_ns(failures)
        reader.poll(10)
        connected, _ = server.accept()
        with connected:
            connected.sendall(b"back\n")
            assert wait_until(reader, bool) == ["back"]
        while reader.due_ns() is None:
            assert reader.poll(10) == []
        assert reader.due_ns() == clock.now_ns + backoff_ns(1), "what came has made it good"
        assert reader.fileno() == descriptor


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return port_of(listening)


def test_a_server_that_is_not_there_is_tried_again() -> None:
    clock = VirtualClock()
    with closing(sources.socket("127.0.0.1", free_port()).open(Split(""), clock)) as reader:
        while not (due_ns := reader.due_ns()):
            assert reader.poll(10) == []
            if reader.due_ns() is None:
                wait(reader)
        assert due_ns == backoff_ns(1)


def test_without_reconnection_a_refusal_is_an_error_with_the_address() -> None:
    port = free_port()
    source = sources.socket("127.0.0.1", port, reconnect=False)
    with (
        closing(source.open(Split(""), VirtualClock())) as reader,
        pytest.raises(ConnectionError, match=f"127.0.0.1:{port} failed: .*refused"),
    ):
        wait_until(reader, bool)


@pytest.mark.parametrize(
    ("sent", "message"),
    [(b"x" * 11, "longer than 10 bytes"), (b'1\n{"a"\n', r"truncated.*the line is b'{\"a\"'")],
)
def test_a_server_that_sends_no_lines_is_an_error(
    server: socket.socket, sent: bytes, message: str
) -> None:
    source = sources.socket("127.0.0.1", port_of(server), json=True, most_line_bytes=10)
    with closing(source.open(Split(""), VirtualClock())) as reader:
        reader.poll(10)
        connected, _ = server.accept()
        with connected:
            connected.sendall(sent)
            with pytest.raises(LineError, match=f"127.0.0.1:{port_of(server)}: .*{message}"):
                wait_until(reader, bool)


def test_two_instances_of_a_connection_are_refused() -> None:
    with pytest.raises(ValueError, match=r"to there:1 is 2; it must be 1"):
        sources.socket("there", 1).splits(2)


# ---- from clients ----


def test_lines_come_from_all_who_connect() -> None:
    with closing(listen()) as reader, connect(reader) as first, connect(reader) as second:
        assert reader.address[0] == "127.0.0.1"
        first.sendall(b"1a\n1")
        second.sendall(b"2a\n")
        assert sorted(wait_until(reader, lambda records: len(records) == 2)) == ["1a", "2a"]
        first.sendall(b"b\nend")
        first.close()
        assert wait_until(reader, lambda records: len(records) == 2) == ["1b", "end"]


def test_a_client_that_sends_no_lines_is_cut_off_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        closing(listen(json=True, most_line_bytes=10)) as reader,
        connect(reader) as long,
        connect(reader) as wrong,
        connect(reader) as good,
        caplog.at_level(logging.WARNING),
    ):
        long.sendall(b"1" * 11)
        wrong.sendall(b"1\nnothing\n")
        while len(caplog.records) < 2:
            reader.poll(10)
        assert "longer than 10 bytes" in caplog.text
        assert "malformed" in caplog.text
        assert str(wrong.getsockname()) in caplog.text
        good.sendall(b"2\n")
        assert 2 in wait_until(reader, lambda records: 2 in records)


def test_connections_above_the_limit_wait_until_others_close() -> None:
    with closing(listen(most_connections=1)) as reader, connect(reader) as first:
        with connect(reader) as second:
            first.sendall(b"first\n")
            second.sendall(b"second\n")
            assert wait_until(reader, bool) == ["first"]
            assert reader.poll(10) == []
            first.close()
            assert wait_until(reader, bool) == ["second"]
        with connect(reader) as third:
            third.sendall(b"third\n")
            assert wait_until(reader, bool) == ["third"]


def test_a_client_that_resets_costs_only_itself() -> None:
    with closing(listen()) as reader, connect(reader) as good:
        bad = connect(reader)
        bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        bad.sendall(b"half")
        bad.close()
        good.sendall(b"good\n")
        assert wait_until(reader, bool) == ["good"]


def test_each_instance_listens_on_a_port_of_its_own() -> None:
    port = free_port()
    second = sources.listen(port - 1).open(Split("", 1, 2), VirtualClock())
    assert isinstance(second, ListenReader)
    with closing(second):
        assert second.address == ("127.0.0.1", port)


# ---- to a server ----


def test_lines_go_to_a_server(server: socket.socket) -> None:
    sink = sinks.socket("127.0.0.1", port_of(server), json=True)
    sink.open(0, 1)
    connected, _ = server.accept()
    with connected, connected.makefile("rb") as received:
        sink.write(iter([{"a": 1}, 2]))
        assert [received.readline(), received.readline()] == [b'{"a":1}\n', b"2\n"]
        sink.write(iter(["end"]))
        sink.finish()
        sink.close()
        assert received.read() == b'"end"\n'


def test_a_server_that_takes_nothing_is_an_error(server: socket.socket) -> None:
    sink = sinks.socket("127.0.0.1", port_of(server), timeout_s=0.1)
    sink.open(0, 1)
    line = "x" * (1 << 20)
    with (
        closing(sink),
        pytest.raises(ConnectionError, match=r"sending \d+ bytes to 127.0.0.1:\d+ failed: .*time"),
    ):
        sink.write(iter([line] * 64))


def test_a_server_to_write_to_must_be_there() -> None:
    port = free_port()
    with pytest.raises(ConnectionError, match=f"no connection to 127.0.0.1:{port}: .*refused"):
        sinks.socket("127.0.0.1", port).open(0, 1)
