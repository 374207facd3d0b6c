from collections.abc import Callable

from tailrace.runtime.exchange import Stamp
from tailrace.runtime.histogram import Histogram
from tailrace.runtime.step import Entrance, Fail, Step

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
    step: Step,
    port: int,
    fail: Fail,
    counts: Counts,
    timing: Timing,
    clock_ns: Callable[[], int],
) -> Entrance: ...
def measured(
    put: Entrance, latencies: dict[int, int], stamp: Stamp, clock_ns: Callable[[], int]
) -> Entrance: ...
