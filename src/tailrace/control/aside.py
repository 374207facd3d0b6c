"""Reports of a worker that is held up: from a thread aside, while a user's function runs.

A worker reports between two rounds. A batch of slow records, or one record that takes seconds,
keeps it from that; then a thread beside it reports in its place, and says in which operator it is.
Until then that thread waits without the interpreter's lock, and costs nothing. Only code that keeps
this lock to itself, as some native code does, leaves a worker silent; `age_s` shows it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

from tailrace.control.pulse import Pulse
from tailrace.runtime.core import Core
from tailrace.transport.frame import Buffer, Frame
from tailrace.transport.tcp import TcpConnection

PATIENCE_MS = 750


class SharedConnection(TcpConnection):
    """A connection that two threads may use: one serves it, the other may send, too."""

    def __init__(self, *args: object, **options: object) -> None:
        self.lock = threading.RLock()
        """Held during each call that changes it."""
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def on_ready(self, events: int) -> list[Frame]:
        """See `TcpConnection`."""
        with self.lock:
            return super().on_ready(events)

    def send(self, target: int, kind: int, buffers: Sequence[Buffer]) -> bool:
        """See `TcpConnection`."""
        with self.lock:
            return super().send(target, kind, buffers)

    def flush(self) -> None:
        """See `TcpConnection`."""
        with self.lock:
            super().flush()

    def close(self, reason: str = "closed by this side") -> None:
        """See `TcpConnection`."""
        with self.lock:
            super().close(reason)


class Aside:
    """Calls `report` from a thread of its own whenever nothing was reported for `PATIENCE_MS`."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._pulse = Pulse()
        self._thread = threading.Thread(target=self._run, name="tailrace-aside", daemon=True)
        self._thread.start()

    def reported(self) -> None:
        """The worker has reported by itself."""
        self._pulse.beat()

    def _run(self) -> None:
        while self._pulse.await_silence(PATIENCE_MS):
            self._report()
            self._pulse.beat()

    def close(self) -> None:
        """End the thread."""
        self._pulse.stop()
        self._thread.join()
        self._pulse.close()


def where_it_is(core: Core, thread: int) -> str:
    """The operator whose code a thread runs, the innermost one; empty if it cannot be told."""
    names = {id(step): name for instance in core.instances for name, step in instance.steps}
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",):
            name = names.get(id(frame.f_locals.get("self")))
            if name is not None:
                return name
        frame = frame.f_back
    return ""
