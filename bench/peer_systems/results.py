"""What a run has found, and what follows from it: medians, ranges, ratios to Tailrace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.spread import Spread, spread_of
from peer_systems.told import Measured

WORKLOADS = {"wordcount": "sentences", "chain": "records"}
FULL_SPEED = 0
RATES_PER_S = (1_000, 10_000)
PERCENTILES = ("p50", "p99", "p99.9")
TAILRACE = "tailrace"


@dataclass
class Results:
    """Runs by system, workload and rate, then by round; labels of the systems in their order."""

    labels: dict[str, str]
    runs: dict[tuple[str, str, int], dict[int, Measured]] = field(default_factory=dict)
    trials: dict[tuple[str, str, str], Measured] = field(default_factory=dict)
    """At full speed, once, by system, workload and tuning."""
    missing: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    background_cpu_percent: float | None = None

    def add(self, system: str, workload: str, rate_per_s: int, number: int, run: Measured) -> None:
        """Keep what a system did in a round."""
        self.runs.setdefault((system, workload, rate_per_s), {})[number] = run

    def best_tuning(self, system: str, workload: str) -> str:
        """The tuning with which it was fastest when tried."""
        tried = {
            tuning: run.rate_per_s
            for (who, what, tuning), run in self.trials.items()
            if (who, what) == (system, workload)
        }
        return max(tried, key=tried.__getitem__) if tried else ""

    def of(self, system: str, workload: str, rate_per_s: int) -> list[Measured]:
        """The runs of all rounds."""
        return list(self.runs.get((system, workload, rate_per_s), {}).values())

    def every(self, system: str, workload: str) -> list[Measured]:
        """All runs of a workload, trials too: none of them may lose anything."""
        runs = [
            run for rate in (FULL_SPEED, *RATES_PER_S) for run in self.of(system, workload, rate)
        ]
        tried = [
            run for (who, what, _), run in self.trials.items() if (who, what) == (system, workload)
        ]
        return runs + tried

    def rate(self, system: str, workload: str) -> Spread | None:
        """The maximum rate per second."""
        return spread_of([run.rate_per_s for run in self.of(system, workload, FULL_SPEED)])

    def too_fast(self, system: str, workload: str, rate_per_s: int) -> bool:
        """Whether the system cannot keep up with a rate, as far as is known."""
        most = self.rate(system, workload)
        runs = self.of(system, workload, rate_per_s)
        return any(run.saturated for run in runs) or (
            not runs and most is not None and most.high < rate_per_s
        )

    def latency_ms(
        self, system: str, workload: str, rate_per_s: int, percentile: str
    ) -> Spread | None:
        """A percentile at a rate; None if the system was not measured or cannot keep up."""
        if self.too_fast(system, workload, rate_per_s):
            return None
        runs = self.of(system, workload, rate_per_s)
        return spread_of([run.latency_ms[percentile] for run in runs if run.latency_ms])

    def rate_ratio(self, system: str, workload: str) -> Spread | None:
        """Its maximum rate to Tailrace's, round by round: below 1 it is slower."""
        return self._ratio(system, workload, FULL_SPEED, lambda run: run.rate_per_s)

    def latency_ratio(
        self, system: str, workload: str, rate_per_s: int, percentile: str
    ) -> Spread | None:
        """Its latency to Tailrace's, round by round: above 1 it is slower."""
        if any(self.too_fast(who, workload, rate_per_s) for who in (system, TAILRACE)):
            return None
        return self._ratio(
            system, workload, rate_per_s, lambda run: run.latency_ms.get(percentile, 0.0)
        )

    def _ratio(
        self, system: str, workload: str, rate_per_s: int, figure: Callable[[Measured], float]
    ) -> Spread | None:
        ours = self.runs.get((TAILRACE, workload, rate_per_s), {})
        theirs = self.runs.get((system, workload, rate_per_s), {})
        values = [
            figure(run) / figure(ours[number])
            for number, run in theirs.items()
            if number in ours and figure(ours[number])
        ]
        return spread_of(values)


def processes(runs: Sequence[Measured]) -> int | None:
    """How many processes worked, at most."""
    return max((run.processes for run in runs), default=None)
