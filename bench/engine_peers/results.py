"""What a run has found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from engine_peers.handmade import Variant
from engine_peers.workloads import Outcome
from harness.spread import Spread, spread_of


@dataclass
class Results:
    """Outcomes by contestant and rate (0: as fast as it goes)."""

    rounds: int = 0
    tailrace: dict[tuple[str, int], list[Outcome]] = field(default_factory=dict)
    handmade: dict[tuple[Variant, int], list[Outcome]] = field(default_factory=dict)
    tailrace_poisson: dict[tuple[str, int], list[Outcome]] = field(default_factory=dict)
    handmade_poisson: dict[tuple[Variant, int], list[Outcome]] = field(default_factory=dict)
    """The same with records at random distances."""
    discarded: list[Outcome] = field(default_factory=list)
    """Of Tailrace: from rounds that were repeated. They count for exactness."""
    trials: dict[Variant, Outcome] = field(default_factory=dict)
    idle_cpu_percent: float | None = None
    background_cpu_percent: float | None = None
    load_average: float | None = None
    spark_start_s: float | None = None
    first_job_start_s: float | None = None
    job_start_s: float | None = None

    def best_handmade(self, workload: str) -> Variant:
        """The fastest handmade variant: by the median of its rounds, before those by its trial."""

        def rate(variant: Variant) -> float:
            rounds = self.handmade.get((variant, 0)) or [self.trials[variant]]
            return median(outcome.rate_per_s for outcome in rounds)

        measured = {variant for variant, at in self.handmade if at == 0}
        candidates = [
            variant
            for variant in self.trials
            if variant.workload == workload and (not measured or variant in measured)
        ]
        if not candidates:
            candidates = [variant for variant in self.trials if variant.workload == workload]
        return max(candidates, key=rate)

    def rate(self, outcomes: Sequence[Outcome]) -> Spread | None:
        """Records per second."""
        return spread_of([outcome.rate_per_s for outcome in outcomes])

    def latency(self, outcomes: Sequence[Outcome], name: str) -> Spread | None:
        """A percentile, in milliseconds."""
        return spread_of([o.latency_ms[name] for o in outcomes if name in o.latency_ms])
