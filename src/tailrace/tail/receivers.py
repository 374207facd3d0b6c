"""What a sender knows of a receiver, and how records are given to receivers by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Receiver(Protocol):
    """One receiver of a shuffled stream, as one sending worker knows it."""

    @property
    def peer(self) -> int:
        """The worker that it runs in."""

    @property
    def here(self) -> bool:
        """Whether that is the sender's own."""

    @property
    def near(self) -> bool:
        """Whether that is a worker of the same node."""

    @property
    def waiting(self) -> int:
        """Records of this sender that are gathered for it, on the way, or not yet done there."""

    @property
    def others(self) -> int:
        """Records of other senders that waited there when it last reported."""

    @property
    def work_ns(self) -> int:
        """How much work its worker has been given by all senders, as of now; -1: nobody knows."""

    @property
    def service_ns(self) -> int:
        """How long it takes for a record, on average; 0: nobody knows."""

    @property
    def spread_ns(self) -> int:
        """How far from that it mostly is."""

    @property
    def way_ns(self) -> int:
        """How long records are on their way there."""

    @property
    def turn_ns(self) -> int:
        """What it takes to hear that a record is done, beside its service, with nobody before it.

        An average of what is left when the service time is taken off: it may be below 0.
        """

    @property
    def heard_ns(self) -> int:
        """When it last reported."""

    @property
    def fill(self) -> float:
        """How full its queue is, of 1."""

    @property
    def taken(self) -> int:
        """Records of this sender that it has done, ever."""

    @property
    def under_way_ns(self) -> int:
        """The sum of the times for which records of this sender were under way or queued there.

        Over a period, divided by `taken` in it, that is their average latency (Little's law).
        """


class Policy(Protocol):
    """Decides who gets the next share of a batch."""

    def choose(self, receivers: Sequence[Receiver], now_ns: int) -> int:
        """The place of the receiver."""
