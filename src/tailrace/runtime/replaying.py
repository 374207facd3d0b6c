"""The source's side of replay: which of its runs are under way, and which are sent again.

A run is one batch that a source emitted. Its records are kept until it is over, which the board
says (`board.pyx`). One that is not over in time may be sent again, on a way around the worker that
the first was last sent to; the first of the two that leaves the stateless stretch counts.

When, how often and whether at all is a policy's decision (`tailrace.tail`). Here it is seen to that
a copy is never sent into another epoch than its original, nor behind the end of a source: what was
emitted before a cut is not sent again after it. So going back to an epoch needs no memory of what
was seen: all that is under way then is gone, original and copy.

Bounded: a worker tracks at most as many runs as its board has slots, and none of more records than
the policy wants: under load batches are large, and what is late then is late everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tailrace.graph.model import Record
from tailrace.runtime.board import Boards, origin_of
from tailrace.runtime.deployment import Deployment
from tailrace.runtime.instance import Instance
from tailrace.runtime.reading import SourceStep
from tailrace.runtime.replayable import stretch_workers, why_not

_LEAST_SLACK_NS = 500_000
"""Who looks so much too late was itself kept from running, and that says nothing of others."""

_LOOK_NS = 200_000
"""How often to look at most: in a round that does little it would be what takes longest."""
_BUSY_NS = 100_000_000
"""The time that a worker is found to be busy, or not, in."""


class Policy(Protocol):
    """Decides when a run is late, and whether it is worth another try."""

    most_records: int
    """Batches of more are no runs."""

    def begun(self) -> bool:
        """A run was sent: whether its copy is to follow at once."""

    def note(self, took_ns: int) -> None:
        """The original of a run was done in that time."""

    def tried(self, saved_ns: int) -> None:
        """The copy of a run was done that much before its original; 0: it was not."""

    def timeout_ns(self, now_ns: int) -> int | None:
        """How old a run may get; None: it is not known yet, or nothing is to be sent again."""

    def allow(self, busy: float) -> bool:
        """A run is late: whether to send it again. The worker has been busy for that share."""


@dataclass(slots=True)
class Run:
    """One batch that is under way."""

    origin: int
    instance: Instance
    records: list[Record] | None
    """None: it is not to be sent again."""
    emitted_ns: int
    sent_ns: int
    copied: bool = False


class Replaying:
    """See above. One for all sources of a core."""

    def __init__(
        self,
        boards: Boards,
        policy: Policy | None,
        clock_ns: Callable[[], int],
        shares_memory: Callable[[int], bool],
    ) -> None:
        """`shares_memory(rank)`: whether that worker can see this one's board."""
        self.policy = policy
        self._boards = boards
        self._clock_ns = clock_ns
        self._shares_memory = shares_memory
        self._may: dict[str, bool] = {}
        self._slots: dict[int, Run] = {}
        self._young: deque[Run] = deque()  # by when they were sent; not late yet
        self._late: list[Run] = []
        self._paused = False
        self._grace_ns = 0
        self._busy_ns = self._since_ns = self._next_look_ns = 0
        self._busy = 0.0
        self.runs = self.copies = self.won = 0
        """How many were tracked, sent again, and of these over by the copy."""

    def deployed(self, deployment: Deployment, sources: Iterable[str]) -> None:
        """Sources run here under that deployment."""
        self._may = {
            source: not why_not(deployment, source)
            and all(map(self._shares_memory, stretch_workers(deployment, source)))
            for source in sources
        }

    def counts(self) -> dict[str, int]:
        """How many runs were tracked, sent again, and overtaken by their copies."""
        if not self.runs:
            return {}
        return {"runs": self.runs, "copies": self.copies, "overtaken": self.won}

    # ---- the way of a run ----

    def begin(self, instance: Instance, source: SourceStep, records: list[Record]) -> bool:
        """Emit a batch as a run; False: it cannot be one, and has not been emitted."""
        if (
            self.policy is None
            or self._paused
            or len(records) > self.policy.most_records
            or not self._may[instance.id.operator]
        ):
            return False
        boards, stamp = self._boards, instance.stamp
        slot = (boards.sequence + 1) % boards.slots
        if (before := self._slots.get(slot)) is not None and not self._is_over(before):
            boards.sequence += 1  # this slot's turn comes again
            return False
        boards.sequence += 1
        self.runs += 1
        origin = origin_of(boards.sequence, boards.rank)
        kept = records.copy()
        run = Run(origin, instance, kept, stamp.emitted_ns, stamp.now_ns)
        self._slots[slot] = run
        self._send(run, source, records, origin)
        self._young.append(run)
        if self.policy.begun():
            self._copy(run)
        return True

    def _send(self, run: Run, source: SourceStep, records: list[Record], origin: int) -> None:
        stamp = run.instance.stamp
        stamp.origin, stamp.produced, stamp.sent_to = origin, 0, -1
        source.put(records)
        # Nothing has left its lane yet: who gets it finds the number on the board.
        self._boards.open(origin, stamp.produced, max(stamp.sent_to, 0), self._clock_ns())
        stamp.origin, stamp.avoid = 0, -1

    def _copy(self, run: Run) -> None:
        """Send a run again, around the worker that it is stuck at."""
        source, records = run.instance.source, run.records
        assert source is not None and records is not None
        stamp = run.instance.stamp
        copy = run.origin | 1 << 16
        stuck_at = self._boards.where(run.origin)
        self._boards.around(copy, stuck_at)
        stamp.emitted_ns, stamp.now_ns, stamp.avoid = run.emitted_ns, self._clock_ns(), stuck_at
        self.copies += 1
        run.copied, run.records = True, None
        self._send(run, source, records, copy)

    def pause(self, paused: bool) -> None:
        """Begin no runs while the deployment changes: where they would go nobody knows."""
        self._paused = paused
        self.forget()

    def forget(self) -> None:
        """What was emitted until now is not sent again: an epoch ends here, or the input."""
        for run in self._slots.values():
            run.records = None

    # ---- looking after them ----

    def look(self, began_ns: int, progress: bool) -> bool:
        """At the end of a round: see what is over, and send again what is late."""
        young, policy = self._young, self.policy
        if policy is None and not self._slots:
            return False
        now_ns = began_ns
        if progress:
            now_ns = self._clock_ns()
            self._busy_ns += now_ns - began_ns
        if now_ns < self._next_look_ns:
            return False
        self._next_look_ns = now_ns + _LOOK_NS
        self._note_busy(now_ns)
        if self._late:
            self._late = [run for run in self._late if not self._is_over(run)]
        while young and self._is_over(young[0]):
            young.popleft()
        if not young or policy is None or (timeout_ns := policy.timeout_ns(now_ns)) is None:
            return False
        if young and now_ns - young[0].sent_ns > timeout_ns + self._slack_ns(timeout_ns):
            if not self._grace_ns:
                self._grace_ns = now_ns + self._slack_ns(timeout_ns)
        else:
            self._grace_ns = 0
        if now_ns < self._grace_ns:
            return False
        progress = False
        while young and now_ns - young[0].sent_ns >= timeout_ns:
            run = young.popleft()
            if not self._is_over(run):
                progress |= self._consider(run)
                self._late.append(run)
        self._grace_ns = 0
        return progress

    @staticmethod
    def _slack_ns(timeout_ns: int) -> int:
        return max(timeout_ns // 4, _LEAST_SLACK_NS)

    def _consider(self, run: Run) -> bool:
        assert self.policy is not None
        instance = run.instance
        if (
            run.records is None
            or instance.ending
            or instance.congested
            or not self.policy.allow(self._busy)
        ):
            run.records = None
            return False
        self._copy(run)
        return True

    def _is_over(self, run: Run) -> bool:
        """Whether nothing is to be heard of a run any more; what there is to learn is learnt."""
        slot = (run.origin >> 17) % self._boards.slots
        if self._slots.get(slot) is not run:
            return True
        over_ns = self._boards.over_ns(run.origin)
        if over_ns is None:
            return False
        done_ns = self._boards.done_ns(run.origin)
        if run.records is not None:
            run.records = None
        if run.copied and done_ns is None:
            # The copy was faster. How late the original was is worth waiting for: a policy that
            # only saw what replays make of latencies would take them for good by themselves.
            return False
        if done_ns is not None:
            saved_ns = max(done_ns - over_ns, 0)
            self.won += saved_ns > 0
            if self.policy is not None:
                self.policy.note(done_ns - run.sent_ns)
                if run.copied:
                    self.policy.tried(saved_ns)
        del self._slots[slot]
        return True

    def _note_busy(self, now_ns: int) -> None:
        if now_ns - self._since_ns >= _BUSY_NS:
            self._busy = self._busy_ns / (now_ns - self._since_ns)
            self._busy_ns, self._since_ns = 0, now_ns

    def due_ns(self) -> int | None:
        """When a run that is under way gets late; None: there is none."""
        if not self._young or self.policy is None:
            return None
        timeout_ns = self.policy.timeout_ns(self._clock_ns())
        while self._young and self._is_over(self._young[0]):
            self._young.popleft()
        if timeout_ns is None or not self._young:
            return None
        late_ns = self._young[0].sent_ns + timeout_ns
        return max(late_ns, self._grace_ns, self._next_look_ns)
