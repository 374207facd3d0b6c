"""The process that is a job's driver, seen from outside."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos_parts.workload import Order
from harness.process import Peer

PROGRAM = Path(__file__).with_name("driver.py")
END_S = 30.0
"""So long what a driver has started may take to end after it."""


class DriverEndedError(RuntimeError):
    """It has ended, and nobody has killed it."""


class Driver(Peer):
    """A process that runs `driver.py`."""

    def __init__(self, master: str, folder: Path) -> None:
        own = Path(tempfile.mkdtemp(prefix="driver-", dir=folder))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            # Whatever is killed can tidy up no more.
            "TMPDIR": str(own),
            "SPARK_LOCAL_DIRS": str(own),
        }
        super().__init__([sys.executable, str(PROGRAM), master], own, environment)
        self.last: dict[str, Any] = {}
        """What it said last."""
        self._folder = own
        self._rest = b""
        self._work: Path | None = None

    def begin(self, order: Order) -> None:
        """Have it run an order."""
        self.tell(json.dumps(vars(order)))

    def hear(self, timeout_s: float) -> list[dict[str, Any]]:
        """What it has said by now, or as soon as it says anything."""
        if not select.select([self], [], [], timeout_s)[0]:
            return []
        chunk = os.read(self.fileno(), 1 << 16)
        if not chunk:
            raise DriverEndedError(f"the driver has ended: {self._last_words()}")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events:
            if "work" in event:
                self._work = Path(event["work"])
        if events:
            self.last = events[-1]
        return events

    def errors(self) -> str:
        """The end of what it and its workers have printed."""
        return self._errors.read_text(errors="replace")[-4000:]

    def forget(self) -> int:
        """It was killed: wait until nothing of it is left; how many had to be ended by force."""
        return self._await_all()

    def finish(self) -> int:
        """Let it end; how many processes had to be ended by force."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        return self._await_all()

    def _await_all(self) -> int:
        deadline_s = time.monotonic() + END_S
        while self.running() and time.monotonic() < deadline_s:
            self._process.poll()
            time.sleep(0.02)
        left = self.running()
        self.end()
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
        return len(left)
