"""Jumbos that are too large for one message, and their sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.control.peers import JumboCodec, OversizedError, Peer, halves
from tailrace.runtime.outlet import Item, Marker
from tailrace.transport.channel import RingChannel
from tailrace.transport.codec import CodecError

ITEMS = st.lists(
    st.one_of(
        st.builds(Marker, st.just("watermark"), st.integers()),
        st.tuples(st.integers(0, 9), st.lists(st.integers(), min_size=1, max_size=5)),
    ),
    max_size=6,
)


def flat(messages: list[list[Item]]) -> list[Any]:
    """Every marker, and every record with its time, in order."""
    found: list[Any] = []
    for item in (item for message in messages for item in message):
        found += [item] if isinstance(item, Marker) else [(item[0], one) for one in item[1]]
    return found


@given(ITEMS)
def test_halves_hold_the_same_in_order_and_half_of_the_records(items: list[Item]) -> None:
    both = halves(items)
    assert flat(both) == flat([items])
    counts = [sum(not isinstance(one, Marker) for one in flat([half])) for half in both]
    assert len(both) == (2 if sum(counts) > 1 else 1)
    assert max(counts) - min(counts) <= 1
    assert all(isinstance(item, Marker) or item[1] for half in both for item in half)


class SmallRing:
    """The writing end of a ring whose messages have at most so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.messages: list[bytes] = []
        self.tried = 0
        self.room = True

    def send(self, data: Any, target: int, kind: int, *, wait: bool) -> bool:
        self.tried += 1
        if len(data) > self.most_bytes:
            raise ValueError(f"message of {len(data)} bytes; at most {self.most_bytes} fit")
        if self.room:
            self.messages.append(bytes(data))
        return self.room

    def send_parts(self, parts: list[Any], target: int, kind: int, *, wait: bool) -> bool:
        return self.send(b"".join(parts), target, kind, wait=wait)


def peer(ring: SmallRing) -> Peer:
    return Peer(RingChannel(ring, JumboCodec(lambda: 5)), ring)  # type: ignore[arg-type]


def received(ring: SmallRing) -> list[list[Item]]:
    return [JumboCodec(lambda: 5).decode(message)[1] for message in ring.messages]


def test_a_jumbo_that_does_not_fit_goes_in_few_pieces_and_in_order() -> None:
    ring = SmallRing(4000)
    items: list[Item] = [(3, [f"{n:04}" for n in range(1000)]), Marker("end")]
    size_bytes = peer(ring).send(7, items)
    assert size_bytes > ring.most_bytes
    assert flat(received(ring)) == flat([items])
    assert len(ring.messages) <= 2 * -(-size_bytes // ring.most_bytes)
    assert ring.tried < 4 * len(ring.messages)


def test_pieces_that_find_no_room_follow_later_and_before_anything_else() -> None:
    ring = SmallRing(2000)
    sender = peer(ring)
    first: list[Item] = [(3, ["x" * 100] * 40)]
    ring.room = False
    assert sender.send(7, first)
    assert sender.pending
    assert sender.send(7, [(4, ["later"])]) == 0
    ring.room = True
    assert sender.send(7, [(4, ["later"])]) == len(ring.messages[-1])
    assert bool(sender.pending) is False
    assert flat(received(ring)) == [*flat([first]), (4, "later")]


def test_a_record_that_can_never_fit_is_refused() -> None:
    with pytest.raises(OversizedError, match=r"message of 50\d\d bytes; at most 2000 fit"):
        peer(SmallRing(2000)).send(7, [(3, ["small", "x" * 5000])])


def test_a_record_that_cannot_be_encoded_is_told_at_once_and_not_cut_up() -> None:
    ring = SmallRing(2000)
    with pytest.raises(CodecError, match="lambda"):
        peer(ring).send(7, [(1, [lambda: None] * 8)])
    assert ring.tried == 0
