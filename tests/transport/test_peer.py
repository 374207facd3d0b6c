"""One object per peer: jumbos whole or in pieces, and credits."""

from typing import Any

import pytest

from tailrace.transport.codec import CodecError
from tailrace.transport.peer import (
    KIND_CREDIT,
    KIND_JUMBO,
    MOST_WORKERS,
    Arrivals,
    JumboCodec,
    Parcel,
    Peer,
    mark,
    mark_of,
)


class SmallPeer(Peer):
    """Reached by messages of at most so many bytes, as long as there is room."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(JumboCodec(lambda: 5), rank=3)
        self.most_bytes = most_bytes
        self.messages: list[tuple[int, bytes]] = []
        self.room = 1 << 30

    def _write(self, kind: int, buffers: list[Any]) -> bool:
        payload = b"".join(buffers)
        assert len(payload) <= self.most_bytes
        if not self.room:
            return False
        self.room -= 1
        self.messages.append((kind, payload))
        return True


class Seen:
    """What arrives."""

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []
        self.credits: list[tuple[Any, ...]] = []
        self.sizes: list[int] = []
        self.arrivals = Arrivals(JumboCodec(lambda: 5), self._deliver, self._credit)

    def _deliver(self, sender: int, parcels: list[Parcel], sent_ns: int, size: int) -> None:
        assert (sender, sent_ns) == (3, 5)
        self.parcels += parcels
        self.sizes.append(size)

    def _credit(self, sender: int, *credit: Any) -> None:
        self.credits.append((sender, *credit))

    def take(self, peer: SmallPeer) -> None:
        for kind, payload in peer.messages:
            self.arrivals.accept(3, kind, payload)
        peer.messages.clear()


def test_parcels_for_many_gates_go_as_one_message() -> None:
    peer, seen = SmallPeer(100_000), Seen()
    sent: list[Parcel] = [(gate, [(0, 0, [f"for {gate}"])]) for gate in range(300)]
    size = peer.send(sent)
    assert len(peer.messages) == 1
    seen.take(peer)
    assert seen.parcels == sent
    assert seen.sizes == [size]


@pytest.mark.parametrize("size", [1_000, 40_000, 3_000_000])
def test_a_record_of_any_size_goes_in_pieces_and_comes_whole(size: int) -> None:
    peer, seen = SmallPeer(1000), Seen()
    sent: list[Parcel] = [(1, [(7, 0, ["small", "x" * size, "last"])]), (2, [(7, 0, [(1, "y")])])]
    assert peer.send(sent) > size
    seen.take(peer)
    assert seen.parcels == sent


def test_what_finds_no_room_follows_later_and_before_anything_else() -> None:
    peer, seen = SmallPeer(1000), Seen()
    first: list[Parcel] = [(1, [(3, 0, ["x" * 100] * 40)])]
    later: list[Parcel] = [(1, [(4, 0, ["later"])])]
    peer.room = 2
    assert peer.send(first)
    assert peer.pending
    assert peer.send(later) == 0
    peer.room = 100
    peer.flush()
    assert peer.send(later)
    seen.take(peer)
    assert seen.parcels == first + later


def test_credits_go_before_a_jumbo_that_waits_and_the_newest_counts() -> None:
    peer, seen = SmallPeer(1000), Seen()
    peer.room = 0
    assert peer.send([(1, [(3, 0, ["a"])])])
    for taken in (10, 20):
        peer.credit(7, taken, 100)
    peer.credit(8, 1, 50, (1 << 40, 3, 2, 6, 4))
    peer.room = 1
    peer.flush()
    assert [kind for kind, _ in peer.messages] == [KIND_CREDIT]
    seen.take(peer)
    assert seen.credits == [
        (3, 7, 20, 100, (0, 0, 0, 0, 0)),
        (3, 8, 1, 50, ((1 << 32) - 1, 3, 2, 6, 4)),
    ]
    assert peer.pending


def test_a_record_that_cannot_be_encoded_is_told_at_once_and_nothing_is_sent() -> None:
    peer = SmallPeer(1000)
    with pytest.raises(CodecError, match="lambda"):
        peer.send([(1, [(0, 0, [lambda: None] * 8)])])
    assert not peer.pending
    assert peer.messages == []


def test_what_is_of_another_attempt_is_dropped_pieces_and_credits_included() -> None:
    peer, seen = SmallPeer(100), Seen()
    old, new = mark(3, 1), mark(3, 2)
    peer.send([(0, [(0, 0, ["x" * 250])])])
    peer.credit(7, 5, 9)
    peer.flush()
    seen.arrivals.begin(1)
    seen.arrivals.accept(old, *peer.messages[0])  # the other pieces never come
    seen.arrivals.begin(2)
    for kind, payload in peer.messages:
        seen.arrivals.accept(old, kind, payload)
    assert (seen.parcels, seen.credits) == ([], [])
    assert seen.arrivals.dropped == len(peer.messages)
    for kind, payload in peer.messages:
        seen.arrivals.accept(new, kind, payload)
    assert (len(seen.parcels), seen.credits) == (1, [(3, 7, 5, 9, (0, 0, 0, 0, 0))])


def test_what_waits_to_be_sent_is_dropped_when_an_attempt_begins() -> None:
    peer = SmallPeer(100)
    peer.room = 0
    peer.send([(0, [(0, 0, ["x"])])])
    peer.credit(7, 5, 9)
    waits = [peer.pending]
    peer.begin(1)
    waits.append(peer.pending)
    assert waits == [True, False]
    peer.room = 10
    assert peer.send([(0, [(0, 0, ["y"])])])
    peer.flush()
    assert len(peer.messages) == 1


def test_a_mark_has_room_for_all_workers_and_keeps_the_attempt_of_another() -> None:
    assert mark(MOST_WORKERS - 1, 65_535) == 2**32 - 1
    assert mark_of(5, mark(3, 9)) == mark(5, 9)


def test_what_cannot_be_decoded_names_its_sender() -> None:
    seen = Seen()
    with pytest.raises(CodecError, match="worker 3 has sent cannot be decoded: no jumbo"):
        seen.arrivals.accept(mark(3, 0), KIND_JUMBO, b"x" * 40)
