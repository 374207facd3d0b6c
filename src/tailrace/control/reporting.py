"""What a worker tells the coordinator: that it is there, how far it is, what went wrong."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from tailrace.checkpoint.errors import DamagedError
from tailrace.control.aside import Aside, SharedConnection, where_it_is
from tailrace.control.clocks import Follower
from tailrace.control.progress.report import gather, gathered
from tailrace.control.protocol import KIND, Failed, Message, Progress, Suspects, pack
from tailrace.control.sockets import Sockets
from tailrace.control.waiting import Waiting
from tailrace.runtime.core import Core
from tailrace.runtime.step import OperatorFailed
from tailrace.transport.tcp import Refusals

_TRIES = 3
_SLICE_NS = 200_000
"""How long a report may be worked on between two rounds (each more costs an idle worker a nap),"""
_WHOLE_NS = 20_000_000
"""unless it was begun so long ago: where rounds take long, a slice more does not matter."""
_PAIRS_NS = 5_000_000_000
"""How often pairs of keys are reported, if they are counted: there are thousands of them."""


class Reporting:
    """Speaks to the coordinator over the worker's connection to it; silent once that is closed."""

    def __init__(
        self,
        control: SharedConnection,
        sockets: Sockets,
        every_s: float,
        clock: Follower,
        refusals: Refusals,
        waiting: Waiting,
    ) -> None:
        self._control = control
        self._refusals = refusals
        self._waiting = waiting
        self._sockets = sockets
        self._every_ns = int(every_s * 1e9)
        self._cpu_before_s = time.process_time()  # Spark may have used this process before
        self._started_ns = 0
        self._clock = clock
        self._next_report_ns = 0
        self.next_ns = 0
        """When there is next something to tell."""
        self._core: Core | None = None
        self._aside: Aside | None = None
        self._reported_ns = 0
        self._ended = False
        self._attempt = 0
        self._next_pairs_ns = 0
        self._steps: Iterator[None] | None = None  # of a report that is being made
        self._instances: object = None  # that it is of
        self._begun_ns = 0

    def every(self, seconds: float) -> None:
        """Report so often from now on."""
        self._every_ns = int(seconds * 1e9)

    def tell(self, message: Message) -> None:
        """Send a message."""
        self._send(pack(message))

    def _send(self, packed: bytes) -> None:
        if not self._control.closed:
            self._control.send(0, KIND, [packed])
            self._control.flush()
            self._sockets.await_room(self._control)

    def started(self, core: Core, now_ns: int) -> None:
        """The sources start now. From now on somebody reports even while the core is held up."""
        self._core = core
        self._started_ns = self._reported_ns = now_ns
        self._next_report_ns = self.next_ns = 0
        if self._aside is None:
            self._aside = Aside(partial(self._report_aside, threading.get_ident()))

    def begin(self, attempt: int) -> None:
        """All that is told from now on is of that attempt, and its core is not there yet."""
        with self._control.lock:
            self._core = self._steps = None
            self._attempt = attempt
            self._ended = False

    def ask_time(self) -> None:
        """Ask the coordinator for the time, if it is time for that."""
        if (ask := self._clock.ask()) is not None:
            self.tell(ask)

    def tell_what_is_due(self, core: Core, now_ns: int, ended: bool) -> bool:
        """Ask for the time, report, or both; whether there is more of a report to be told.

        With many instances a report takes milliseconds: it is made in slices, between rounds.
        """
        self.ask_time()
        if self._steps is not None and self._instances is not core.instances:
            self._steps, self._next_report_ns = None, 0  # what it is about has changed: anew
        if self._steps is None and now_ns >= self._next_report_ns:
            self._steps, self._instances = self._report(core, now_ns, ended), core.instances
            self._begun_ns = now_ns
        if self._steps is not None:
            late = now_ns - self._begun_ns > _WHOLE_NS
            until_ns = time.monotonic_ns() + _SLICE_NS
            for _ in self._steps:
                if time.monotonic_ns() >= until_ns and not late:
                    break
            else:
                self._steps = None
        more = self._steps is not None
        self.next_ns = 0 if more else min(self._next_report_ns, self._clock.next_ns)
        return more

    def report(self, core: Core, now_ns: int, ended: bool) -> None:
        """Tell how far the core is, at once.

        A coordinator that is held up gets the next one, so that it does not seem silent; but it
        always learns of the end.
        """
        self._steps = None
        for _ in self._report(core, now_ns, ended):
            pass

    def _report(self, core: Core, now_ns: int, ended: bool) -> Iterator[None]:
        self._next_report_ns = now_ns + self._every_ns
        if self._aside is not None:
            self._aside.reported()
        self._core, self._reported_ns = core, now_ns
        if self._control.unanswered_bytes and not ended:
            return
        progress = self._begun(core, now_ns, ended)
        yield from gather(core, progress)
        if core.pairs is not None and (ended or now_ns >= self._next_pairs_ns):
            self._next_pairs_ns = now_ns + _PAIRS_NS
            progress.sampled_pairs = core.pairs.sampled
            progress.pairs = core.pairs.counted()
        packed = pack(progress)
        yield
        with self._control.lock:  # behind the report of the end comes none from aside
            self._ended = ended
            self._send(packed)

    def _begun(self, core: Core, now_ns: int, ended: bool) -> Progress:
        """A report that has yet to be filled in."""
        cpu_s = time.process_time() - self._cpu_before_s
        running_s = (now_ns - self._started_ns) / 1e9
        progress = Progress(core.rank, now_ns, ended, cpu_s, running_s=running_s)
        progress.clock_uncertainty_ns = self._clock.uncertainty_ns
        progress.refusals = self._refusals.counts()
        progress.attempt = self._attempt
        progress.spun_s = self._waiting.spun_ns / 1e9
        return progress

    def _report_aside(self, thread: int) -> None:
        """In the thread aside: the worker's own has not reported for a while."""
        core = self._core
        if core is None or self._control.unanswered_bytes:
            return
        now_ns = self._clock.clock_ns()
        progress = None
        for _ in range(_TRIES):
            # The other thread goes on meanwhile, and counts.
            with suppress(RuntimeError):
                progress = gathered(core, self._begun(core, now_ns, ended=False))
                break
        if progress is None:
            return
        progress.held_in = where_it_is(core, thread)
        progress.held_s = (now_ns - self._reported_ns) / 1e9 if progress.held_in else 0.0
        with self._control.lock:
            if not self._ended and self._core is core and not self._control.closed:
                self._control.send(0, KIND, [pack(progress)])
                self._control.flush()

    def close(self) -> None:
        """Report no more."""
        if self._aside is not None:
            self._aside.close()
            self._aside = None

    def failed(self, rank: int, error: BaseException) -> str:
        """Tell why this worker cannot go on, and return that with the traceback."""
        cause = error.error if isinstance(error, OperatorFailed) else error
        text = "".join(traceback.format_exception(cause))
        damaged = isinstance(cause, DamagedError)
        if isinstance(error, OperatorFailed):
            reason = str(error)
            self.tell(Failed(rank, reason, text, error.operator, error.record, damaged))
        else:
            reason = str(error) if damaged else repr(error)
            self.tell(Failed(rank, reason, text, damaged=damaged))
        return f"{reason}\n\n{text}"

    def suspects(self, rank: int, peer: int, reason: str) -> str:
        """Tell that a peer cannot be reached any more, and return that."""
        self.tell(Suspects(rank, peer, reason, self._attempt))
        return f"worker {rank} has lost worker {peer}: {reason}"
