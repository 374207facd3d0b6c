"""Tailrace's ring, owned by the receiver, used in one of four modes.

copy   read_bytes(): one call and one copy per message
drain  drain(): one call for all that is there; small ones as copies, large ones in place
view   read(): in place, released after use
batch  the ring's batch form: the sender gathers 256 messages and sends them with one call, the
       receiver takes them out as copies
"""

from itertools import repeat

from typing_extensions import Buffer

from ipc_peers.peer import TIMEOUT_S, Inbox, Outbox, Payload, main
from tailrace.transport.ring import Message, Ring, copies_of

DRAIN_MESSAGES = 256
BATCH_MESSAGES = 256
BATCH_BYTES = 64 << 10
IDLE_WAIT_S = 0.1  # a worker also looks after its timers


class CopyInbox(Inbox):
    """Takes one message per call, as bytes."""

    def __init__(self, ring_bytes: int) -> None:
        self._ring = Ring.create(ring_bytes)
        self._reader = self._ring.reader()
        self.address = self._ring.address

    def _wait(self) -> None:
        if not self._reader.wait(TIMEOUT_S):
            raise TimeoutError(f"no message for {TIMEOUT_S} s")

    def receive(self) -> Payload:
        while (payload := self._reader.read_bytes()) is None:
            self._wait()
        return payload

    def receive_count(self, count: int) -> None:
        read_bytes = self._reader.read_bytes
        left = count
        while left:
            if read_bytes() is None:
                self._wait()
            else:
                left -= 1

    def idle(self, seconds: float) -> None:
        for _ in range(round(seconds / IDLE_WAIT_S)):
            self._reader.wait(IDLE_WAIT_S)

    def close(self) -> None:
        self._reader.close()
        self._ring.close()


def _take(target: int, kind: int, payload: Payload) -> None:
    pass


class DrainInbox(CopyInbox):
    """Takes all messages that are there per call. For latency it equals CopyInbox."""

    def receive_count(self, count: int) -> None:
        drain = self._reader.drain
        left = count
        while left:
            taken = drain(_take, min(left, DRAIN_MESSAGES))
            if not taken:
                self._wait()
            left -= taken


class ViewInbox(CopyInbox):
    """Takes one message per call, in place."""

    _message: Message
    _view: memoryview

    def receive(self) -> Payload:
        while (message := self._reader.read()) is None:
            self._wait()
        self._message, self._view = message, memoryview(message)
        return self._view

    def release(self) -> None:
        self._view.release()
        self._message.release()

    def receive_count(self, count: int) -> None:
        read = self._reader.read
        left = count
        while left:
            message = read()
            if message is None:
                self._wait()
            else:
                memoryview(message).release()
                message.release()
                left -= 1


class BatchInbox(CopyInbox):
    """Takes the messages of a batch with one call, as bytes."""

    def receive_count(self, count: int) -> None:
        read = self._reader.read
        left = count
        while left:
            batch = read()
            if batch is None:
                self._wait()
                continue
            for _payload in copies_of(batch):
                left -= 1
            batch.release()


class RingOutbox(Outbox):
    """Sends one message per call, waiting when the ring is full."""

    def __init__(self, address: str) -> None:
        self._ring = Ring.attach(address)
        self._writer = self._ring.writer()
        self.send = self._writer.send

    def close(self) -> None:
        self._writer.close()
        self._ring.close()


class BatchOutbox(RingOutbox):
    """Gathers messages and sends them together."""

    def send_count(self, payload: Payload, count: int) -> None:
        send_batch = self._writer.send_batch
        most = min(BATCH_MESSAGES, max(1, BATCH_BYTES // len(payload)))
        for first in range(0, count, most):
            batch: list[Buffer] = []
            gather = batch.append
            for _ in repeat(None, min(most, count - first)):
                gather(payload)
            send_batch(batch)


def connect(mode: str, address: str) -> Outbox:
    """Attach to a ring."""
    return BatchOutbox(address) if mode == "batch" else RingOutbox(address)


def open_inbox(mode: str, ring_bytes: int, folder: str) -> Inbox:
    """Create a ring of that size, to be read in that mode."""
    inboxes = {"copy": CopyInbox, "drain": DrainInbox, "view": ViewInbox, "batch": BatchInbox}
    return inboxes[mode](ring_bytes)


if __name__ == "__main__":
    main(open_inbox, connect)
