from collections.abc import Callable, Iterator

from tailrace.graph.model import Record
from tailrace.runtime.exchange import Stamp
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.step import Fail, Put

class Counts:
    records_in: int
    skipped: int
    dead: int
    late: int
    execute_ns: int
    @property
    def execute(self) -> Histogram: ...
    def add(self, other: Counts) -> None: ...

class Timing:
    inner_ns: int

def guard(
    name: str,
    process: Callable[[Iterator[Record], int], None],
    port: int,
    fail: Fail,
    counts: Counts,
    timing: Timing,
    clock_ns: Callable[[], int],
) -> Put: ...
def measured(
    put: Put, latencies: dict[int, int], stamp: Stamp, clock_ns: Callable[[], int]
) -> Put: ...
