"""The two ends of a link, and the credit between them.

The receiver says how many records it has taken from its queue; the sender sends no more than
`window_records` beyond that, and nothing more while what it sent beyond that is `window_bytes` or
more. So a slow instance holds up exactly those who send to it, whatever else the two workers
exchange, and everything in between is bounded.

Only the sender needs exact sizes: it knows the size of each jumbo it sent, and forgets it when the
records are taken. The receiver just has to report often enough, by records and by bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from tailrace.graph.model import Record
from tailrace.runtime.histogram import Histogram

if TYPE_CHECKING:
    from tailrace.runtime.core import Limits


@dataclass(frozen=True)
class Marker:
    """A control message that flows in-band, in order with the records of its sender."""

    kind: str
    value: Any = None


END = Marker("end")
"""No more comes. With the time at which the source ended (ns) for a value, if that is known."""

WATERMARK = "watermark"
"""The kind of markers that say how far event time is: (watermark, emitted_ns).

The second is when the source emitted the record that moved time on: the latency of what happens
then, such as the result of a window, counts from there. Where watermarks wait behind each other
only the newest is kept, and a result of an earlier one counts from the newest one's record.
"""

IDLE = inf
"""The watermark of a sender that has nothing to say about time for now."""

Item = tuple[int, list[Record]] | Marker
"""Records with the time their source emitted them (ns), or a marker."""


def add_marker(items: list[Item], marker: Marker) -> None:
    """Put a marker behind the items. A watermark takes the place of those it comes right after.

    So markers alone never pile up. Idleness replaces only itself: the watermark before it counts.
    """
    while items and isinstance(last := items[-1], Marker) and last.kind == marker.kind == WATERMARK:
        if marker.value[0] == IDLE != last.value[0]:
            break
        items.pop()
    items.append(marker)


class Outlet:
    """The sending end: gathers records for one receiver until the worker's round ends."""

    __slots__ = (
        "bytes_sent",
        "bytes_used",
        "credit_used",
        "emitted_ns",
        "full",
        "items",
        "limits",
        "link",
        "messages",
        "most_records",
        "peer",
        "records",
        "sent",
        "sizes",
        "tail",
    )

    def __init__(self, link: int, peer: int, limits: Limits, full: set[Outlet]) -> None:
        self.link = link
        self.peer = peer
        self.limits = limits
        self.most_records = limits.gathered_records
        self.full = full  # those of its instance's outlets that hold `most_records` or more
        self.items: list[Item] = []
        self.records = 0  # gathered and not yet sent
        self.sent = 0
        self.messages = 0  # with records in them
        self.bytes_sent = 0  # to another worker
        self.credit_used = 0  # of `sent`, what the receiver has not yet reported as taken
        self.bytes_used = 0  # the size of that
        self.sizes: deque[tuple[int, int]] = deque()  # its jumbos: `sent` after each, and bytes
        self.emitted_ns = -1
        self.tail: list[Record] = []  # the records of the last item

    def add(self, records: list[Record], emitted_ns: int) -> None:
        """Gather records; they were emitted at that time."""
        if emitted_ns == self.emitted_ns:
            self.tail += records
        else:
            self.tail = records
            self.emitted_ns = emitted_ns
            self.items.append((emitted_ns, records))
        self.records += len(records)
        if self.records >= self.most_records:
            self.full.add(self)

    def mark(self, marker: Marker) -> None:
        """Put a marker behind the records gathered so far."""
        add_marker(self.items, marker)
        self.emitted_ns = -1

    def seal(self) -> None:
        """What is gathered may have been encoded: later records make an item of their own."""
        self.emitted_ns = -1

    def take(self, size_bytes: int = 0) -> list[Item]:
        """All that was gathered, when it has been sent; to another worker, in that many bytes."""
        items, self.items = self.items, []
        if self.records:
            self.messages += 1
        self.sent += self.records
        self.credit_used += self.records
        if size_bytes and self.records:
            self.bytes_sent += size_bytes
            window_bytes = self.limits.window_bytes
            # The receiver reports each quarter of the window. Of a jumbo that came in pieces it may
            # have reported some, and it is not paid back before the last: so none may count as the
            # whole window, or the sender would wait for a report that is not due.
            charged = min(size_bytes, window_bytes - window_bytes // 4)
            self.bytes_used += charged
            self.sizes.append((self.sent, charged))
            # Of large records fewer are gathered, so that one jumbo stays below the window.
            fitting = window_bytes * self.records // size_bytes
            self.most_records = min(max(fitting, 1), self.limits.gathered_records)
        self.records = 0
        self.emitted_ns = -1
        self.full.discard(self)
        return items

    def credit(self, taken: int) -> None:
        """The receiver has taken that many since the start; an older report changes nothing."""
        self.credit_used = min(self.credit_used, self.sent - taken)
        sizes = self.sizes
        while sizes and sizes[0][0] <= taken:
            self.bytes_used -= sizes.popleft()[1]


class Inlet:
    """The receiving end: what has come from one sender."""

    __slots__ = (
        "ended",
        "last",
        "link",
        "peer",
        "port",
        "received",
        "taken",
        "transfer",
        "unreported",
        "unreported_bytes",
        "wait",
        "watermark",
    )

    def __init__(
        self, link: int, peer: int, port: int, transfer: Histogram, wait: Histogram
    ) -> None:
        self.link = link
        self.peer = peer
        self.port = port
        self.received = 0
        self.taken = 0
        self.unreported = 0  # taken, but the sender does not know yet
        self.unreported_bytes = 0
        self.last: list[Item] | None = None  # its newest message, while that is queued
        self.transfer = transfer  # of the whole stream: from sending to being queued here
        self.wait = wait  # of the whole stream: from there to being taken
        self.watermark = -inf
        self.ended = False
