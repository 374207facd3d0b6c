"""Another worker, as one object: by ring where memory is shared, by TCP where it is not.

All that a round has for a worker goes to it as one jumbo, encoded once. One that is too large for a
message of the ring or the connection goes in pieces, so a record may be of any size. How much of
what was sent has been taken is said in credits, which overtake jumbos that wait for room.

Every message has a mark: who sent it, and in which attempt, of which there is a new one whenever
the workers begin anew. What was under way from the attempt before is dropped where it arrives.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.transport import jumbo, salvage
from tailrace.transport.codec import ALIGNMENT_BYTES, CodecError, PickleCodec, UnreadableError
from tailrace.transport.frame import Buffer
from tailrace.transport.ring import Message, Ring, Writer
from tailrace.transport.tcp import TcpConnection

KIND_JUMBO = 2
KIND_PIECE = 3
KIND_LAST_PIECE = 4
KIND_LAST_STATE = 5
KIND_CREDIT = 15
_CREDIT = struct.Struct("<IQIIIIII")
_MOST = (1 << 32) - 1
_PIECE_BYTES = 1 << 20

_RANK_BITS = 16
_RANK_MASK = (1 << _RANK_BITS) - 1
MOST_WORKERS = 1 << _RANK_BITS

Load = tuple[int, int, int, int, int]
"""What a receiver tells beside its credit, each below 2^32; see `Inlet.load`."""
Parcel = tuple[int, list[Any]]
"""A gate, and the items for it."""


def mark(rank: int, attempt: int) -> int:
    """What stands on a message of that worker, in 32 bits; attempts come round after 65,536.

    >>> hex(mark(3, 1)), mark(3, 0), mark(3, 65_536)
    ('0x10003', 3, 3)
    """
    return (attempt & 0xFFFF) << _RANK_BITS | rank


def mark_of(rank: int, marked: int) -> int:
    """A mark with the attempt of another one: of who is known to be of that rank."""
    return marked & ~_RANK_MASK | rank


class JumboCodec:
    """Parcels to buffers and back; text and bytes flat, all else by pickle."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._pickle = PickleCodec()

    def encode(self, parcels: list[Parcel]) -> list[Buffer]:
        """Buffers to be written one after the other. Raises CodecError."""
        flat, objects = jumbo.encode(parcels, self._clock_ns())
        if not objects:
            return [flat]
        pickled = self._pickle.encode(objects)
        if len(pickled) == 1:
            return [flat, *pickled]
        # What travels out of band is aligned from where its section starts.
        return [flat, bytes(-len(flat) % ALIGNMENT_BYTES), *pickled]

    def decode(self, payload: bytes | bytearray | memoryview) -> tuple[int, list[Parcel]]:
        """When it was sent, and the parcels. Raises CodecError.

        Records may be views on the payload, but not on one that lies in a ring. Of a run in which
        some cannot be unpickled there are pairs of each record and what was wrong, None for most,
        and behind them their keys, if they have come with them, and True.
        """
        try:
            return jumbo.decode(payload, self._unpickled)
        except CodecError as error:
            return self._salvaged(payload, error)
        except ValueError as error:
            raise CodecError(str(error)) from error

    def _salvaged(
        self, payload: bytes | bytearray | memoryview, error: CodecError
    ) -> tuple[int, list[Parcel]]:
        def unpickled(rest: memoryview) -> list[Any]:
            with rest:
                return self._pickle.decode(bytes(rest).lstrip(b"\0"), salvage.loads)

        try:
            sent_ns, parcels = jumbo.decode(payload, unpickled)
            return sent_ns, [(gate, list(map(_apart, items))) for gate, items in parcels]
        except Exception:
            raise error from None  # it was no pickle

    def _unpickled(self, rest: memoryview) -> list[Any]:
        padding = 0
        while padding < len(rest) and not rest[padding]:
            padding += 1
        # Views end here, not with the frames of an error: what lies in a ring is given back.
        with rest, rest[padding:] as pickled:
            if type(pickled.obj) is Message and self._pickle.makes_views(pickled):
                return self._pickle.decode(bytes(pickled))
            return self._pickle.decode(pickled)


def _apart(item: Any) -> Any:
    """An item in which records that could not be unpickled are told from others."""
    if type(item) is not tuple:
        return item
    pairs: list[Any] = []
    found, is_apart = False, item[-1] is True
    keys = () if is_apart else item[3:]
    for at, one in enumerate(item[2]):
        unreadable = salvage.unreadable_in([one, *(some[at] for some in keys)])
        if unreadable is not None:
            found = True
            record = one[0] if is_apart and one is not unreadable else one
            pairs.append((record, UnreadableError(repr(unreadable.error))))
        else:
            pairs.append(one if is_apart else (one, None))
    return (*item[:2], pairs, *keys, True) if found else item


class Peer:
    """One other worker. No method waits."""

    most_bytes: int
    """The largest message."""

    def __init__(self, codec: JumboCodec, rank: int) -> None:
        """`rank` is our own, by which the receiver knows us."""
        self._codec = codec
        self._rank = rank
        self._mark = mark(rank, 0)
        self._unsent: deque[tuple[int, list[Buffer]]] = deque()
        self._credits: dict[int, tuple[int, ...]] = {}

    def begin(self, attempt: int) -> None:
        """All that is sent from now on is of that attempt; what waits to be sent is dropped."""
        self._mark = mark(self._rank, attempt)
        self._unsent.clear()
        self._credits.clear()

    @property
    def lost(self) -> bool:
        """Whether it is known that nothing reaches that worker any more."""
        return False

    def send(self, parcels: list[Parcel]) -> int:
        """Send a jumbo and return its size; 0, and nothing is taken, while an earlier one waits.

        What was taken may wait here, and must not be changed. Raises CodecError.
        """
        if self._unsent:
            return 0
        buffers = self._codec.encode(parcels)
        size_bytes = sum(map(len, buffers))
        if size_bytes <= self.most_bytes:
            if not self._write(KIND_JUMBO, buffers):
                self._unsent.append((KIND_JUMBO, buffers))
        else:
            self._unsent.extend(_pieces(buffers, min(self.most_bytes, _PIECE_BYTES)))
            self._write_unsent()
        return size_bytes

    def state(self, message: bytes) -> bool:
        """Send what is said of keys that move; False, and nothing is taken, as in `send`."""
        if self._unsent:
            return False
        pieces = _pieces([message], min(self.most_bytes, _PIECE_BYTES), KIND_LAST_STATE)
        self._unsent.extend(pieces)
        self._write_unsent()
        return True

    def credit(self, gate: int, taken: int, window: int, load: Load = (0, 0, 0, 0, 0)) -> None:
        """Let that worker know, by the next flush, how many of a link's records were taken.

        And by how many it may be ahead of that, and what load there is.
        """
        self._credits[gate] = taken, window, *(min(max(one, 0), _MOST) for one in load)

    def flush(self) -> None:
        """Send what waits as far as there is room.

        Raises ConnectionError when the other worker cannot be reached any more.
        """
        if self._credits:
            payload = b"".join(
                _CREDIT.pack(gate, *credit) for gate, credit in self._credits.items()
            )
            if self._write(KIND_CREDIT, [payload]):
                self._credits.clear()
        if self._unsent:
            self._write_unsent()

    def _write_unsent(self) -> None:
        while self._unsent and self._write(*self._unsent[0]):
            self._unsent.popleft()

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent or self._credits)

    def close(self) -> None:
        """End sending."""
        self._unsent.clear()
        self._credits.clear()

    def _write(self, kind: int, buffers: list[Buffer]) -> bool:
        raise NotImplementedError


class RingPeer(Peer):
    """A worker of this node: one copy, into its ring."""

    def __init__(self, ring: Ring, writer: Writer, rank: int, codec: JumboCodec) -> None:
        """See `Peer`."""
        super().__init__(codec, rank)
        self._writer = writer
        self.most_bytes = ring.max_message_bytes

    def _write(self, kind: int, buffers: list[Buffer]) -> bool:
        if len(buffers) == 1:
            return self._writer.send(buffers[0], self._mark, kind, wait=False)
        return self._writer.send_parts([*buffers], self._mark, kind, wait=False)

    def close(self) -> None:
        """End sending."""
        super().close()
        self._writer.close()


class TcpPeer(Peer):
    """A worker elsewhere."""

    def __init__(self, connection: TcpConnection, rank: int, codec: JumboCodec) -> None:
        """See `Peer`."""
        super().__init__(codec, rank)
        self.connection = connection
        self.most_bytes = _PIECE_BYTES

    def _write(self, kind: int, buffers: list[Buffer]) -> bool:
        return self.connection.send(self._mark, kind, buffers)

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self.connection.closed

    def flush(self) -> None:
        """Also have the system write what is queued."""
        if self.connection.closed:
            reason = self.connection.close_reason
            raise ConnectionError(f"lost a worker at {self.connection.address}: {reason}")
        super().flush()
        self.connection.flush()

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return super().pending or bool(self.connection.pending_bytes)

    def close(self) -> None:
        """End sending."""
        super().close()
        self.connection.close()


def _pieces(
    buffers: list[Buffer], most_bytes: int, kind: int = KIND_LAST_PIECE
) -> list[tuple[int, list[Buffer]]]:
    """The buffers, in their order, as messages of limited size; the last is said to be that."""
    messages: list[list[Buffer]] = [[]]
    room = most_bytes
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        while len(view):
            if not room:
                messages.append([])
                room = most_bytes
            messages[-1].append(view[:room])
            view = view[room:]
            room = most_bytes - sum(map(len, messages[-1]))
    *first, last = messages
    return [*((KIND_PIECE, one) for one in first), (kind, last)]


class Arrivals:
    """What comes from peers, whole: pieces are put together, credits and parcels told apart.

    What is of another attempt than the present one counts for nothing.
    """

    def __init__(
        self,
        codec: JumboCodec,
        deliver: Callable[[int, list[Parcel], int, int], None],
        credit: Callable[[int, int, int, int, Load], None],
        state: Callable[[int, bytes], None] = lambda sender, message: None,
    ) -> None:
        """Calls `deliver(sender, parcels, sent_ns, size)`, and `credit` with the sender.

        What follows is what was given to `Peer.credit`. And `state(sender, message)`.
        """
        self._state = state
        self._codec = codec
        self._deliver = deliver
        self._credit = credit
        self._pieces: dict[int, bytearray] = {}
        self._attempt = 0
        self.dropped = 0
        """Messages of other attempts that have come."""

    def begin(self, attempt: int) -> None:
        """Only what is of that attempt counts from now on."""
        self._attempt = mark(0, attempt)
        self._pieces.clear()

    def accept(self, marked: int, kind: int, payload: bytes | memoryview) -> None:
        """Take a message with that mark of its sender. Raises CodecError."""
        sender = marked & _RANK_MASK
        if marked - sender != self._attempt:
            self.dropped += 1
            return
        if kind == KIND_CREDIT:
            for gate, taken, window, *load in _CREDIT.iter_unpack(payload):
                self._credit(sender, gate, taken, window, tuple(load))
            return
        whole: bytes | bytearray | memoryview = payload
        if kind not in (KIND_JUMBO, KIND_PIECE, KIND_LAST_PIECE, KIND_LAST_STATE):
            raise CodecError(f"a message of the unknown kind {kind} from worker {sender}")
        if kind != KIND_JUMBO:
            gathered = self._pieces.setdefault(sender, bytearray())
            gathered += payload
            if kind == KIND_PIECE:
                return
            whole = self._pieces.pop(sender)
        if kind == KIND_LAST_STATE:
            self._state(sender, bytes(whole))
            return
        try:
            sent_ns, parcels = self._codec.decode(whole)
        except CodecError as error:
            raise CodecError(f"what worker {sender} has sent cannot be decoded: {error}") from error
        self._deliver(sender, parcels, sent_ns, len(whole))
