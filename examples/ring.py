"""Two processes and a ring between them: how long does a message take, beside a pipe?"""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from tailrace.transport.ring import Ring

PAYLOAD_BYTES = 40_000
RATE_PER_S = 2_000
SECONDS = 2.0
BAR = "▁▂▃▄▅▆▇█"


def send_at_rate(send: Callable[[bytes], object]) -> None:
    """A steady flow; every message starts with the time it was sent."""
    body = bytes(PAYLOAD_BYTES - 8)
    due = time.monotonic()
    for _ in range(int(RATE_PER_S * SECONDS)):
        time.sleep(max(0.0, due - time.monotonic()))
        send(time.monotonic_ns().to_bytes(8, "little") + body)
        due += 1 / RATE_PER_S
    send(b"")


def ring_sender(ring: Ring) -> None:
    with ring.writer() as writer:
        send_at_rate(writer.send)


def pipe_sender(end: Connection) -> None:
    send_at_rate(end.send_bytes)


def latencies_us(receive: Callable[[], bytes]) -> list[float]:
    latencies = []
    while message := receive():
        sent_ns = int.from_bytes(message[:8], "little")
        latencies.append((time.monotonic_ns() - sent_ns) / 1000)
    return latencies


def through_the_ring() -> list[float]:
    with Ring.create(4 << 20) as ring, ring.reader() as reader:

        def receive() -> bytes:
            while (message := reader.read_bytes()) is None:
                reader.wait()
            return message

        sender = multiprocessing.Process(target=ring_sender, args=(ring,))
        sender.start()
        measured = latencies_us(receive)
        sender.join()
        return measured


def through_a_pipe() -> list[float]:
    receiving, sending = multiprocessing.Pipe(duplex=False)
    sender = multiprocessing.Process(target=pipe_sender, args=(sending,))
    sender.start()
    measured = latencies_us(receiving.recv_bytes)
    sender.join()
    return measured


def show(name: str, measured: list[float]) -> None:
    edges = [10 * 2**i for i in range(8)]
    counts = [sum(edge / 2 < us <= edge for us in measured) for edge in edges]
    bars = "".join(BAR[min(7, 8 * count // (max(counts) + 1))] for count in counts)
    percentiles = statistics.quantiles(measured, n=100)
    print(f"  {name:5} p50 {percentiles[49]:6.0f} µs   p99 {percentiles[98]:6.0f} µs   {bars}")


if __name__ == "__main__":
    print(f"{RATE_PER_S} messages/s of {PAYLOAD_BYTES // 1000} KB from one process to another:")
    multiprocessing.set_start_method("spawn")
    show("pipe", through_a_pipe())
    show("ring", through_the_ring())
    print("  bars: 10, 20, 40 ... 1280 µs, from left to right")
