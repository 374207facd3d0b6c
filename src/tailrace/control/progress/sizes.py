"""What records would take as bytes, for those that stay in a worker and are never encoded."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

from tailrace.graph.model import Record

MOST_BYTES = 64 << 10
"""When so much has been encoded, that is enough."""
MOST_NS = 100_000
"""When it has taken so long, too."""


class _EnoughError(Exception):
    pass


class _Scale:
    """A file that only counts. Large bytes and buffers come by reference, and are not copied."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, part: bytes) -> int:
        size = memoryview(part).nbytes
        self.bytes += size
        if self.bytes > MOST_BYTES:
            raise _EnoughError
        return size

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        self.write(buffer.raw())  # type: ignore[arg-type]
        return False


def size_of(records: list[Record], clock_ns: Callable[[], int] = time.perf_counter_ns) -> int:
    """About what these would take; 0 if they cannot be encoded, since what stays need not be.

    Some of them are encoded, to nowhere: first one, then twice as many, until it is all or
    `MOST_BYTES` or `MOST_NS`, and the rest is taken to be alike. What is larger counts with what
    was seen of it, which is all of large bytes and arrays.
    """
    began_ns = clock_ns()
    scale = _Scale()
    pickler = pickle.Pickler(scale, 5, buffer_callback=scale.take)
    done, portion = 0, 1
    while done < len(records):
        some = records[done : done + portion]
        try:
            pickler.dump(some)
        except _EnoughError:
            done += len(some) if portion == 1 else max(len(some) // 2, 1)
            break
        except Exception:
            return 0
        done += len(some)
        portion *= 2
        if clock_ns() - began_ns > MOST_NS:
            break
    return scale.bytes * len(records) // max(done, 1)
