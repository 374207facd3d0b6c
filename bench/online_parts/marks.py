"""When records reached a sink, in a file of a byte per tenth of a millisecond.

The sink may be in any process of this machine, on several of its namespace hosts, and move: all
write into one mapped file, and nothing is lost with a process.
"""

import mmap
import time
from pathlib import Path
from typing import Any

TICK_NS = 100_000


class Marks:
    """A sink's function. `begin_ns` is by the monotonic clock, which the hosts must share."""

    def __init__(self, path: str, begin_ns: int) -> None:
        self._path = path
        self._begin_ns = begin_ns
        self._mapped: mmap.mmap | None = None

    @classmethod
    def new(cls, path: Path, seconds: float) -> "Marks":
        """For so many seconds from now on."""
        path.write_bytes(bytes(int(seconds * 1e9 / TICK_NS)))
        return cls(str(path), time.monotonic_ns())

    def __reduce__(self) -> Any:
        return Marks, (self._path, self._begin_ns)

    def __call__(self, record: object) -> None:
        if self._mapped is None:
            with Path(self._path).open("r+b") as file:
                self._mapped = mmap.mmap(file.fileno(), 0)
        tick = (time.monotonic_ns() - self._begin_ns) // TICK_NS
        if tick < len(self._mapped):
            self._mapped[tick] = 1

    def longest_silence_ms(self, from_ns: int, to_ns: int) -> float:
        """Between two times, the longest in which nothing came."""
        first, last = ((at_ns - self._begin_ns) // TICK_NS for at_ns in (from_ns, to_ns))
        seen = Path(self._path).read_bytes()[max(first, 0) : last]
        return max(map(len, seen.split(b"\1"))) * TICK_NS / 1e6
