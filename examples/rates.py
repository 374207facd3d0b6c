"""Three ways to make 200 records a second: when do they come?

Runs in virtual time, so that two seconds pass at once; with `topology.start(spark)` the same
sources keep real time.
"""

import tailrace as tr
from tailrace import sources
from tailrace.runtime.source import Source
from tailrace.testing import collect, run

SECONDS = 2.0
SLOT_MS = 50
BAR = " ▁▂▃▄▅▆▇█"


class Slot(tr.Operator):
    """The slot of time that a record came in."""

    def process(self, record: int) -> None:
        self.emit(self.instance.clock_ns() // (SLOT_MS * 1_000_000))


def slots(source: Source) -> list[int]:
    topology = tr.Topology("rates")
    came = collect(topology.source(source).process(Slot()))
    run(topology)
    return [came.count(slot) for slot in range(int(SECONDS * 1000 / SLOT_MS))]


def show(name: str, source: Source) -> None:
    counts = slots(source)
    bars = "".join(BAR[min(8, (count + 4) // 5)] for count in counts)
    print(f"{name:8} |{bars}| {sum(counts)} records")


if __name__ == "__main__":
    print(f"Records in each {SLOT_MS} ms of {SECONDS:g} seconds:")
    show("rate", sources.rate(200, seconds=SECONDS))
    show("poisson", sources.poisson(200, seconds=SECONDS, seed=7))
    show("bursts", sources.bursts(50, every_s=0.25, seconds=SECONDS))
