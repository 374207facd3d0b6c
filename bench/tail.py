"""Tails of latency, and what each technique does to them (Du's thesis, chapter 5).

    python bench/tail.py [--quick] [--out FOLDER]

Sections, each a module in `tail_parts/` that says what it measures, with `run(stage, quick)` and
`table(found)`: `shared` (one queue for several receivers, beside M/M/c), `balance` (heterogeneous
workers). All on a local Spark, with Poisson arrivals; latency counts from when a record was due.
Contestants take turns, five rounds at least, in changing order; percentiles are of all rounds
together, `p99_spread` has the lowest, the middle and the highest p99 of a round. `lost` and
`duplicated` sum over all jobs.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from tail_parts import balance, shared
from tailrace.spark.session import local_spark

SECTIONS: dict[str, ModuleType] = {"shared": shared, "balance": balance}
SLOTS = 6


class Run(Benchmark):
    """One run of the benchmark."""

    name = "tail"
    description = "Tails of latency with and without what Tailrace does about them."
    quick_help = "short slices, about a minute"
    settings = ()

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self.found: dict[str, Any] = {}
        self.spark: Any = None

    def measure(self) -> None:
        """All sections."""
        self.background_cpu_percent = self.background_percent()
        self.say("starting Spark")
        self.spark = local_spark(SLOTS)
        self.ends.callback(self.spark.stop)
        for name, section in SECTIONS.items():
            self.found[name] = section.run(self, self.options.quick)

    def table(self) -> str:
        """Everything that was measured, as text."""
        return "\n".join(SECTIONS[name].table(found) for name, found in self.found.items())

    def headline(self) -> dict[str, Any]:
        """All sections' figures."""
        sums = {
            what: sum(found[what] for found in self.found.values())
            for what in ("lost", "duplicated")
        }
        return {
            **self.found,
            **sums,
            "background_cpu_percent": round(self.background_cpu_percent, 1),
            "elapsed_s": round(self.elapsed_s(), 1),
        }

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """The same, with the machine."""
        return {"headline": figures, "quick": self.options.quick, "machine": machine()}


if __name__ == "__main__":
    main(Run)
