"""Late binding: records wait in one queue of the sender, and go to who is about to run dry.

That is the shared queue of Du's thesis, M/M/c instead of c times M/M/1, without memory that
consumers share: so it also works across processes and hosts, and order, markers and credit are
those of any other link. A receiver has what it is working on, and as much beside it as it does
while a record and the word about it are on their way: `depth`. Instances of one worker share its
thread, so they count as one.

Who is much slower than others gets a record only if it would be done there sooner than behind all
that is queued for the fast ones: that a slow server is free does not make it a good choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.tail.receivers import Receiver
from tailrace.tail.soonest import believed_ns, others_now

FIRST_DEPTH = 2
"""While nobody knows how quick a receiver is."""
LONGEST_TURN_NS = 2_000_000
"""What took longer was no way: somebody was stopped."""
OVERDUE = 8
"""Who has reported nothing for so many times as long as it should take is not counted on."""


def depth(service_ns: int, turn_ns: int, backlog: bool = False) -> int:
    """How many records a worker should have, what it works on included.

    While one is on its way nobody works. With a backlog, that costs more than to decide early.

    >>> depth(2_000_000, 150_000), depth(100_000, 150_000), depth(1_000, 150_000)
    (1, 3, 151)
    >>> depth(2_000_000, 150_000, backlog=True)
    2
    """
    if not service_ns:
        return FIRST_DEPTH
    turn_ns = min(max(turn_ns, 0), LONGEST_TURN_NS)
    return 1 + max((turn_ns + service_ns // 2) // service_ns, backlog)


class Late:
    """Deals what is queued."""

    def __init__(self) -> None:
        self._turn = 0

    def next(
        self, receivers: Sequence[Receiver], queued: int, now_ns: int
    ) -> tuple[int, int] | None:
        """Who gets the next of the queued records, and how many at most; None: nobody, yet.

        Nobody only while something is under way: whoever does that will be heard of.
        """
        fastest_ns = min([one.service_ns for one in receivers if one.service_ns], default=0)
        waiting: dict[int, int] = {}
        busy: dict[int, int] = {}
        seen: dict[int, bool] = {}
        for one in receivers:
            peer, has, work_ns = one.peer, one.waiting, one.work_ns
            waiting[peer] = waiting.get(peer, 0) + has
            seen[peer] = work_ns >= 0
            if work_ns >= 0 and one.service_ns:
                busy[peer] = -(-work_ns // one.service_ns)
            else:
                others = others_now(one, now_ns) if one.others else 0
                busy[peer] = busy.get(peer, 0) + has + others
        idle, backlog = not any(waiting.values()), queued >= len(waiting)
        best, best_order, best_ns = -1, (0, 0, 0), 0
        count = len(receivers)
        for place, one in enumerate(receivers):
            if one.fill >= 1:
                continue
            peer = one.peer
            has = busy[peer]
            service_ns = believed_ns(one, waiting[peer], now_ns, fastest_ns)
            # Who has nothing of ours does not tell us when it is free.
            tells = waiting[peer] if seen[peer] else not idle
            if tells and depth(service_ns, one.turn_ns, backlog) <= has:
                continue
            order = ((has + 1) * service_ns, one.waiting, (place - self._turn) % count)
            if best < 0 or order < best_order:
                best, best_order, best_ns = place, order, service_ns
        if best < 0 or self._is_too_slow(receivers, best, best_ns, waiting, queued, now_ns):
            return None
        self._turn = best + 1
        chosen = receivers[best]
        # Half of what there is room for: others may be as free.
        return best, max((depth(best_ns, chosen.turn_ns, backlog) - busy[chosen.peer] + 1) // 2, 1)

    def _is_too_slow(
        self,
        receivers: Sequence[Receiver],
        place: int,
        service_ns: int,
        waiting: dict[int, int],
        queued: int,
        now_ns: int,
    ) -> bool:
        """Whether faster ones, all busy, will have done all that is queued before this one has."""
        faster: dict[int, int] = {}
        for one in receivers:
            other_ns, has = one.service_ns, waiting[one.peer]
            if not has or not 0 < other_ns < service_ns or one.peer == receivers[place].peer:
                continue
            if now_ns - one.heard_ns < OVERDUE * (has * other_ns + one.turn_ns):
                faster[one.peer] = min(faster.get(one.peer, other_ns), other_ns)
        if not faster:
            return False
        rate = sum(1 / other_ns for other_ns in faster.values())
        return service_ns > (queued + len(faster)) / rate + min(faster.values())
