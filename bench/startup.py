"""How long it takes from Python's start until a topology runs, on a local Spark of two slots.

    python bench/startup.py [--quick] [--rounds N] [--out FOLDER]

Each contestant is a fresh Python with a fresh JVM, and they take turns:

  plain   SparkSession.builder.master("local[2]"), as most people start it
  first   tailrace's `local_spark` with an empty cache folder
  ours    `local_spark` after `tailrace warm-up`

Measured: Python's start to a session, a first topology's start until all its workers run, and the
same for a second topology on the same session (`startup_parts/contestant.py`).
"""

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.frame import Benchmark, Options, machine, main
from harness.process import Peer, hear
from harness.spread import Spread, middle, rounded

CONTESTANTS = ("plain", "first", "ours")
FIGURES = ("spark_s", "first_job_s", "later_job_s", "until_running_s")
PROGRAM = Path(__file__).parent / "startup_parts" / "contestant.py"
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    rounds: int


class Run(Benchmark):
    """One run of the benchmark."""

    name = "startup"
    description = "From Python's start until a topology runs, on a local Spark."
    quick_help = "one round, not five"

    def __init__(self, options: Options, folder: Path, started: float) -> None:
        super().__init__(options, folder, started)
        self._plan = self.plan(Plan(1), Plan(5))
        self._found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
        self._background_percent = 0.0

    def measure(self) -> None:
        """All rounds."""
        self._background_percent = self.background_percent()
        filled, empty = self.folder / "filled", self.folder / "empty"
        self.say("making an archive of the JVM's classes")
        self._fill(filled)
        for number in range(self._plan.rounds):
            self.say(f"round {number + 1} of {self._plan.rounds}")
            for name in CONTESTANTS:
                cache = filled if name == "ours" else empty
                self._found[name].append(self.undisturbed(partial(self._start, name, cache)))

    def _fill(self, cache: Path) -> None:
        """What `tailrace warm-up` does."""
        from tailrace.cli.warm_up import record
        from tailrace.spark.archive import ArchiveError, make
        from tailrace.spark.session import local_archive

        os.environ["XDG_CACHE_HOME"] = str(cache)
        path = local_archive()
        if path is None:
            self.say("no Java was found; 'ours' runs without an archive")
            return
        try:
            make(path, record)
        except ArchiveError as error:
            self.say(f"'ours' runs without an archive: {error}")

    def _start(self, contestant: str, cache: Path) -> dict[str, float]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, str(PROGRAM), contestant, str(time.monotonic())]
        peer = Peer(command, self.folder, environment)
        self.ends.callback(peer.end)
        answer = hear(peer, timeout_s=PATIENCE_S)[0]
        self.ends.close()  # its JVM must not run beside the next one
        return answer

    def _spread(self, contestant: str, figure: str) -> Spread:
        return Spread.of([found[figure] for found in self._found[contestant]])

    def table(self) -> str:
        """Everything that was measured, as text."""
        titles = ("Spark", "first job", "later job", "until running")
        lines = ["", f"{'s, median (min..max)':22}" + "".join(f"{title:>22}" for title in titles)]
        for name in CONTESTANTS:
            cells = "".join(f"{self._spread(name, figure)!s:>22}" for figure in FIGURES)
            lines.append(f"{name:22}{cells}")
        return "\n".join([*lines, ""])

    def headline(self) -> dict[str, Any]:
        """The medians by contestant, and how many times faster ours is than the plain one."""
        figures: dict[str, Any] = {
            name: {figure: middle(self._spread(name, figure)) for figure in FIGURES}
            for name in CONTESTANTS
        }
        plain, ours = (self._spread(name, "until_running_s").median for name in ("plain", "ours"))
        return {
            "rounds": self._plan.rounds,
            **figures,
            "times_faster": rounded(plain / ours),
            "background_cpu_percent": rounded(self._background_percent),
        }

    def document(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Everything for the JSON file."""
        return {"headline": figures, "machine": machine(), "rounds": self._found}


if __name__ == "__main__":
    main(Run)
