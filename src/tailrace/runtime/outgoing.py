"""What a core puts out: gathered by links, sent by workers, as far as there is credit and room."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.graph.model import DEAD_LETTERS, OnError, Record
from tailrace.runtime.exchange import Exchange, Lane
from tailrace.runtime.inlet import deliver
from tailrace.runtime.markers import Marker
from tailrace.transport.peer import Load

if TYPE_CHECKING:
    from tailrace.runtime.building import Site
    from tailrace.runtime.counting import Counting
    from tailrace.runtime.instance import Instance
    from tailrace.runtime.moving import StateMessage

Item = (
    tuple[int, int, list[Record]]
    | tuple[int, int, list[Record], list[Hashable]]
    | tuple[int, int, list[Any], bool]
    | tuple[int, int, list[Any], list[Hashable], bool]
    | Marker
)
"""Records with the time their source emitted them (ns) and their origin, or a marker.

Behind them their keys, if they were sent by a key function. Where the last part is True, there are
pairs of a record that could not be routed and the error instead of records. So are those of a jumbo
of which some could not be unpickled where it came; the others have None for it.
"""

_LARGE_BYTES = 512
"""Streams of records above this size travel in jumbos of their own, so that sizes stay true."""


class Post(Protocol):
    """What carries messages to other workers."""

    def send(self, peer: int, parcels: list[tuple[int, list[Item]]]) -> int:
        """Take a jumbo and say its size in bytes; 0: no room now, it is tried again later.

        Raises ValueError if some of the records cannot be sent.
        """

    def credit(self, peer: int, gate: int, taken: int, window: int, load: Load) -> None:
        """Tell a sender how many of its records have been taken at a gate, ever.

        It may be `window` records ahead of that. For the load see `Inlet.load`.
        """

    def state(self, peer: int, message: StateMessage) -> bool:
        """Take what one worker tells another of keys that move; False: no room now."""

    def check(self, record: Record) -> None:
        """Raise ValueError if a record cannot be sent."""

    def size(self, records: list[Record]) -> int:
        """About what they would take in a message, in bytes."""


class Outgoing:
    """See above. Of one core."""

    def __init__(
        self, site: Site, counting: Counting, post: Post, clock_ns: Callable[[], int]
    ) -> None:
        self._site = site
        self._rank = site.rank
        self._counting = counting
        self._post = post
        self._clock_ns = clock_ns
        self.exchanges: list[Exchange] = []
        """All of the site."""

    def flush(self) -> bool:
        """Send what is gathered, as far as receivers have credit and channels have room."""
        for exchange in self.exchanges:
            if exchange.pending:
                exchange.announce(self._clock_ns())
        touched = self._site.touched
        if not touched:
            return False
        lanes, progress = touched.copy(), False
        touched.clear()
        for exchange in self.exchanges:
            exchange.flushes += 1
        jumbos: dict[tuple[int, int], list[Lane]] = {}
        for lane in lanes:
            lane.untouch()
            if not lane.items or not lane.open:
                lane.seal()
                continue  # `credit` touches it again
            if lane.peer == self._rank:
                self._counting.see(lane)
                now_ns = self._clock_ns()
                parcels = [(lane.gate, lane.take())]
                deliver(self._site.inlets, self._rank, parcels, now_ns, now_ns, 0)
                progress = True
                continue
            large = lane.bytes_sent > _LARGE_BYTES * (lane.sent - lane.base)
            where = lane.peer, lane.exchange.stream if large else -1
            jumbos.setdefault(where, []).append(lane)
        for (peer, _), parts in jumbos.items():
            progress |= self._send(peer, parts)
        return progress

    def _send(self, peer: int, lanes: list[Lane]) -> bool:
        """Send what some lanes to one worker hold."""
        try:
            size_bytes = self._post.send(peer, [(lane.gate, lane.items) for lane in lanes])
        except ValueError:
            found = [lane for lane in lanes if self._take_out_unsendable(lane)]
            if not found:
                raise
            for lane in lanes:
                lane.touch()
            return True
        if not size_bytes:
            for lane in lanes:
                lane.seal()
                lane.touch()
            return False
        if len(lanes) == 1:  # the usual case
            lanes[0].take(size_bytes)
            return True
        records = sum(lane.records for lane in lanes) or 1
        for lane in lanes:
            lane.take(max(size_bytes * lane.records // records, 1))
        return True

    def refuse_unsendable(self, instance: Instance) -> None:
        """Find now what an instance has put out that cannot be sent.

        Before a cut, so that its dead letter is of the epoch that it is of.
        """
        graph = self._site.deployment.graph
        for name, routers in instance.routers.items():
            if graph.operator(name).on_error is not OnError.DEAD_LETTER:
                continue
            # Dead letters come last: there may be more of them by then.
            for router in sorted(routers, key=lambda router: router.output == DEAD_LETTERS):
                router.exchange.deal_all()
                for lane in router.exchange.lanes:
                    if lane.peer != self._rank and lane.records:
                        self._take_out_unsendable(lane)

    def _take_out_unsendable(self, lane: Lane) -> bool:
        """Records that cannot be encoded go by the policy of the operator that put them out.

        Says whether there were any.
        """
        refused: list[tuple[Record, ValueError]] = []
        kept = [self._sendable(item, refused) for item in lane.items]
        if not refused:
            return False
        lane.drop(kept)
        for record, cause in refused:
            told = TypeError(
                f"it cannot travel to another worker on {lane.exchange.label}: {cause}"
            )
            told.__cause__ = cause
            lane.exchange.fail(record, told)
        return True

    def _sendable(self, item: Item, refused: list[tuple[Record, ValueError]]) -> Item:
        if isinstance(item, Marker):
            return item
        kept: list[Any] = []
        kept_keys: list[Hashable] = []
        rejected = item[-1] is True  # these come with their errors
        keys: Any = item[3] if len(item) == 4 and not rejected else None
        for at, one in enumerate(item[2]):
            record = one[0] if rejected else one
            try:
                self._post.check(record)
                if keys is not None:
                    self._check_key(keys[at])
                    kept_keys.append(keys[at])
                kept.append(one)
            except ValueError as error:
                refused.append((record, error))
        if keys is not None:
            return item[0], item[1], kept, kept_keys
        return (item[0], item[1], kept, *item[3:])

    def _check_key(self, key: Hashable) -> None:
        try:
            self._post.check(key)
        except ValueError as error:
            raise ValueError(f"it goes with its key, {key!r}: {error}") from error
