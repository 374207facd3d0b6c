"""A thousand workers, in memory: what one of them builds and keeps, and what they all report.

Word count with parallelism 1,000 on 1,000 workers. One worker's core is built in a process of its
own, as a worker does from what the driver sends it; then it is given words, so that its report says
something on every operator and link. The coordinator's side is measured with such reports: each is
unpacked and heard by the roster, as those of 1,000 workers would be in one period. Nothing goes
over a network, and what the kernel needs for 1,000 connections is not in it.
"""

import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WORKERS = 1_000
_TIMES = 2_000
"""Durations in each histogram of a report."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def measure(quick: bool) -> dict[str, float]:
    """What a worker builds and keeps, and what the reports of all cost the coordinator."""
    workers = WORKERS
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), str(workers)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"a worker of {workers} cannot be built: {ran.stderr.strip()[-2000:]}")
    figures: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return figures


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


class _Nowhere:
    """Takes what a core sends, and forgets it."""

    def send(self, peer: int, parcels: list[tuple[int, list[Any]]]) -> int:
        return 100 * len(parcels)

    def credit(self, peer: int, *credit: Any) -> None:
        pass

    def state(self, peer: int, message: Any) -> bool:
        return True

    def check(self, record: Any) -> None:
        pass

    def size(self, records: list[Any]) -> int:
        return 100 * len(records)


def _build(workers: int) -> Any:
    """The core of worker 0, from the graph that it was sent."""
    from growth_parts.jobs import sentence, word_count
    from tailrace.connectors.generate import Generate
    from tailrace.graph.wiring import wire
    from tailrace.runtime.core import Core
    from tailrace.runtime.deployment import deploy

    graph = word_count(Generate(sentence), workers, workers).graph
    deployment = deploy(graph, [i % workers for i in range(wire(graph).instances)])
    return Core(0, deployment, time.monotonic_ns, _Nowhere())


def _report_of(core: Any) -> Any:
    """What it says after a while: its sources have emitted, all links have carried something."""
    from tailrace.control.progress.report import gathered
    from tailrace.control.protocol import Progress

    for _ in range(50):
        core.round()
    report = gathered(core, Progress(core.rank, time.monotonic_ns(), cpu_s=1.0, running_s=1.0))
    chance = random.Random(7)
    for histogram in _histograms(vars(report).values()):
        for _ in range(_TIMES):  # between 30 us and 30 ms, as after some minutes
            histogram.record(int(10 ** chance.uniform(4.5, 7.5)))
    return report


def _histograms(values: Iterable[Any]) -> Iterator[Any]:
    """All of a report, wherever they are."""
    from tailrace.runtime.histogram import Histogram

    for value in values:
        if isinstance(value, Histogram):
            yield value
        elif isinstance(value, dict):
            yield from _histograms(value.values())
        elif hasattr(value, "execute"):
            yield value.execute


def _hear_s(report: Any, workers: int) -> tuple[float, int]:
    """CPU time to hear one report, and how large it is."""
    from tailrace.control.protocol import Progress, pack, unpack
    from tailrace.control.roster import Roster

    packed = pack(report)
    roster = Roster(workers)
    roster.phase = "running"
    times = 2 * workers  # the first time all are new
    begun_s = time.process_time()
    for rank in range(times):
        message = unpack(packed)
        assert isinstance(message, Progress)
        message.rank = rank % workers
        roster.hear(message)
    return (time.process_time() - begun_s) / times, len(packed)


def main(workers: int) -> None:
    """Measure, and print it as JSON."""
    from tailrace.control.protocol import Settings

    _build(2).close()  # everything is imported, and the pool of sentences is there
    gc.collect()
    before_bytes, begun_s = _resident_bytes(), time.process_time()
    core = _build(workers)
    build_s, kept_bytes = time.process_time() - begun_s, _resident_bytes() - before_bytes
    report = _report_of(core)
    hear_s, report_bytes = _hear_s(report, workers)
    period_s = Settings(workers, ("", 0), b"", b"").report_s
    figures = {
        "worker_build_s": round(build_s, 3),
        "worker_mb": round(kept_bytes / 1e6, 1),
        "coordinator_cores": round(hear_s * workers / period_s, 3),
        "report_period_s": period_s,
        "report_bytes": report_bytes,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]))
