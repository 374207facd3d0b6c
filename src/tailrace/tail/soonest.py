"""Balancing by what the sender knows anyway: where will a record be done soonest?

By credit a sender knows how many of its records wait at each receiver, and receivers say with it
how long they take for one, how long the way is and how many of others wait there. So a record that
goes there now is done after about `(waiting + 1) * service + way`. By how much service times vary
is added, for it is tails that count. Of the receivers of the sender's own node all are looked
at, of the others two at random: with many senders, the best by a report that all of them have seen
is soon the worst (Mitzenmacher; C3 and Prequal guard against that in other ways).

More guards against herds and against old news:

- what a sender has sent counts at once, and not when the receiver says so;
- workers of a node see what each of them has been given by all (`runtime/loads.pyx`); elsewhere,
  what others have waiting is taken to be worked off since the report;
- a receiver that was slow, and has had nothing since, is believed to be so for less and less long:
  at last it gets one record, and reports;
- of equal ones it is each one's turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tailrace.tail.receivers import Receiver

OLD_NEWS_NS = 100_000_000
"""After so long without a record, a receiver is believed to be half as far from the fastest."""
CHOICES = 2
LEAVE_TIMES = 4
LEAVE_NS = 1_000_000
"""Who stays here while it can leaves when others are so many times as soon, and it matters;
it comes back when they are not any sooner."""


def believed_ns(receiver: Receiver, waiting: int, now_ns: int, fastest_ns: int) -> int:
    """How long a record takes; if nothing waits there, and nothing was heard for long, maybe."""
    service_ns = receiver.service_ns
    if not service_ns:
        return fastest_ns
    silent_ns = now_ns - receiver.heard_ns
    if waiting or silent_ns <= OLD_NEWS_NS or service_ns <= fastest_ns:
        return service_ns
    return fastest_ns + ((service_ns - fastest_ns) >> min(silent_ns // OLD_NEWS_NS, 60))


def others_now(receiver: Receiver, now_ns: int) -> int:
    """What others have waiting there, if it has worked on that since it was heard of."""
    others, service_ns = receiver.others, receiver.service_ns
    if not others or not service_ns:
        return others
    return max(others - max(now_ns - receiver.heard_ns, 0) // service_ns, 0)


def done_ns(receiver: Receiver, now_ns: int, fastest_ns: int) -> int:
    """About how long a record takes that is sent there now."""
    waiting, work_ns = receiver.waiting, receiver.work_ns
    service_ns = believed_ns(receiver, waiting, now_ns, fastest_ns)
    if work_ns >= 0:
        return work_ns + service_ns + receiver.spread_ns + receiver.way_ns
    queued = waiting + others_now(receiver, now_ns)
    spread_ns = receiver.spread_ns
    if service_ns < receiver.service_ns:  # what is no longer believed has no spread either
        spread_ns = spread_ns * service_ns // receiver.service_ns
    return (queued + 1) * service_ns + spread_ns + receiver.way_ns


class Soonest:
    """See above."""

    def __init__(self, chance: Random, *, stays: bool = False) -> None:
        self._chance = chance
        self._stays = stays
        self._turn = 0
        self.away = False
        """Whether what could stay here goes elsewhere, too."""

    def choose(self, receivers: Sequence[Receiver], now_ns: int) -> int:
        """The place of the receiver where a record is done soonest."""
        fastest_ns = min([one.service_ns for one in receivers if one.service_ns], default=1)
        best, best_ns = self._soonest(receivers, self._candidates(receivers), now_ns, fastest_ns)
        if self._stays:
            here = [place for place, one in enumerate(receivers) if one.here]
            if here:
                home, home_ns = self._soonest(receivers, here, now_ns, fastest_ns)
                if not self.away:
                    self.away = home_ns > max(LEAVE_TIMES * best_ns, LEAVE_NS)
                elif home_ns <= best_ns:
                    self.away = False
                best = best if self.away else home
        self._turn = best + 1
        return best

    def _soonest(
        self, receivers: Sequence[Receiver], places: list[int], now_ns: int, fastest_ns: int
    ) -> tuple[int, int]:
        """The best of some, the next in turn of equal ones, and how soon."""
        best, best_ns, best_turn = places[0], -1, 0
        turn, count = self._turn, len(receivers)
        for place in places:
            one_ns = done_ns(receivers[place], now_ns, fastest_ns)
            order = (place - turn) % count
            if best_ns < 0 or one_ns < best_ns or (one_ns == best_ns and order < best_turn):
                best, best_ns, best_turn = place, one_ns, order
        return best, best_ns

    def _candidates(self, receivers: Sequence[Receiver]) -> list[int]:
        far = [place for place, one in enumerate(receivers) if not one.near]
        if len(far) <= CHOICES:
            return list(range(len(receivers)))
        near = [place for place, one in enumerate(receivers) if one.near]
        return near + self._chance.sample(far, CHOICES)
