"""The ring against a model a child could check: one queue per writer, and a budget of memory."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tailrace.transport.ring import Message, Reader, Ring, Writer
from tests.transport.draining import received
from tests.transport.slow_writer import SlowWriter

SLOW = 2
WRITERS = 4
"""The slow ones come first."""


class RingAgainstModel(RuleBasedStateMachine):
    """Any interleaving of sends, reservations, commits, give-ups, reads, holds and releases.

    The model: what each writer has in the ring, in order. A message may be read when it is
    committed and no earlier message of the *same* writer is unread. A reservation that `window`
    deliveries have passed by is skipped, and its commit says so.
    """

    ring: Ring
    reader: Reader
    slow: list[SlowWriter]
    writers: list[SlowWriter | Writer]

    @initialize(size=st.sampled_from([4096, 8192]), window=st.integers(1, 6))
    def open(self, size: int, window: int) -> None:
        self.ring = Ring.create(size, window=window)
        self.window = window
        self.reader = self.ring.reader()
        self.slow = [SlowWriter(self.ring.address) for _ in range(SLOW)]
        others = [self.ring.writer() for _ in range(WRITERS - SLOW)]
        self.writers = [*self.slow, *others]
        self.unread: list[list[bytes]] = [[] for _ in range(WRITERS)]
        # By slow writer: what was written, and how many had been delivered before it.
        self.open_reservations: dict[int, tuple[bytes, int]] = {}
        self.delivered = 0
        self.held: list[tuple[Message, bytes]] = []
        self.sent = 0
        self.skipped = 0

    def teardown(self) -> None:
        if not hasattr(self, "ring"):
            return
        for message, _ in self.held:
            message.release()
        for writer in self.open_reservations:
            self.slow[writer].abort()
        self.check_everything_arrives()
        for each in self.writers:
            each.close()
        self.reader.close()
        self.ring.close()

    def check_everything_arrives(self) -> None:
        self.held.clear()
        self.open_reservations.clear()
        while (payload := self.reader.read_bytes()) is not None:
            self.take_from_model(payload)
        assert not any(self.unread)
        assert self.ring.counters()["fill"] == 0.0
        counters = self.ring.counters()
        assert (counters["resent"], counters["lost"]) == (self.skipped, 0)

    def payload(self, writer: int, length: int) -> bytes:
        self.sent += 1
        return b"%d:%d:" % (writer, self.sent) + bytes([self.sent % 251]) * length

    def take_from_model(self, payload: bytes) -> None:
        writer = int(payload.split(b":")[0])
        assert self.unread[writer], f"{payload[:20]!r} was never sent, or came twice"
        assert payload == self.unread[writer].pop(0), "out of the order of its writer"
        self.delivered += 1

    @rule(writer=st.integers(0, WRITERS - 1), length=st.integers(0, 1900))
    def send(self, writer: int, length: int) -> None:
        if writer in self.open_reservations:
            return
        payload = self.payload(writer, length)
        if self.writers[writer].send(payload, wait=False):
            self.unread[writer].append(payload)
        else:
            assert self.ring.counters()["fill"] > 0.0, "an empty ring has room for half of it"

    @rule(writer=st.integers(0, SLOW - 1), length=st.integers(0, 1900))
    def reserve(self, writer: int, length: int) -> None:
        if writer in self.open_reservations:
            return
        payload = self.payload(writer, length)
        if self.slow[writer].reserve(payload, wait=False):
            self.open_reservations[writer] = (payload, self.delivered)

    @precondition(lambda self: self.open_reservations)
    @rule(data=st.data(), give_up=st.booleans())
    def finish(self, data: st.DataObject, give_up: bool) -> None:
        writer = data.draw(st.sampled_from(sorted(self.open_reservations)))
        payload, delivered_before = self.open_reservations.pop(writer)
        if give_up:
            self.slow[writer].abort()
        elif self.slow[writer].commit():
            self.unread[writer].append(payload)
        else:
            self.skipped += 1
            assert self.delivered - delivered_before >= self.window, "skipped before its window"

    @rule(count=st.integers(1, 8))
    def read_copies(self, count: int) -> None:
        before = sum(map(len, self.unread))
        payloads = received(self.reader, count)
        assert len(payloads) == min(count, before), "what is committed can be read"
        for payload in payloads:
            self.take_from_model(payload)

    @rule()
    def read_in_place(self) -> None:
        message = self.reader.read()
        if message is None:
            assert not any(self.unread)
        else:
            payload = bytes(memoryview(message))
            self.take_from_model(payload)
            self.held.append((message, payload))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        message, payload = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        assert bytes(memoryview(message)) == payload, "overwritten while held"
        message.release()

    @invariant()
    def held_messages_are_untouched(self) -> None:
        for message, payload in getattr(self, "held", []):
            assert bytes(memoryview(message)) == payload

    @invariant()
    def skips_are_counted(self) -> None:
        if hasattr(self, "ring"):
            assert self.ring.counters()["resent"] <= self.ring.counters()["skipped"]


TestRingAgainstModel = RingAgainstModel.TestCase
TestRingAgainstModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
