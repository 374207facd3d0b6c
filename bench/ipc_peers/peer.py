"""What every Python peer of the transport benchmark does: obey commands, pace, stamp, measure.

A peer is one process: a sender or a receiver of one transport. It reads commands from standard
input, one per line, and answers each with one line of JSON, until standard input ends:

    receiver: open MODE RING_BYTES FOLDER     make an inbox, answer its address
              latency SIZE MOST               answer "ready", then up to MOST latencies
              rate SIZE COUNT                 answer "ready", then end time and CPU used
              idle SECONDS                    wait for messages in vain, answer the CPU used
              close
    sender:   connect MODE ADDRESS            connect to an inbox
              latency SIZE COUNT RATE LIMIT_S
              rate SIZE COUNT
              close

The Netty peers (Java) obey the same commands and use the same message layout, so that all measure
the same thing.
"""

import gc
import json
import os
import struct
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from itertools import repeat
from typing import Any

HEADER = struct.Struct("<QQq")  # due, sent (CLOCK_MONOTONIC, ns), sequence
TAIL = struct.Struct("<q")  # the sequence again: the message is whole
END = -1
SLEEP_MARGIN_NS = 300_000  # a sleep overshoots by ~130 us on a small virtual machine; spin the rest
TIMEOUT_S = 8.0

Payload = bytes | bytearray | memoryview
Reply = dict[str, Any]


class Inbox(ABC):
    """The reading end of one transport, for one measurement."""

    address: str

    @abstractmethod
    def receive(self) -> Payload:
        """Wait for one message and return its payload, valid until `release`."""

    @abstractmethod
    def close(self) -> None:
        """Drop the inbox and whatever it has in the file system."""

    def prepare(self, size_bytes: int) -> None:  # noqa: B027 - a hook, not a duty
        """Get ready for messages of this size; the sender has connected."""

    def release(self) -> None:  # noqa: B027 - most transports hand out copies
        """Give the last payload back."""

    def receive_count(self, count: int) -> None:
        """Take that many messages as fast as the transport's interface allows."""
        for _ in repeat(None, count):
            self.receive()

    def idle(self, seconds: float) -> None:
        """Wait for messages for this long, in vain."""
        raise NotImplementedError(f"{type(self).__name__} has no idle measurement")


class Outbox(ABC):
    """The writing end of one transport, for one measurement."""

    send: Callable[[Payload], object]

    @abstractmethod
    def close(self) -> None:
        """Disconnect; everything sent has been received."""

    def send_count(self, payload: Payload, count: int) -> None:
        """Send that many messages as fast as the transport's interface allows."""
        send = self.send
        for _ in repeat(None, count):
            send(payload)


def main(
    open_inbox: Callable[[str, int, str], Inbox], connect: Callable[[str, str], Outbox]
) -> None:
    """Run the peer that the first argument of the command line names."""
    receives = sys.argv[1] == "receive"
    commands = receiver_commands(open_inbox) if receives else sender_commands(connect)
    answer({"ready": True})
    gc.disable()  # nothing here makes cycles; a collection would only be noise
    for line in sys.stdin:
        name, *arguments = line.split()
        answer(commands[name](*arguments))


def answer(reply: Reply) -> None:
    """Write one line to the benchmark."""
    print(json.dumps(reply), flush=True)


def receiver_commands(
    open_inbox: Callable[[str, int, str], Inbox],
) -> dict[str, Callable[..., Reply]]:
    """Return what a receiving peer can do, by name."""
    inbox: Inbox

    def open_(mode: str, ring_bytes: str, folder: str) -> Reply:
        nonlocal inbox
        inbox = open_inbox(mode, int(ring_bytes), folder)
        return {"address": inbox.address}

    def latency(size: str, most: str) -> Reply:
        from_due, from_send = array("q", bytes(8 * int(most))), array("q", bytes(8 * int(most)))
        inbox.prepare(int(size))
        answer({"ready": True})
        count, end_ns = collect(inbox, from_due, from_send)
        return {
            "end_ns": end_ns,
            "from_due_ns": from_due[:count].tolist(),
            "from_send_ns": from_send[:count].tolist(),
        }

    def rate(size: str, count: str) -> Reply:
        inbox.prepare(int(size))
        answer({"ready": True})
        cpu_ns = time.process_time_ns()
        inbox.receive_count(int(count))
        end_ns = time.monotonic_ns()
        return {"end_ns": end_ns, "cpu_ns": time.process_time_ns() - cpu_ns}

    def idle(seconds: str) -> Reply:
        wall_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        inbox.idle(float(seconds))
        cpu_ns, wall_ns = time.process_time_ns() - cpu_ns, time.monotonic_ns() - wall_ns
        return {"cpu_percent": 100 * cpu_ns / wall_ns}

    def close() -> Reply:
        inbox.close()
        return {"ready": True}

    return {"open": open_, "latency": latency, "rate": rate, "idle": idle, "close": close}


def collect(inbox: Inbox, from_due: "array[int]", from_send: "array[int]") -> tuple[int, int]:
    """Receive until the end message; fill in the latencies; return their count and the end time."""
    receive, release, now_ns = inbox.receive, inbox.release, time.monotonic_ns
    header, tail = HEADER.unpack_from, TAIL.unpack_from
    expected = 0
    while True:
        payload = receive()
        now = now_ns()
        due, sent, sequence = header(payload)
        (last,) = tail(payload, len(payload) - TAIL.size)
        release()
        if sequence == END:
            return expected, now
        if sequence != expected or last != expected:
            raise RuntimeError(f"expected message {expected}, got {sequence} ending in {last}")
        from_due[expected] = now - due
        from_send[expected] = now - sent
        expected += 1


def sender_commands(connect: Callable[[str, str], Outbox]) -> dict[str, Callable[..., Reply]]:
    """Return what a sending peer can do, by name."""
    outbox: Outbox

    def connect_(mode: str, address: str) -> Reply:
        nonlocal outbox
        outbox = connect(mode, address)
        return {"ready": True}

    def latency(size: str, count: str, rate: str, limit_s: str) -> Reply:
        return pace(outbox.send, int(size), int(count), float(rate), float(limit_s))

    def rate(size: str, count: str) -> Reply:
        payload = bytes(int(size))
        cpu_ns, start_ns = time.process_time_ns(), time.monotonic_ns()
        outbox.send_count(payload, int(count))
        return {"start_ns": start_ns, "cpu_ns": time.process_time_ns() - cpu_ns}

    def close() -> Reply:
        outbox.close()
        return {"ready": True}

    return {"connect": connect_, "latency": latency, "rate": rate, "close": close}


def pace(
    send: Callable[[Payload], object], size: int, count: int, rate: float, limit_s: float
) -> Reply:
    """Send `count` messages at `rate` per second, open loop, then the end message.

    Message i is due at start + i / rate whatever happened to those before it, and carries that
    time: a late sender does not shift the schedule. Sending stops at the limit, so that a transport
    that cannot keep up ends too. The spin yields, or a transport with threads of its own would lack
    a core.
    """
    payload = bytearray(size)
    header, tail, tail_at = HEADER.pack_into, TAIL.pack_into, size - TAIL.size
    now_ns, give_way = time.monotonic_ns, os.sched_yield
    interval = 1e9 / rate
    start = now_ns() + 2_000_000
    limit = start + int(limit_s * 1e9)
    sent = 0
    while sent < count:
        due = start + int(sent * interval)
        ahead = due - now_ns()
        if ahead > SLEEP_MARGIN_NS:
            time.sleep((ahead - SLEEP_MARGIN_NS) / 1e9)
        while (now := now_ns()) < due:
            give_way()
        if now > limit:
            break
        tail(payload, tail_at, sent)
        header(payload, 0, due, now, sent)
        send(payload)
        sent += 1
    header(payload, 0, 0, 0, END)
    send(payload)
    return {"start_ns": start, "sent": sent}
