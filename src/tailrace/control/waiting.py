"""How a worker waits when it has nothing to do: what it decides, and how it does that.

Waking a sleeping process takes 50 us or more and costs the one who wakes it 15 to 20; spinning
costs a core. `Balanced` therefore does three things. At high rates it naps: it sleeps without a
bell, so that nobody has to wake it, until something of its own is due, and a moment at least; what
has come meanwhile is done in one turn. At low rates it sleeps until it is woken. And there it
spins where that saves a wake-up, within a budget: as long as it has worked, and a twentieth of a
core besides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.control.cores import usable_cores
from tailrace.control.sockets import Sockets
from tailrace.transport.ring import Reader

LONGEST_SLEEP_NS = 500_000_000
WAKING_UP_NS = 150_000
"""About what falling asleep and waking up take: to be there in time, be up that early."""
_FOLLOW_NS = 50_000
"""What follows work closely is often its own answer."""
_SPIN_NS = 50_000
_MANY_CORES = 2


@dataclass(frozen=True, slots=True)
class Rest:
    """What to do now: spin at most so long, then sleep until woken, at most so long."""

    spin_ns: int = 0
    sleep_ns: int = 0


class Policy:
    """Decides how to wait. Knows no clock and does nothing itself."""

    naps = False
    """Whether to rest after each turn, also if it had something to do."""
    BEAT_NS = 1
    """Who has napped in vain naps on, for at most so long each time,"""
    vain_ns = 0
    """until so long has passed."""

    def nap_ns(self, now_ns: int, worked_ns: int, due_ns: int | None) -> int:
        """How long to sleep without being woken by messages; 0: not so, decide.

        Since the last rest the worker has done something for `worked_ns`; 0: there was nothing.
        By itself it wants to be back at `due_ns`.
        """
        return 0

    def decide(self, now_ns: int, due_ns: int | None, crowded: bool) -> Rest:
        """What to do when there is nothing to do.

        The worker wants to be back at `due_ns`; more threads than cores want to run, or not.
        """
        raise NotImplementedError

    def spun(self, spun_ns: int) -> None:
        """So long it did spin."""


class Spin(Policy):
    """Never sleep. For workers that have cores of their own."""

    def decide(self, now_ns: int, due_ns: int | None, crowded: bool) -> Rest:
        """See `Policy`."""
        return Rest(spin_ns=min(_SPIN_NS, _until(now_ns, due_ns)))


class Sleep(Policy):
    """Never spin: sleep until woken, or until something is due."""

    def decide(self, now_ns: int, due_ns: int | None, crowded: bool) -> Rest:
        """See `Policy`."""
        return Rest(sleep_ns=_until(now_ns, due_ns))


class Balanced(Policy):
    """Nap at high rates, sleep at low ones, spin within a budget."""

    SHARE = 0.05
    """Of a core, that may be spun away beyond what was worked."""
    BUCKET_NS = 2_000_000
    """What can be saved of that."""
    BEAT_NS = 150_000
    """Who waits for messages gets up so often. Beats are counted from getting up to getting up: who
    works longer naps less."""
    LEAST_NS = 90_000
    """Who has much of its own to do gets up when that is due: so long after the last time,"""
    MOST_NS = 300_000
    """or up to so long, since it will look for messages then. What came meanwhile has waited, so
    p99s are this and 0.1 ms more."""
    BREATH_NS = 40_000
    """No nap is shorter: it would cost more than the work that it puts together saves."""
    NAPS_BELOW_NS = 400_000
    """Nap while it is silent for shorter than this between work, however long that takes."""
    _RARE_NS = 10_000_000

    def __init__(self) -> None:
        self._tokens_ns = 0.0
        self._asked_ns = 0
        self._worked_at_ns = 0
        self._gap_ns = self._RARE_NS  # smoothed silence between stretches of work
        self._due_in_ns = self._RARE_NS  # smoothed time until something is due

    def nap_ns(self, now_ns: int, worked_ns: int, due_ns: int | None) -> int:
        """See `Policy`."""
        earned_ns = worked_ns + self.SHARE * (now_ns - self._asked_ns)
        self._tokens_ns = min(self._tokens_ns + earned_ns, self.BUCKET_NS)
        self._asked_ns = now_ns
        silence_ns = now_ns - self._worked_at_ns - worked_ns
        silence_ns = max(0, min(silence_ns, self._RARE_NS))
        if worked_ns:
            self._gap_ns += (silence_ns - self._gap_ns) // 8
            self._worked_at_ns = now_ns
            silence_ns = 0
        self.naps = self._gap_ns < self.NAPS_BELOW_NS and silence_ns <= 4 * self._gap_ns
        if not self.naps:
            return 0
        self.vain_ns = 4 * self._gap_ns - silence_ns
        due_in_ns = self._RARE_NS if due_ns is None else min(due_ns - now_ns, self._RARE_NS)
        self._due_in_ns += (due_in_ns - self._due_in_ns) // 8
        beat_ns = max(due_in_ns + worked_ns, self.LEAST_NS)
        most_ns = self.MOST_NS if self._due_in_ns < self.NAPS_BELOW_NS else self.BEAT_NS
        return max(min(beat_ns, most_ns) - worked_ns, self.BREATH_NS)

    def decide(self, now_ns: int, due_ns: int | None, crowded: bool) -> Rest:
        """See `Policy`."""
        sleep_ns = _until(now_ns, due_ns)
        if crowded or self._tokens_ns < WAKING_UP_NS:
            return Rest(sleep_ns=sleep_ns)
        if sleep_ns <= WAKING_UP_NS:
            return Rest(spin_ns=sleep_ns)  # the last bit
        if sleep_ns < LONGEST_SLEEP_NS:
            sleep_ns -= WAKING_UP_NS
        follows = now_ns - self._worked_at_ns < _FOLLOW_NS
        return Rest(_FOLLOW_NS if follows else 0, sleep_ns)

    def spun(self, spun_ns: int) -> None:
        """See `Policy`."""
        self._tokens_ns -= spun_ns


POLICIES: dict[str, type[Policy]] = {"balanced": Balanced, "spin": Spin, "sleep": Sleep}


def policy_of(waiting: str) -> Policy:
    """The policy of that name."""
    if waiting not in POLICIES:
        raise ValueError(f"waiting is {waiting!r}; it must be one of {tuple(POLICIES)}")
    return POLICIES[waiting]()


def _until(now_ns: int, due_ns: int | None) -> int:
    return LONGEST_SLEEP_NS if due_ns is None else max(0, min(LONGEST_SLEEP_NS, due_ns - now_ns))


class Waiting:
    """Does what a policy decides, on a worker's ring and its sockets."""

    def __init__(
        self, policy: Policy, reader: Reader, sockets: Sockets, cores: float | None = None
    ) -> None:
        """On so many cores; by default those that this process may use, its quota included."""
        self.policy = policy
        # What spins uses up a small quota, and then work has to wait.
        self._few_cores = (usable_cores() if cores is None else cores) < _MANY_CORES
        self._reader = reader
        self._sockets = sockets
        self.spun_ns = 0
        """In all, by the clock."""

    def nap(
        self, now_ns: int, worked_ns: int, due_ns: int | None, sources: Iterable[int] = ()
    ) -> bool:
        """Sleep for some moments, if the policy wants that; sockets are served.

        In vain it naps on, but not beyond `due_ns`, nor if there are `sources` to be asked: they
        say by descriptors that they have something, and nobody looks at these meanwhile.
        """
        policy, sockets = self.policy, self._sockets
        nap_ns = policy.nap_ns(now_ns, worked_ns, due_ns)
        if not nap_ns:
            return False
        most_ns = policy.vain_ns if due_ns is None else min(policy.vain_ns, due_ns - now_ns)
        if most_ns > nap_ns and next(iter(sources), None) is not None:
            most_ns = 0
        if self._reader.nap(sockets.fileno(), nap_ns, policy.BEAT_NS, max(most_ns, 0)):
            sockets.look()
        return True

    def rest(self, due_ns: int | None, sources: Iterable[int]) -> None:
        """Return when there may be something to do: a message, a socket, or it is `due_ns`.

        To return early costs a turn in vain, nothing else. `sources` are descriptors by which
        sources say that they have something.
        """
        reader, sockets = self._reader, self._sockets
        now_ns = time.monotonic_ns()
        rest = self.policy.decide(now_ns, due_ns, self._few_cores or reader.crowded())
        if rest.spin_ns:
            found = reader.spin(rest.spin_ns / 1e9)
            spun_ns = time.monotonic_ns() - now_ns
            self.spun_ns += spun_ns
            self.policy.spun(spun_ns)
            if found:
                return
        if not rest.sleep_ns:
            return
        ready = False
        patience_ms = reader.arm()
        if patience_ms:
            sleep_s = rest.sleep_ns / 1e9
            if patience_ms > 0:
                sleep_s = min(sleep_s, patience_ms / 1000)
            ready = sockets.sleep(sleep_s, sources)
        reader.disarm()
        if ready:
            sockets.look()
