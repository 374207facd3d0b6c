"""How many bytes a second go from one process to another by TCP, ours beside pyzmq's.

Both over the loopback, one record per message, the same sizes, in turn; PUSH and PULL sockets with
pyzmq, which copies small messages and hands over large ones without a copy, whichever is faster.

    python bench/growth_parts/tcp_bytes.py [--quick]
"""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SIZES = (1_000, 10_000, 100_000, 1_000_000)
_SECRET = b"of the benchmark only"
_HANDED_OVER_BYTES = 65_536
_WARM_UP_S = 0.1
_QUEUED_BYTES = 8 << 20
"""What our sender has waiting; pyzmq's may queue a thousand messages."""


def measure(quick: bool) -> dict[str, float]:
    """Our bytes per second over pyzmq's, by the size of a record: the median of several rounds."""
    found = {}
    for size, (ours, theirs) in rates(quick).items():
        pairs = zip(ours, theirs, strict=True)
        found[str(size)] = statistics.median(
            one.bytes_per_s / other.bytes_per_s for one, other in pairs
        )
    return found


class Rate(NamedTuple):
    """What one round gave."""

    bytes_per_s: float
    cpu_us: float
    """CPU time of both processes for a record."""


def rates(quick: bool) -> dict[int, tuple[list[Rate], list[Rate]]]:
    """Ours and pyzmq's, of each round."""
    rounds, seconds = (3, 0.4) if quick else (9, 1.0)
    found: dict[int, tuple[list[Rate], list[Rate]]] = {size: ([], []) for size in SIZES}
    for _ in range(rounds):
        for size, (ours, theirs) in found.items():
            ours.append(_tailrace_rate(size, seconds))
            theirs.append(_zmq_rate(size, seconds))
    return found


def _tailrace_rate(size: int, seconds: float) -> Rate:
    from tailrace.transport.listener import TcpListener
    from tailrace.transport.memory import keep_freed_memory
    from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

    keep_freed_memory()  # as workers do, and in this process pyzmq has it, too
    listener = TcpListener(TcpConfig(2, _SECRET), ("127.0.0.1", 0), Refusals())
    connections: list[TcpConnection] = []
    epoll = select.epoll()
    epoll.register(listener.fileno(), select.EPOLLIN)

    def receive() -> int:
        got = 0
        for fd, events in epoll.poll(1):
            if fd == listener.fileno():
                connections.extend(listener.on_ready())
                epoll.register(connections[0].fileno(), connections[0].events)
            else:
                for frame in connections[0].on_ready(events):
                    got += len(frame.payload)
                epoll.modify(fd, connections[0].events)
        return got

    with _sender("tailrace", str(listener.address[1]), size) as pid:
        rate = _rate(receive, size, seconds, pid)
    for connection in connections:
        connection.close()
    listener.close()
    epoll.close()
    return rate


def _tailrace_sender(port: int, size: int) -> None:
    from tailrace.transport.memory import keep_freed_memory
    from tailrace.transport.tcp import Refusals, TcpConfig, TcpConnection

    keep_freed_memory()
    record = bytes(size)
    connection = TcpConnection.connect(TcpConfig(1, _SECRET), ("127.0.0.1", port), 2, Refusals())
    epoll = select.epoll()
    epoll.register(connection.fileno(), connection.events)
    while not connection.closed:
        while connection.pending_bytes < _QUEUED_BYTES and connection.send(1, 2, [record]):
            pass
        connection.flush()
        if connection.pending_bytes and not connection.closed:
            epoll.modify(connection.fileno(), connection.events)
            for _, events in epoll.poll(1):
                connection.on_ready(events)


def _zmq_rate(size: int, seconds: float) -> Rate:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        socket.rcvtimeo = 1000

        def receive() -> int:
            try:
                if size >= _HANDED_OVER_BYTES:
                    return len(socket.recv(copy=False).buffer)
                return len(socket.recv())
            except zmq.Again:
                return 0

        with _sender("zmq", str(port), size) as pid:
            return _rate(receive, size, seconds, pid)


def _zmq_sender(port: int, size: int) -> None:
    import zmq

    record = bytes(size)
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.linger = 0
        socket.connect(f"tcp://127.0.0.1:{port}")
        while True:
            if size < _HANDED_OVER_BYTES:
                socket.send(record)
            else:
                socket.send(record, copy=False)


def _rate(receive: Callable[[], int], size: int, seconds: float, sender: int) -> Rate:
    """How it is once bytes flow."""
    while not receive():
        pass
    warm = time.perf_counter() + _WARM_UP_S
    while time.perf_counter() < warm:
        receive()
    got, began = 0, time.perf_counter()
    cpu_s = time.process_time() + _cpu_s(sender)
    ends = began + seconds
    while (now := time.perf_counter()) < ends:
        got += receive()
    cpu_s = time.process_time() + _cpu_s(sender) - cpu_s
    return Rate(got / (now - began), cpu_s * 1e6 * size / got)


def _cpu_s(pid: int) -> float:
    """The CPU time of another process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _sender(way: str, port: str, size: int) -> Iterator[int]:
    command = [sys.executable, str(Path(__file__)), "send", way, port, str(size)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Print a table, or be the sender of one."""
    if sys.argv[1:2] == ["send"]:
        send = {"tailrace": _tailrace_sender, "zmq": _zmq_sender}[sys.argv[2]]
        send(*map(int, sys.argv[3:]))
        return
    print(f"{'bytes':>9} {'MB/s':>6} {'pyzmq':>6} {'ratio':>6}  {'CPU us':>7} {'pyzmq':>7}")
    for size, both in rates("--quick" in sys.argv).items():
        one, other = (statistics.median(rate.bytes_per_s for rate in some) / 1e6 for some in both)
        cpu, other_cpu = (statistics.median(rate.cpu_us for rate in some) for some in both)
        ratio = one / other
        print(f"{size:>9} {one:>6.0f} {other:>6.0f} {ratio:>6.2f}  {cpu:>7.1f} {other_cpu:>7.1f}")


if __name__ == "__main__":
    main()
