"""Tails of latency, and what each technique does to them (Du's thesis, chapter 5).

    python bench/tail.py [--quick] [--out FOLDER]

Sections, each a module in `tail_parts/` that says what it measures, with `run(stage, quick)` and
`table(found)`: `shared` (one queue for several receivers, beside M/M/c), `balance` (heterogeneous
workers), `replay` (late records are sent again; what following them costs), `yahoo` (two topologies
with each technique), `noisy_neighbour` (what a user sees). `chooser` sums up how auto did beside
the others. All on a local Spark, in real processes, with Poisson arrivals; latency counts from when
a record was due. Contestants take turns, in changing order, five rounds at least unless a section
has `rounds`; percentiles are of all rounds together, `p99_spread` has the lowest, the middle and
the highest p99 of a round, `p99_calm` is of all rounds but the worst. `lost` and `duplicated` sum
over all jobs.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from tail_parts import balance, chooser, noisy, replay, shared, yahoo
from tail_parts.stage import LATEST_S
from tailrace.spark.session import local_spark

SECTIONS: dict[str, ModuleType] = {
    "shared": shared,
    "balance": balance,
    "replay": replay,
    "yahoo": yahoo,
    "noisy_neighbour": noisy,
}
SLOTS = 6


class Run(Benchmark):
    """One run of the benchmark."""

    name = "tail"
    description = "Tails of latency with and without what Tailrace does about them."
    quick_help = "short slices, within two minutes"
    settings = ()

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self.found: dict[str, Any] = {}
        self.spark: Any = None
        self.latest_s = LATEST_S if options.quick else math.inf

    def measure(self) -> None:
        """All sections."""
        self.background_cpu_percent = self.background_percent()
        self.say("starting Spark")
        self.spark = local_spark(SLOTS)
        self.ends.callback(self.spark.stop)
        for name, section in SECTIONS.items():
            self.found[name] = section.run(self, self.options.quick)

    def _chooser(self) -> dict[str, Any]:
        return chooser.compared(self.found, self.options.quick)

    def table(self) -> str:
        """Everything that was measured, as text."""
        told = [SECTIONS[name].table(found) for name, found in self.found.items()]
        return "\n".join([*told, chooser.table(self._chooser())])

    def headline(self) -> dict[str, Any]:
        """All sections' figures."""
        sums = {
            what: sum(found[what] for found in self.found.values())
            for what in ("lost", "duplicated")
        }
        return {
            **self.found,
            "chooser": self._chooser(),
            "overhead_percent": self.found["replay"]["overhead_percent"],
            **sums,
            "background_cpu_percent": round(self.background_cpu_percent, 1),
            "elapsed_s": round(self.elapsed_s(), 1),
        }

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """The same, with the machine."""
        return {"headline": figures, "quick": self.options.quick, "machine": machine()}


if __name__ == "__main__":
    main(Run)
