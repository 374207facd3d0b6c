"""The two ends of a link, and the credit between them.

The receiver says how many records it has taken from its queue; the sender sends no more than
`window` records beyond that. So a slow instance holds up exactly those who send to it, whatever
else the two workers exchange, and everything in between is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from tailrace.graph.model import Record


@dataclass(frozen=True)
class Marker:
    """A control message that flows in-band, in order with the records of its sender."""

    kind: str
    value: Any = None


END = Marker("end")

WATERMARK = "watermark"
"""The kind of markers that say how far event time is: (watermark, emitted_ns)."""

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
        "credit_used",
        "emitted_ns",
        "full",
        "items",
        "link",
        "most_records",
        "peer",
        "records",
        "sent",
        "tail",
    )

    def __init__(self, link: int, peer: int, most_records: int, full: set[Outlet]) -> None:
        self.link = link
        self.peer = peer
        self.most_records = most_records
        self.full = full  # those of its instance's outlets that hold `most_records` or more
        self.items: list[Item] = []
        self.records = 0  # gathered and not yet sent
        self.sent = 0
        self.credit_used = 0  # of `sent`, what the receiver has not yet reported as taken
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

    def take(self) -> list[Item]:
        """All that was gathered, when it has been sent."""
        items, self.items = self.items, []
        self.sent += self.records
        self.credit_used += self.records
        self.records = 0
        self.emitted_ns = -1
        self.full.discard(self)
        return items

    def credit(self, taken: int) -> None:
        """The receiver has taken that many since the start; an older report changes nothing."""
        self.credit_used = min(self.credit_used, self.sent - taken)


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
        "unreported",
        "watermark",
    )

    def __init__(self, link: int, peer: int, port: int) -> None:
        self.link = link
        self.peer = peer
        self.port = port
        self.received = 0
        self.taken = 0
        self.unreported = 0  # taken, but the sender does not know yet
        self.last: list[Item] | None = None  # its newest message, while that is queued
        self.watermark = -inf
        self.ended = False
