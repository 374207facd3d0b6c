"""Processes that a benchmark starts and speaks to, line by line."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

REPLY_TIMEOUT_S = 12.0  # longer than a peer waits for a message, so that its own error is seen
END_TIMEOUT_S = 1.0
TIDY_TIMEOUT_S = 5.0  # a JVM removes its temporary folders when its parent has gone
_STATE, _SESSION = 0, 3  # places in /proc/PID/stat after the name
_CPU = slice(11, 13)


class PeerError(RuntimeError):
    """A peer could not start, died, or does not answer."""


class Peer:
    """One peer process, spoken to line by line."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it; without an `environment`, with ours and all of our import path."""
        ours = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._errors = Path(tempfile.mkdtemp(dir=folder)) / "stderr"
        with self._errors.open("wb") as errors:
            # A session of its own: Ctrl-C reaches the benchmark alone, which then ends its peers.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
                env=ours if environment is None else environment,
            )
        self._received = bytearray()

    @property
    def pid(self) -> int:
        """Also the number of the session of all that it starts."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once, as nobody can refuse; what it has started goes on."""
        self._process.kill()

    def tell(self, *words: object) -> None:
        """Give a command."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its last words then say why
            self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")

    def ask(self, *words: object) -> dict[str, Any]:
        """Give a command and return its answer."""
        self.tell(*words)
        return hear(self)[0]

    def fileno(self) -> int:
        """Return what to wait on for an answer."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> dict[str, Any] | None:
        """Take what has arrived; return the answer once it is whole."""
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            raise PeerError(self._last_words())
        self._received += chunk
        if not chunk.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(self._received)
        self._received.clear()
        return answer

    def _last_words(self) -> str:
        code = self._process.wait(timeout=5)
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with code {code}"

    def cpu_ticks(self) -> dict[int, int]:
        """The CPU time so far of the process and all that it has started, by process id."""
        return {pid: sum(map(int, fields[_CPU])) for pid, fields in self._session().items()}

    def running(self) -> list[int]:
        """Of the process and all that it has started, those that have not ended."""
        return [pid for pid, fields in self._session().items() if fields[_STATE] not in "ZX"]

    def _session(self) -> dict[int, list[str]]:
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has just ended
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[_SESSION]) == self._process.pid:
                    found[int(path.parent.name)] = fields
        return found

    def end(self) -> None:
        """End the process, first by the end of its input, then by force; and all it started."""
        self._end_leader()
        self.await_end()
        for pid in self.running():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def await_end(self) -> None:
        """Let what it started end by itself, for a while."""
        deadline = time.monotonic() + TIDY_TIMEOUT_S
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _end_leader(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=END_TIMEOUT_S)
                return


def hear(*peers: Peer, timeout_s: float = REPLY_TIMEOUT_S) -> list[dict[str, Any]]:
    """Return one answer of each peer, in this order; the first that has died ends the wait."""
    answers: dict[Peer, dict[str, Any]] = {}
    deadline = time.monotonic() + timeout_s
    while len(answers) < len(peers):
        waiting = [peer for peer in peers if peer not in answers]
        ready = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            raise PeerError(f"no answer for {timeout_s:.0f} s")
        for peer in ready:
            answer = peer.read()
            if answer is not None:
                answers[peer] = answer
    return [answers[peer] for peer in peers]
