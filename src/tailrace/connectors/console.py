"""Records onto the terminal, as many as a person can read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TextIO

from tailrace.graph.model import Record
from tailrace.runtime.sink import Sink


@dataclass
class Console(Sink):
    """Prints records, at most `per_s` in a second, and then how many it left out.

    Each instance counts for itself. When nobody reads any more (the terminal is gone, the pipe is
    closed) it goes on without printing.
    """

    per_s: int = 20
    format: Callable[[Record], str] = str
    clock_ns: Callable[[], int] = time.monotonic_ns
    _to: TextIO | None = field(default=None, init=False, repr=False)
    _prefix: str = field(default="", init=False, repr=False)
    _second_ends_ns: int = field(default=0, init=False, repr=False)
    _room: int = field(default=0, init=False, repr=False)
    """How many may still be printed in this second."""
    _left_out: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.per_s < 1:
            raise ValueError(f"per_s is {self.per_s}; it must be at least 1")

    def open(self, index: int, parallelism: int) -> None:
        """Find the terminal; with several instances each says which it is."""
        self._to = sys.stdout
        self._prefix = f"[{index}] " if parallelism > 1 else ""

    def write(self, records: Iterator[Record]) -> None:
        """Print some and count the others."""
        now_ns = self.clock_ns()
        if now_ns >= self._second_ends_ns:
            self._say_left_out()
            self._second_ends_ns = now_ns + 1_000_000_000
            self._room = self.per_s
        lines: list[str] = []
        try:
            lines.extend(map(self.format, islice(records, self._room)))
        finally:  # those before a record that raises
            self._room -= len(lines)
            self._print(lines)
        self._left_out += sum(1 for _ in records)

    def finish(self) -> None:
        """Say what was left out."""
        self._say_left_out()

    def _say_left_out(self) -> None:
        if self._left_out:
            self._print([f"... and {self._left_out:,} more that were not printed"])
            self._left_out = 0

    def _print(self, lines: list[str]) -> None:
        if self._to is None or not lines:
            return
        text = "".join(f"{self._prefix}{line}\n" for line in lines)
        encoding = getattr(self._to, "encoding", None) or "utf-8"
        try:
            self._to.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._to.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed in this process
            self._to = None
